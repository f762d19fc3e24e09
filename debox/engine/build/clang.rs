//! What compiles programs for the kernel.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{bail, Result};

pub fn arguments() -> Result<[String; 5]> {
    let headers = system_headers()?;
    Ok(["-Wall", "-Werror", "-mcpu=v3", "-I", &headers].map(str::to_string))
}

/// clang 14 and later compile the probes; the newest one found is taken.
pub fn find() -> Result<String> {
    if let Ok(clang) = env::var("CLANG") {
        return Ok(clang);
    }
    let versioned = (14..=22).rev().map(|version| format!("clang-{version}"));
    for clang in versioned.chain(["clang".to_string()]) {
        if Command::new(&clang).arg("--version").output().is_ok() {
            return Ok(clang);
        }
    }
    bail!("clang is needed to compile the probes: apt-get install clang-19, or set CLANG")
}

/// `<asm/types.h>` is in a per-architecture directory that clang leaves out for the BPF target.
fn system_headers() -> Result<String> {
    for directory in ["/usr/include/x86_64-linux-gnu", "/usr/include"] {
        if Path::new(directory).join("asm/types.h").exists() {
            return Ok(directory.to_string());
        }
    }
    bail!("asm/types.h not found: apt-get install linux-libc-dev")
}
