// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the program that the benchmarks of process creation execute.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=c/hello.c");
    let directory = std::env::var_os("OUT_DIR").expect("cargo sets it");
    for (name, option) in [("hello-static", "-static"), ("hello-dynamic", "-pie")] {
        let output = Path::new(&directory).join(name);
        let mut compiler = cc::Build::new().get_compiler().to_command();
        let status = compiler
            .args(["c/hello.c", option, "-s", "-o"])
            .arg(&output)
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "the C compiler cannot make {name}: install gcc and libc6-dev"
        );
    }
}
