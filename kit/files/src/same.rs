//! Whether two names refer to the same file, considering hard links, symbolic links and relative
//! names.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{bail, Result};

/// The file that a name refers to, or would create.
#[derive(PartialEq, Eq)]
enum Place {
    There(u64, u64),
    /// The directory, and the name within it.
    New(u64, u64, OsString),
}

impl Place {
    /// `None` if there is no such file and none can be created.
    fn of(path: &Path) -> Option<Place> {
        if let Ok(found) = fs::metadata(path) {
            return Some(Place::There(found.dev(), found.ino()));
        }
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        let found = fs::metadata(parent.unwrap_or(Path::new("."))).ok()?;
        Some(Place::New(
            found.dev(),
            found.ino(),
            path.file_name()?.to_os_string(),
        ))
    }
}

/// Whether both names refer to the same file.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let place = Place::of(one);
    place.is_some() && place == Place::of(other)
}

/// Returns an error if the output is one of the input files.
pub fn refuse_inputs<'a>(output: &Path, inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    for input in inputs {
        if is_same(output, input) && !is_device(output) {
            bail!(
                "{} is one of the files that are read: name another file to write",
                output.display()
            );
        }
    }
    Ok(())
}

/// Returns an error if two outputs are the same file.
pub fn refuse_each_other(outputs: &[&Path]) -> Result<()> {
    for (at, output) in outputs.iter().enumerate() {
        if outputs[..at].iter().any(|other| is_same(output, other)) && !is_device(output) {
            bail!(
                "{} is named for two things that are written: name two files",
                output.display()
            );
        }
    }
    Ok(())
}

/// Devices and pipes, such as `/dev/null`, can take several outputs.
fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_all_its_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a"), "x").expect("a file");
        fs::write(at("b"), "x").expect("a file");
        fs::hard_link(at("a"), at("hard")).expect("a link");
        std::os::unix::fs::symlink("a", at("soft")).expect("a link");
        fs::create_dir(at("inner")).expect("a directory");
        for name in ["a", "hard", "soft", "inner/../a"] {
            assert!(refuse_inputs(&at(name), [at("a").as_path()]).is_err());
        }
        assert!(refuse_inputs(&at("b"), [at("a").as_path()]).is_ok());
        assert!(refuse_inputs(&at("new"), [at("a").as_path()]).is_ok());
        let (new, other) = (at("new"), at("inner/../new"));
        assert!(refuse_each_other(&[&new, &other]).is_err());
        assert!(refuse_each_other(&[&new, &at("newer")]).is_ok());
        let null = Path::new("/dev/null");
        assert!(refuse_each_other(&[null, null]).is_ok());
    }
}
