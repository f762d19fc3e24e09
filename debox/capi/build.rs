//! Gives `libdebox.so` the name by which programs that are linked with it look for it.

/// The number changes whenever a program that was linked with the previous library could fail with this one: a function
/// is removed, or a function or structure of `debox.h` changes.
const NAME: &str = "libdebox.so.0";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{NAME}");
}
