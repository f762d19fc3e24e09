//! The file set on disk.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};

use super::{files_of, File, FileSet};
use crate::{signals, sys, units};

/// A file beside the directories that describes them.
pub const MANIFEST: &str = "fileset.json";
const SCHEMA: &str = "latlab.fileset/1";

/// Content of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub schema: String,
    #[serde(flatten)]
    pub set: FileSet,
    /// False while files are missing.
    pub complete: bool,
}

/// What `create` did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Created {
    pub written: u64,
    pub bytes: u64,
    /// Files that existed before.
    pub kept: u64,
}

/// Writes the missing files of the set. A set of the same seed can grow, and an interrupted one can be
/// continued. `progress` gets the number of bytes that exist so far.
pub fn create(root: &Path, set: FileSet, mut progress: impl FnMut(u64)) -> Result<Created> {
    fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))?;
    let mut set = set;
    if let Some(old) = read(root)? {
        ensure!(
            old.set.seed == set.seed,
            "{} has a file set of another seed ({}, not {}): name that seed, or another directory",
            root.display(),
            old.set.seed,
            set.seed
        );
        set.directories = set.directories.max(old.set.directories);
    } else if fs::read_dir(root)?.next().is_some() {
        bail!(
            "{} is not empty and is no file set: name another directory",
            root.display()
        );
    }
    write_manifest(root, set, false)?;
    let mut created = Created::default();
    let mut there = 0;
    let mut checked_space = false;
    for directory in 0..set.directories {
        signals::check()?;
        for file in files_of(directory) {
            let path = root.join(file.path());
            // A file gets its name only when it is complete.
            if fs::metadata(&path).is_ok_and(|found| found.len() == file.size()) {
                created.kept += 1;
            } else {
                if !checked_space {
                    check_space(root, set.bytes() - there)?;
                    checked_space = true;
                }
                if file.class == 0 && file.number == 1 || !path.parent().is_some_and(Path::exists) {
                    make_directory(&path)?;
                }
                write(&path, set, file).with_context(|| {
                    format!(
                        "cannot write {}; what is there so far is kept, and the same command goes on with it",
                        path.display()
                    )
                })?;
                created.written += 1;
                created.bytes += file.size();
            }
            there += file.size();
            progress(there);
        }
    }
    write_manifest(root, set, true)?;
    Ok(created)
}

/// Loads the existing set, which must be complete.
pub fn load(root: &Path) -> Result<FileSet> {
    let manifest = read(root)?.with_context(|| {
        format!(
            "{} is no file set: make one with `latlab fileset create {0}`",
            root.display()
        )
    })?;
    ensure!(
        manifest.complete,
        "the file set in {} is not complete: go on with `latlab fileset create {0}`",
        root.display()
    );
    Ok(manifest.set)
}

fn read(root: &Path) -> Result<Option<Manifest>> {
    let path = root.join(MANIFEST);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let manifest: Manifest = serde_json::from_str(&text)
        .with_context(|| format!("{} is not what latlab wrote", path.display()))?;
    ensure!(
        manifest.schema == SCHEMA
            && (1..=super::MAX_DIRECTORIES).contains(&manifest.set.directories),
        "{} is of another version of latlab",
        path.display()
    );
    Ok(Some(manifest))
}

fn write_manifest(root: &Path, set: FileSet, complete: bool) -> Result<()> {
    let manifest = Manifest {
        schema: SCHEMA.to_string(),
        set,
        complete,
    };
    let path = root.join(MANIFEST);
    let write = || -> Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(root)?;
        serde_json::to_writer_pretty(&mut file, &manifest)?;
        writeln!(file)?;
        readable(file.as_file())?;
        file.persist(&path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Temporary files are readable only for their owner, but servers run as other users.
fn readable(file: &fs::File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

fn make_directory(file: &Path) -> Result<()> {
    let directory = file.parent().context("a file is in a directory")?;
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))
}

/// Fails before the disk is filled.
fn check_space(root: &Path, needed: u64) -> Result<()> {
    let free = sys::free_space(root)
        .with_context(|| format!("cannot ask for the free space at {}", root.display()))?;
    ensure!(
        free > needed,
        "no space for the file set at {}: it needs {} more, and there are {} free",
        root.display(),
        units::bytes(needed),
        units::bytes(free)
    );
    Ok(())
}

fn write(path: &Path, set: FileSet, file: File) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    let done = write_to(&unfinished, set, file).and_then(|()| fs::rename(&unfinished, path));
    if done.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&unfinished);
    }
    done
}

