//! Compiles the programs and generates their skeleton.

#[path = "../../../engine/build/clang.rs"]
mod clang;

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};
use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<()> {
    println!("cargo:rerun-if-changed=floor.bpf.c");
    println!("cargo:rerun-if-env-changed=CLANG");
    let skeleton = PathBuf::from(env::var("OUT_DIR")?).join("floor.skel.rs");
    SkeletonBuilder::new()
        .source("floor.bpf.c")
        .clang(clang::find()?)
        .clang_args(clang::arguments()?)
        .build_and_generate(&skeleton)
        .context("cannot compile the programs")
}
