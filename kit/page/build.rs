//! Puts the libraries that pages are drawn with into one script and one style sheet. `scripts/page-libraries`
//! fetches them from npm. Without them the crate is built all the same: only pages cannot be drawn then, and the
//! programs say so. With DEBOX_REQUIRE_PAGE in the environment that is an error, for people who build for others.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// In the order of their dependencies. Each adds itself to the global `d3`, except uPlot and the flame graph.
const SCRIPTS: &[&str] = &[
    "uplot/dist/uPlot.iife.min.js",
    "d3-array/dist/d3-array.min.js",
    "d3-color/dist/d3-color.min.js",
    "d3-dispatch/dist/d3-dispatch.min.js",
    "d3-ease/dist/d3-ease.min.js",
    "d3-format/dist/d3-format.min.js",
    "d3-hierarchy/dist/d3-hierarchy.min.js",
    "d3-interpolate/dist/d3-interpolate.min.js",
    "d3-time/dist/d3-time.min.js",
    "d3-time-format/dist/d3-time-format.min.js",
    "d3-scale/dist/d3-scale.min.js",
    "d3-selection/dist/d3-selection.min.js",
    "d3-timer/dist/d3-timer.min.js",
    "d3-transition/dist/d3-transition.min.js",
    "d3-flame-graph/dist/d3-flamegraph.umd.min.js",
];
const STYLES: &[&str] = &["uplot/dist/uPlot.min.css"];

/// Where npm puts them, and the lock file for which it did.
const MODULES: &str = "page/node_modules";
const FETCHED_FOR: &str = "page/node_modules/fetched-for.json";
const LOCK: &str = "page/package-lock.json";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={LOCK}");
    // Cargo takes a missing file as changed, and would build this crate and all above it each time.
    let fetched = if Path::new(FETCHED_FOR).exists() {
        FETCHED_FOR
    } else {
        "page"
    };
    println!("cargo::rerun-if-changed={fetched}");
    println!("cargo::rerun-if-env-changed=DEBOX_REQUIRE_PAGE");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names it"));
    let libraries = libraries();
    if let Err(why) = &libraries {
        let level = match env::var_os("DEBOX_REQUIRE_PAGE") {
            Some(_) => "error",
            None => "warning",
        };
        println!("cargo::{level}=HTML pages (--html) cannot be drawn: {why}");
    }
    let (script, style, licences) = libraries.clone().unwrap_or_default();
    for (name, text) in [
        ("libraries.js", script),
        ("libraries.css", style),
        ("licences.txt", licences),
        ("missing.txt", libraries.err().unwrap_or_default()),
    ] {
        fs::write(out.join(name), text).expect("cargo's own directory can be written");
    }
}

/// The script, the style sheet, and the licences; or what is missing, and how to get it.
fn libraries() -> Result<(String, String, String), String> {
    let how = "run scripts/page-libraries, which needs npm and a network, and build again";
    match (fs::read(FETCHED_FOR), fs::read(LOCK)) {
        (Err(_), _) => Err(format!("this build has no JavaScript libraries; {how}")),
        (Ok(fetched), Ok(wanted)) if fetched == wanted => join(Path::new(MODULES)),
        _ => Err(format!(
            "this build's JavaScript libraries are of other versions; {how}"
        )),
    }
}

fn join(modules: &Path) -> Result<(String, String, String), String> {
    let read = |name: &str| {
        fs::read_to_string(modules.join(name))
            .map_err(|error| format!("{name} is missing from {MODULES}: {error}"))
    };
    let mut script = String::new();
    let mut licences = String::new();
    for name in SCRIPTS {
        let text = read(name)?;
        if text.to_ascii_lowercase().contains("</script") {
            return Err(format!("{name} cannot stand inside a page"));
        }
        // A browser would look for source maps beside the page.
        let kept = text
            .lines()
            .filter(|line| !line.starts_with("//# sourceMappingURL"));
        script.extend(kept.flat_map(|line| [line, "\n"]));
        script.push_str(";\n");
        let package = name.split('/').next().unwrap_or(name);
        licences.push_str(&format!(
            "{package}\n\n{}\n\n",
            licence(&modules.join(package))?
        ));
    }
    let mut style = String::new();
    for name in STYLES {
        style.push_str(&read(name)?);
    }
    Ok((script, style, licences))
}

fn licence(package: &Path) -> Result<String, String> {
    let version = fs::read_to_string(package.join("package.json")).unwrap_or_default();
    let line = |key: &str| {
        let line = version
            .lines()
            .find(|line| line.trim_start().starts_with(key));
        line.map(|line| line.trim().trim_end_matches(',').replace('"', ""))
            .unwrap_or_default()
    };
    let head = format!("{}, {}", line("\"version\""), line("\"license\""));
    for name in ["LICENSE", "LICENSE.md", "LICENSE.txt"] {
        if let Ok(text) = fs::read_to_string(package.join(name)) {
            return Ok(format!("{head}\n{}", text.trim()));
        }
    }
    Err(format!("{} has no licence", package.display()))
}
