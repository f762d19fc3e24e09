// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the truth programs, one C file each, into `OUT_DIR/programs`.

use std::env;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

/// Compiles one program; a failure ends the build with the compiler's own words above it.
fn compile(source: &Path, target: &Path, extra: &[&str]) {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let status = Command::new(&compiler)
        .args([
            "-std=gnu11",
            "-D_GNU_SOURCE",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-pthread",
        ])
        .args(extra)
        .arg("-o")
        .arg(target)
        .arg(source)
        .status()
        .unwrap_or_else(|error| panic!("cannot run the C compiler `{compiler}`: {error}"));
    assert!(
        status.success(),
        "`{compiler}` failed on {}",
        source.display()
    );
}

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let sources = manifest.join("../truth/programs");
    let programs = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("programs");
    std::fs::create_dir_all(&programs).expect("the build directory is writable");
    println!("cargo::rerun-if-changed={}", sources.display());
    // What the programs include from elsewhere.
    for included in ["engine/src/broker/version.h", "preload/c", "include"] {
        let included = manifest.join("../..").join(included);
        println!("cargo::rerun-if-changed={}", included.display());
    }
    println!("cargo::rerun-if-env-changed=CC");

    for entry in std::fs::read_dir(&sources).expect("debox/tests/truth/programs is there") {
        let source = entry.expect("readable directory").path();
        if source.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        println!("cargo::rerun-if-changed={}", source.display());
        let name = source
            .file_stem()
            .expect("a C file has a name")
            .to_string_lossy()
            .to_string();
        let extra: &[&str] = match name.as_str() {
            "raw_clone" => &[
                "-nostdlib",
                "-static",
                "-ffreestanding",
                "-fno-stack-protector",
            ],
            _ => &[],
        };
        compile(&source, &programs.join(&name), extra);
    }
    for (name, of) in [
        ("count_static", "count.c"),
        ("trace_static", "trace_calls.c"),
    ] {
        compile(&sources.join(of), &programs.join(name), &["-static"]);
    }
}
