//! Compiles the probes and generates their skeleton. Needs clang and the system call headers, but
//! neither root nor the running kernel's BTF.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};
use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<()> {
    compile_stamps();
    let probe = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../probe");
    println!("cargo:rerun-if-changed={}", probe.display());
    println!(
        "cargo:rerun-if-changed={}",
        probe.join("../include/debox.h").display()
    );
    println!("cargo:rerun-if-env-changed=CLANG");

    let skeleton = PathBuf::from(env::var("OUT_DIR")?).join("debox.skel.rs");
    SkeletonBuilder::new()
        .source(probe.join("debox.bpf.c"))
        .clang(find_clang()?)
        .clang_args(["-Wall", "-Werror", "-mcpu=v3", "-I", &system_headers()?])
        .build_and_generate(&skeleton)
        .context("cannot compile the probes")
}

/// The user tap's stamps for programs that open their session themselves.
fn compile_stamps() {
    let sources = ["../debox-preload/c/debox_tap.c", "src/inband/user_tap.c"];
    for input in sources
        .iter()
        .chain(&["../debox-preload/c/attach.h", "../../include"])
    {
        println!("cargo:rerun-if-changed={input}");
    }
    cc::Build::new()
        .files(sources)
        .includes(["../../include", "../debox-preload/c"])
        .std("gnu11")
        .opt_level(2)
        .force_frame_pointer(true)
        .warnings_into_errors(true)
        .compile("debox_stamps");
}

/// clang 14 and later compile the probes; the newest one found is taken.
fn find_clang() -> Result<String> {
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
