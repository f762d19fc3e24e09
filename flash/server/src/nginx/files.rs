// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a configuration: the first one, and what it includes.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{bail, Context, Result};

use super::syntax::{self, Directive};

/// Bytes of one file; files of a configuration; files that include each other.
const MOST_BYTES: u64 = 4 << 20;
const MOST_FILES: usize = 2000;
const MOST_DEPTH: usize = 16;

/// Reads a configuration with all that it includes. `directory`: where relative names begin.
///
/// # Errors
///
/// A file cannot be read, or nginx would refuse it; the error names file and line.
pub fn read(file: &Path, directory: &Path) -> Result<Vec<Directive>> {
    let mut files = 0;
    read_file(file, directory, &mut files, 0)
}

fn read_file(
    file: &Path,
    directory: &Path,
    files: &mut usize,
    depth: usize,
) -> Result<Vec<Directive>> {
    *files += 1;
    if *files > MOST_FILES || depth > MOST_DEPTH {
        bail!(
            "{}: too many files are included: does one include itself?",
            file.display()
        );
    }
    let name = || format!("cannot read {}", file.display());
    let about = std::fs::metadata(file).with_context(name)?;
    if !about.is_file() || about.len() > MOST_BYTES {
        let most = kit_units::bytes(MOST_BYTES);
        bail!("{} is no file of at most {most}", file.display());
    }
    let bytes = std::fs::read(file).with_context(name)?;
    // nginx takes any bytes; those that are no text are mostly in comments.
    let text = String::from_utf8_lossy(&bytes);
    let parsed = syntax::parse(&text, &Rc::from(file))
        .map_err(|wrong| anyhow::anyhow!("{}:{}: {}", file.display(), wrong.line, wrong.what))?;
    with_included(parsed, directory, files, depth)
}

fn with_included(
    all: Vec<Directive>,
    directory: &Path,
    files: &mut usize,
    depth: usize,
) -> Result<Vec<Directive>> {
    let mut found = Vec::new();
    for mut directive in all {
        if directive.name == "include" && directive.block.is_none() {
            for file in included(&directive, directory)? {
                let inside = read_file(&file, directory, files, depth + 1);
                found.extend(inside.with_context(|| format!("{}: included here", directive.at))?);
            }
            continue;
        }
        if let Some(block) = directive.block.take() {
            directive.block = Some(with_included(block, directory, files, depth)?);
        }
        found.push(directive);
    }
    Ok(found)
}

/// In the order of their names, as glob(3) has them.
fn included(directive: &Directive, directory: &Path) -> Result<Vec<PathBuf>> {
    let name = directive.word(0);
    let path = directory.join(name);
    if !name.contains(['*', '?', '[']) {
        return Ok(vec![path]);
    }
    let pattern = path.to_string_lossy();
    let options = glob::MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..glob::MatchOptions::default()
    };
    let paths = glob::glob_with(&pattern, options)
        .with_context(|| format!("{}: `{name}` is no pattern of names", directive.at))?;
    let paths: std::result::Result<Vec<PathBuf>, _> = paths.collect();
    paths.with_context(|| format!("{}: cannot list `{name}`", directive.at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_are_included_where_they_are_named() {
        let place = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("room");
            fs::write(path, text).expect("room");
        };
        write(
            "nginx.conf",
            "a; http { include sites/*; include types; } z;",
        );
        write("sites/2", "second;");
        write("sites/1", "first;");
        write("sites/.hidden", "hidden;");
        write("types", "third;");
        let read_it = |name: &str| read(&place.path().join(name), place.path());
        let all = read_it("nginx.conf").expect("it is right");
        let inside: Vec<&str> = all[1]
            .inside()
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(inside, ["first", "second", "third"]);
        let at = &all[1].inside()[2].at;
        assert!(at.file.ends_with("types") && at.line == 1);
        for (text, what) in [
            ("include none;", "cannot read"),
            ("include bad.conf;", "does one include itself?"),
            ("\na b", "bad.conf:2: "),
        ] {
            write("bad.conf", text);
            let error = format!("{:#}", read_it("bad.conf").expect_err(text));
            assert!(error.contains(what), "{error}");
        }
        write("bad.conf", "include no/*.conf;");
        assert_eq!(read_it("bad.conf").expect("none"), []);
    }
}
