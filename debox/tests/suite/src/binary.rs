// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command under test, and whether it is up to date.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

/// The command under test: `DEBOX_BIN`, or the newer of the two that stand beside this program in cargo's target
/// directory.
///
/// Cargo builds it with the workspace, but not with these tests alone. So a command that is older than its sources is
/// refused, except in the guests of `scripts/guests`: they start hours after it was built.
#[track_caller]
pub fn debox_binary() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();

    if let Some(path) = std::env::var_os("DEBOX_BIN") {
        return path.into();
    }
    if let Some(path) = FOUND.get() {
        return path.clone();
    }
    let own = std::env::current_exe().expect("a test program knows its own path");
    // target/PROFILE/deps/NAME of tests, target/PROFILE/NAME of programs
    let profile = own.parent().expect("cargo's layout");
    let is_test = profile.ends_with("deps");
    let target = profile.ancestors().nth(if is_test { 2 } else { 1 });
    let target = target.expect("cargo's layout");
    let (_, path) = ["release", "debug"]
        .iter()
        .map(|profile| target.join(profile).join("debox"))
        .filter_map(|path| Some((changed(&path)?, path)))
        .max()
        .unwrap_or_else(|| {
            panic!(
                "no debox in {}: build it first, or set DEBOX_BIN",
                target.display()
            )
        });
    let is_in_guest = std::env::var_os("DEBOX_TESTS_SLOWNESS").is_some();
    if let Some(source) = newer_source(&path, target).filter(|_| !is_in_guest) {
        panic!(
            "{} is older than {}: run `cargo build --release --workspace`, or set DEBOX_BIN to test it as it is",
            path.display(),
            source.display()
        );
    }
    FOUND.get_or_init(|| path).clone()
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// A source that was changed after a program was built from it. Cargo lists the sources beside the program.
fn newer_source(program: &Path, target: &Path) -> Option<PathBuf> {
    let built = changed(program)?;
    let list = fs::read_to_string(program.with_extension("d")).ok()?;
    let (_, sources) = list.split_once(": ")?;
    // Spaces in names are escaped.
    let sources = sources.replace("\\ ", "\0");
    let sources = sources
        .split_whitespace()
        .map(|source| PathBuf::from(source.replace('\0', " ")))
        .filter(|source| !source.starts_with(target));
    sources
        .flat_map(|source| files(&source))
        .find(|file| changed(file).is_some_and(|changed| changed > built))
}

/// A file, or all files in a directory.
fn files(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return vec![path.to_path_buf()];
    };
    let entries = entries.filter_map(|entry| Some(entry.ok()?.path()));
    entries.flat_map(|entry| files(&entry)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;
    use crate::Scratch;

    #[test]
    fn a_program_is_older_than_a_source_that_was_changed_since() {
        let scratch = Scratch::new();
        let target = scratch.file("target");
        let program = target.join("release/debox");
        let probes = scratch.file("a folder");
        for folder in [&target.join("release"), &target.join("out"), &probes] {
            fs::create_dir_all(folder).expect("a folder");
        }
        let now = SystemTime::now();
        let write = |path: &Path, ago: u64| {
            let file = File::create(path).expect("a file");
            let time = now - Duration::from_secs(ago);
            file.set_modified(time).expect("its time is set");
        };
        let (source, made, probe) = (
            scratch.file("main.rs"),
            target.join("out/made.rs"),
            probes.join("tap.h"),
        );
        write(&program, 100);
        write(&source, 200);
        write(&probe, 200);
        // What the build has made is no source.
        write(&made, 50);
        assert_eq!(newer_source(&program, &target), None, "without a list");
        let words = [&source, &made, &probes, &scratch.file("gone.rs")];
        let words = words.map(|path| path.display().to_string().replace(' ', "\\ "));
        let list = format!("{}: {}\n", program.display(), words.join(" "));
        fs::write(program.with_extension("d"), list).expect("the list");
        assert_eq!(newer_source(&program, &target), None);
        write(&probe, 50);
        assert_eq!(newer_source(&program, &target), Some(probe));
    }
}