fn write_to(path: &PathBuf, set: FileSet, file: File) -> io::Result<()> {
    let out = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    let mut out = BufWriter::new(out);
    let key = set.key(file);
    let mut buffer = [0; 8192];
    let mut at = 0;
    while at < file.size() {
        let length = (file.size() - at).min(buffer.len() as u64) as usize;
        key.fill(at, &mut buffer[..length]);
        out.write_all(&buffer[..length])?;
        at += length as u64;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: FileSet = FileSet {
        seed: 7,
        directories: 2,
    };

    #[test]
    fn a_set_is_written_once_and_goes_on_where_it_was() {
        let root = tempfile::tempdir().unwrap();
        let mut seen = 0;
        let created = create(root.path(), SET, |bytes| seen = bytes).unwrap();
        assert_eq!((created.written, created.kept), (72, 0));
        assert_eq!((created.bytes, seen), (SET.bytes(), SET.bytes()));
        assert_eq!(load(root.path()).unwrap(), SET);

        let file = File::from_index(40);
        let path = root.path().join(file.path());
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, file.size());
        assert!(SET.key(file).matches(0, &bytes));

        fs::remove_file(&path).unwrap();
        fs::write(root.path().join(File::from_index(5).path()), "short").unwrap();
        let again = create(root.path(), SET, |_| ()).unwrap();
        assert_eq!((again.written, again.kept), (2, 70));
        assert_eq!(fs::read(&path).unwrap(), bytes);

        let larger = FileSet {
            directories: 3,
            ..SET
        };
        let grown = create(root.path(), larger, |_| ()).unwrap();
        assert_eq!((grown.written, grown.kept), (36, 72));
        // A smaller set is part of a larger one.
        let smaller = create(root.path(), SET, |_| ()).unwrap();
        assert_eq!((smaller.written, smaller.kept), (0, 108));
        assert_eq!(load(root.path()).unwrap(), larger);
    }

    #[test]
    fn what_is_no_set_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("letter"), "dear").unwrap();
        let refused = create(root.path(), SET, |_| ()).unwrap_err();
        assert!(refused.to_string().contains("is not empty"), "{refused}");
        assert!(load(root.path())
            .unwrap_err()
            .to_string()
            .contains("no file set"));
        fs::write(root.path().join(MANIFEST), "{}").unwrap();
        assert!(create(root.path(), SET, |_| ()).is_err());
    }

    #[test]
    fn another_seed_is_another_set() {
        let root = tempfile::tempdir().unwrap();
        let one = FileSet {
            directories: 1,
            ..SET
        };
        create(root.path(), one, |_| ()).unwrap();
        let refused = create(root.path(), FileSet { seed: 8, ..one }, |_| ()).unwrap_err();
        assert!(refused.to_string().contains("another seed"), "{refused}");
    }

    #[test]
    fn a_set_that_does_not_fit_is_refused_before_it_is_written() {
        let root = tempfile::tempdir().unwrap();
        let huge = FileSet {
            seed: 1,
            directories: super::super::MAX_DIRECTORIES,
        };
        if sys::free_space(root.path()).unwrap() > huge.bytes() {
            return;
        }
        let refused = create(root.path(), huge, |_| ()).unwrap_err();
        assert!(refused.to_string().contains("no space"), "{refused}");
        assert!(!root.path().join("dir00000").exists());
    }
}
