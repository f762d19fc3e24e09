//! Compiles the probes and generates their skeleton. Needs clang and the system call headers, but
//! neither root nor the running kernel's BTF.

#[path = "build/clang.rs"]
mod clang;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<()> {
    compile_stamps();
    let probe = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("probe");
    println!("cargo:rerun-if-changed=probe");
    println!("cargo:rerun-if-changed=include/debox.h");
    println!("cargo:rerun-if-env-changed=CLANG");

    for object in ["arrivals", "debox", "gate", "trace"] {
        let skeleton = PathBuf::from(env::var("OUT_DIR")?).join(format!("{object}.skel.rs"));
        SkeletonBuilder::new()
            .source(probe.join(format!("{object}.bpf.c")))
            .clang(clang::find()?)
            .clang_args(clang::arguments()?)
            .build_and_generate(&skeleton)
            .context("cannot compile the probes")?;
    }
    Ok(())
}

/// The user tap's stamps for programs that open their session themselves.
fn compile_stamps() {
    let sources = ["shim/debox_tap.c", "src/inband/user_tap.c"];
    for input in sources.iter().chain(&["shim/attach.h", "include"]) {
        println!("cargo:rerun-if-changed={input}");
    }
    cc::Build::new()
        .files(sources)
        .includes(["include", "shim"])
        .std("gnu11")
        .opt_level(2)
        .force_frame_pointer(true)
        .warnings_into_errors(true)
        .compile("debox_stamps");
}
