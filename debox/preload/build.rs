//! Compiles the preload shim, a shared library in C: it interposes functions with variable argument
//! lists, which Rust cannot define.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{ensure, Context, Result};

const SOURCES: [&str; 3] = ["calls.c", "attach.c", "debox_tap.c"];

fn main() -> Result<()> {
    let here = env::var("CARGO_MANIFEST_DIR")?;
    let out = Path::new(&env::var("OUT_DIR")?).join("libdebox_preload.so");
    println!("cargo:rerun-if-changed=c");
    println!("cargo:rerun-if-changed=include");
    println!("cargo:rerun-if-env-changed=CC");

    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let status = Command::new(&compiler)
        .args([
            "-std=gnu11",
            "-O2",
            "-g",
            "-fPIC",
            "-shared",
            "-fno-builtin",
            // The shim is loaded at the start of a program, never later. This model also avoids
            // depending on the loader's own library, which other libcs' loaders do not find.
            "-ftls-model=initial-exec",
        ])
        // A frame pointer costs nothing here and keeps frame-pointer unwinding through the shim.
        .args([
            "-fno-omit-frame-pointer",
            "-momit-leaf-frame-pointer",
            "-Wall",
            "-Wextra",
            "-Werror",
        ])
        // Buffer parameters of pipe() are declared as arrays; unsigned results are never -1.
        .args([
            "-Wno-array-parameter",
            "-Wno-type-limits",
            "-Wl,-z,now",
            "-Wl,-soname",
        ])
        .arg("-Wl,libdebox_preload.so")
        .arg("-Iinclude")
        .args(SOURCES.map(|source| format!("c/{source}")))
        .arg("-o")
        .arg(&out)
        .arg("-ldl")
        .current_dir(&here)
        .status()
        .with_context(|| format!("cannot run {compiler}: apt-get install gcc libc6-dev"))?;
    ensure!(
        status.success(),
        "{compiler} cannot compile the preload shim"
    );

    println!(
        "cargo:rustc-env=DEBOX_ENTRY_POINTS={}",
        entry_points(&here)?
    );
    Ok(())
}

/// How many functions the shim interposes; see c/calls.def.
fn entry_points(here: &str) -> Result<usize> {
    let count = |file: &str, prefix: &str| -> Result<usize> {
        let text = fs::read_to_string(Path::new(here).join("c").join(file))?;
        Ok(text.lines().filter(|line| line.starts_with(prefix)).count())
    };
    Ok(
        count("calls.def", "CALL")? + count("calls.c", "ENTRY ")? + 1, /* vfork */
    )
}
