//! Fetches the libraries that draw pages from npm, at the versions of `page/package-lock.json`, and combines them
//! into one script and one style sheet. Without npm or a network the crate still builds, but cannot draw pages;
//! programs then say so. If DEBOX_REQUIRE_PAGE is set, that is an error; builds for other users should set it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=page/package.json");
    println!("cargo::rerun-if-changed=page/package-lock.json");
    println!("cargo::rerun-if-env-changed=DEBOX_REQUIRE_PAGE");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names it"));
    let fetched = fetch(&out);
    let (script, style, licences) = match &fetched {
        Ok(parts) => parts.clone(),
        Err(why) => {
            let level = match env::var_os("DEBOX_REQUIRE_PAGE") {
                Some(_) => "error",
                None => "warning",
            };
            println!(
                "cargo::{level}=pages (--html) cannot be drawn, because {why}; install nodejs and \
                 npm (`scripts/setup build` does) and build again with a network"
            );
            // This file never exists, so the next build tries again.
            println!("cargo::rerun-if-changed={}", out.join("never").display());
            Default::default()
        }
    };
    for (name, text) in [
        ("libraries.js", script),
        ("libraries.css", style),
        ("licences.txt", licences),
        ("missing.txt", fetched.err().unwrap_or_default()),
    ] {
        fs::write(out.join(name), text).expect("cargo's own directory can be written");
    }
}

/// The script, the style sheet, and the licences.
fn fetch(out: &Path) -> Result<(String, String, String), String> {
    let directory = out.join("npm");
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let (lock, fetched) = (
        Path::new("page/package-lock.json"),
        directory.join("fetched"),
    );
    let wanted = fs::read(lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    // Packages that an earlier build has fetched need no network.
    let is_there = directory.join("node_modules").is_dir();
    if !is_there || fs::read(&fetched).ok() != Some(wanted) {
        for name in ["package.json", "package-lock.json"] {
            fs::copy(Path::new("page").join(name), directory.join(name))
                .map_err(|error| format!("page/{name} cannot be copied: {error}"))?;
        }
        npm_ci(&directory)?;
        fs::copy(lock, &fetched).map_err(|error| error.to_string())?;
    }
    join(&directory.join("node_modules"))
}

/// Has npm fetch what the lock file lists; without a network, from npm's cache.
fn npm_ci(directory: &Path) -> Result<(), String> {
    let npm = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        // Without a network, a build should not wait for minutes.
        .args(["--prefer-offline", "--fetch-retries=1"])
        .args(["--fetch-retry-mintimeout=1000", "--fetch-timeout=60000"])
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("npm cannot be started for the build: {error}"))?;
    if !npm.status.success() {
        let said = String::from_utf8_lossy(&npm.stderr);
        let errors = said
            .lines()
            .filter(|line| line.contains("npm error") || line.contains("ERR!"));
        // npm prints advice and the log's path after the error itself.
        let said = errors
            .clone()
            .find(|line| line.contains("failed, reason") || line.contains("network request"))
            .or_else(|| {
                errors
                    .clone()
                    .find(|line| line.split_whitespace().count() > 4)
            })
            .or(errors.clone().next());
        return Err(format!(
            "npm could not fetch what pages are drawn with for the build ({})",
            said.unwrap_or("it says nothing").trim()
        ));
    }
    Ok(())
}

fn join(modules: &Path) -> Result<(String, String, String), String> {
    let read = |name: &str| {
        fs::read_to_string(modules.join(name))
            .map_err(|error| format!("npm brought no {name}: {error}"))
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
