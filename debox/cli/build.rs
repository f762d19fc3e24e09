// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leaves the names of functions out of the program: they are a fifth of it, and only backtraces of a panic show them.
//! What is built with debug information keeps them, as the packages do for theirs.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("DEBUG").is_ok_and(|debug| debug == "false") {
        println!("cargo::rustc-link-arg-bin=debox=-Wl,--strip-all");
    }
}
