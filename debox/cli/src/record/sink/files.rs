//! Names of a recording's files. The file that the user named replaces an older one. Every other file
//! is newly created, without following links.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context, Result};
use debox_history::{tail_of, Meta, Summary};
use kit_files::output::{self, Output};

use crate::options::Record;

/// How many numbers are tried if names are taken.
const NUMBERS_MAX: u32 = 100_000;

pub struct Files {
    pattern: PathBuf,
    rotates: bool,
    keep: Option<usize>,
    /// The next number for `{part}`.
    number: u32,
    made: Vec<Made>,
}

/// A file that this recording made.
struct Made {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Files {
    pub fn new(arguments: &Record) -> Files {
        let output = &arguments.output;
        let rotates = arguments.rotate_size.is_some() || arguments.rotate_time.is_some();
        Files {
            pattern: pattern(output, rotates),
            rotates,
            keep: arguments.keep_files.map(|files| files as usize),
            number: 0,
            made: Vec::new(),
        }
    }

    pub fn names(&self) -> Vec<String> {
        let made = self.made.iter();
        made.map(|made| made.path.display().to_string()).collect()
    }

    /// Creates the file that the user named, or the first of several.
    pub fn first(&mut self, meta: &Meta) -> Result<(File, PathBuf)> {
        if self.rotates {
            return self.next(meta);
        }
        let path = expand(&self.pattern, meta, 0);
        make_directory(&path)?;
        let file = output::create_in_place(&path)?;
        // The tail's rows belong to an older recording.
        match fs::remove_file(tail_of(&path)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error)
                    .with_context(|| format!("cannot remove {}", tail_of(&path).display()));
            }
            _ => {}
        }
        self.number = 1;
        self.add(&file, &path)?;
        Ok((file, path))
    }

    /// Creates the next file. Names that are taken are skipped.
    pub fn next(&mut self, meta: &Meta) -> Result<(File, PathBuf)> {
        let named = expand(&self.pattern, meta, self.number);
        make_directory(&named)?;
        let has_number = self.has_number();
        let from = match has_number || !self.is_made(&named) {
            true => self.number,
            false => self.number.max(1),
        };
        let name = |number: u32| match has_number {
            true => expand(&self.pattern, meta, number),
            false if number == from && !self.is_made(&named) => named.clone(),
            false => numbered(&named, number.max(1)),
        };
        // An existing tail belongs to another recording.
        let is_free = |path: &Path| fs::symlink_metadata(tail_of(path)).is_err();
        let (file, path, number) = output::create_numbered(from, name, is_free)?;
        self.number = number + 1;
        self.add(&file, &path)?;
        Ok((file, path))
    }

    fn has_number(&self) -> bool {
        self.pattern.to_string_lossy().contains("{part}")
    }

    fn is_made(&self, path: &Path) -> bool {
        self.made.iter().any(|made| made.path == path)
    }

    fn add(&mut self, file: &File, path: &Path) -> Result<()> {
        let found = file
            .metadata()
            .with_context(|| format!("cannot write {}", path.display()))?;
        self.made.push(Made {
            path: path.to_path_buf(),
            device: found.dev(),
            inode: found.ino(),
        });
        Ok(())
    }

    /// Removes the last file, which could not be started.
    pub fn forget_last(&mut self) {
        if let Some(made) = self.made.pop() {
            if made.is_there() {
                let _ = fs::remove_file(&made.path);
            }
        }
    }

    /// Removes the oldest files beyond the limit. Returns messages about those that it could not
    /// remove.
    pub fn remove_oldest(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        while self.keep.is_some_and(|most| self.made.len() > most) {
            let oldest = self.made.remove(0);
            let path = oldest.path.display();
            if !oldest.is_there() {
                left.push(format!(
                    "{path} is no longer the file that was written: it is not removed"
                ));
            } else if let Err(error) = fs::remove_file(&oldest.path) {
                left.push(format!("cannot remove {path}: {error}"));
            }
        }
        left
    }

    /// Writes to a temporary file, which replaces the target once it is complete.
    pub fn write_flight(
        &self,
        flights: u32,
        meta: &Meta,
        write: impl FnOnce(File, &Path) -> Result<Summary>,
    ) -> Result<(PathBuf, Summary)> {
        let named = expand(&self.pattern, meta, flights);
        make_directory(&named)?;
        let name = |number: u32| match self.has_number() {
            true => expand(&self.pattern, meta, number),
            false if number == 0 => named.clone(),
            false => numbered(&named, number),
        };
        let is_taken = |path: &Path| fs::symlink_metadata(path).is_ok();
        let may_replace = flights == 0;
        let mut numbers = flights..flights.saturating_add(NUMBERS_MAX);
        let path = match may_replace {
            true => named.clone(),
            false => numbers
                .find(|number| !is_taken(&name(*number)))
                .map(name)
                .with_context(|| format!("all numbers of {} are taken", named.display()))?,
        };
        let found = fs::metadata(&path);
        ensure!(
            found.map_or(true, |found| found.is_file()),
            "{} is no regular file: name one to write",
            path.display()
        );
        let output = Output::create(&path)?;
        let clone = output
            .file()
            .try_clone()
            .with_context(|| format!("cannot write {}", path.display()))?;
        let summary = write(clone, &path)?;
        match may_replace {
            true => output.commit()?,
            false => output.commit_new()?,
        }
        Ok((path, summary))
    }
}

