//! Compiles what the preload shim reads, with the sanitizer and the counters that the fuzzer asks for.

#[path = "../debox/engine/build/clang.rs"]
#[allow(dead_code)]
mod clang;

fn main() {
    println!("cargo:rerun-if-changed=welcome.c");
    println!("cargo:rerun-if-changed=../debox/preload/c");
    println!("cargo:rerun-if-changed=../debox/include");
    cc::Build::new()
        .compiler(clang::find().expect("clang, which the probes need too"))
        .file("welcome.c")
        .include("../debox/include")
        .flag("-fsanitize=address")
        .flag("-fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp")
        .compile("debox_fuzz_welcome");
}
