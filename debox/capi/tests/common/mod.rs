//! How the tests compile their C programs, against the headers and `libdebox.so`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name by which programs look for the library that they were linked with.
pub const NAME: &str = "libdebox.so.0";

/// Where cargo put `libdebox.so`: beside the tests.
pub fn library_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let beside = test
        .parent()
        .expect("a test is in a directory")
        .to_path_buf();
    assert!(
        beside.join("libdebox.so").exists(),
        "no libdebox.so in {}",
        beside.display()
    );
    beside
}

/// Compiles a program of `tests/programs` into a directory and returns where it is.
#[allow(dead_code)] // not each of the test programs has a use for it
pub fn compile(name: &str, directory: &Path, flags: &[&str]) -> PathBuf {
    compile_in("tests/programs", name, directory, flags)
}

fn compile_in(place: &str, name: &str, directory: &Path, flags: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = directory.join(name);
    let compiled = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            "-o",
        ])
        .arg(&program)
        .arg(here.join(place).join(format!("{name}.c")))
        .arg("-I")
        .arg(here.join("../include"))
        .args(flags)
        .output()
        .expect("cc runs");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    program
}

/// The same, linked with the library, which it will look for beside itself.
pub fn linked(name: &str, directory: &Path) -> PathBuf {
    linked_in("tests/programs", name, directory)
}

fn linked_in(place: &str, name: &str, directory: &Path) -> PathBuf {
    let library = directory.join(NAME);
    if !library.exists() {
        symlink(library_directory().join("libdebox.so"), &library).expect("a link can be made");
    }
    let run_path = format!("-Wl,-rpath,{}", directory.display());
    let library = library.to_str().expect("temporary directories are UTF-8");
    compile_in(place, name, directory, &[library, &run_path])
}

/// One of the examples for C.
#[allow(dead_code)] // not each of the test programs has a use for it
pub fn example(name: &str, directory: &Path) -> PathBuf {
    linked_in("../examples", name, directory)
}