impl Made {
    fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode))
    }
}

/// The file's name, with a placeholder for the number if there are several files.
fn pattern(output: &Path, rotates: bool) -> PathBuf {
    if !rotates || output.to_string_lossy().contains("{part}") {
        return output.to_path_buf();
    }
    let stem = output.file_stem().unwrap_or_default().to_string_lossy();
    let end = output.extension().unwrap_or_default().to_string_lossy();
    output.with_file_name(format!("{stem}-{{part}}.{end}"))
}

fn expand(pattern: &Path, meta: &Meta, part: u32) -> PathBuf {
    let hour = jiff::Timestamp::now().strftime("%Y-%m-%dT%H").to_string();
    let text = pattern.to_string_lossy();
    let text = text
        .replace("{host}", &meta.host)
        .replace("{hour}", &hour)
        .replace("{part}", &format!("{part:04}"));
    PathBuf::from(text)
}

/// `last.parquet` becomes `last-1.parquet`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let end = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{number}.{end}"))
}

fn make_directory(path: &Path) -> Result<()> {
    let directory = output::directory_of(path);
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_numbers() {
        assert_eq!(
            numbered(Path::new("/a/last.parquet"), 2),
            Path::new("/a/last-2.parquet")
        );
    }

    fn files(directory: &Path, name: &str, rotates: bool, keep: Option<usize>) -> Files {
        Files {
            pattern: pattern(&directory.join(name), rotates),
            rotates,
            keep,
            number: 0,
            made: Vec::new(),
        }
    }

    #[test]
    fn what_this_recording_did_not_make_is_not_written_to_and_not_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::write(at("victim"), "theirs").expect("a file");
        std::os::unix::fs::symlink("victim", at("a-0000.parquet")).expect("a link");
        std::os::unix::fs::symlink("none", at("a-0001.parquet.tail")).expect("a link");
        let mut files = files(directory.path(), "a.parquet", true, Some(1));
        let meta = Meta::default();
        let (_, path) = files.first(&meta).expect("a file");
        assert_eq!(path, at("a-0002.parquet"));
        // Another process has put a file in its place.
        fs::rename(at("victim"), &path).expect("a file");
        let (_, second) = files.next(&meta).expect("a file");
        assert_eq!(second, at("a-0003.parquet"));
        let said = files.remove_oldest();
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "theirs");
        files.next(&meta).expect("a file");
        assert_eq!(files.remove_oldest(), [""; 0]);
        assert!(!second.exists());
    }

    #[test]
    fn the_file_that_was_named_is_written_and_more_have_numbers() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        for name in ["a.parquet", "a.parquet.tail", "a-1.parquet"] {
            fs::write(at(name), "old").expect("a file");
        }
        let mut files = files(directory.path(), "a.parquet", false, None);
        let meta = Meta::default();
        let (_, first) = files.first(&meta).expect("a file");
        assert_eq!(first, at("a.parquet"));
        assert!(!at("a.parquet.tail").exists());
        let (_, second) = files.next(&meta).expect("a file");
        assert_eq!(second, at("a-2.parquet"));
        assert_eq!(
            fs::read_to_string(at("a-1.parquet")).expect("a file"),
            "old"
        );
    }
}
