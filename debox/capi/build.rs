//! Gives `libdebox.so` its name, so that programs linked by path find it wherever it is installed.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdebox.so");
}
