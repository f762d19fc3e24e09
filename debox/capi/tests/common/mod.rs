//! How the tests compile their C programs, against the headers and `libdebox.so`.

use std::path::{Path, PathBuf};
use std::process::Command;

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

/// The same, linked with the `libdebox.so` of a directory, where the program will look for it.
pub fn linked(name: &str, directory: &Path, library: &Path) -> PathBuf {
    linked_in("tests/programs", name, directory, library)
}

fn linked_in(place: &str, name: &str, directory: &Path, library: &Path) -> PathBuf {
    let search = format!("-L{}", library.display());
    let run_path = format!("-Wl,-rpath,{}", library.display());
    compile_in(place, name, directory, &[&search, &run_path, "-ldebox"])
}

/// One of the examples for C.
#[allow(dead_code)] // not each of the test programs has a use for it
pub fn example(name: &str, directory: &Path, library: &Path) -> PathBuf {
    linked_in("../examples", name, directory, library)
}
