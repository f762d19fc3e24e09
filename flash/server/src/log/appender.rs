// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file that lines are appended to.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Bytes that are written by one call.
const BATCH: usize = 64 << 10;

pub struct Appender {
    file: File,
    path: PathBuf,
    /// Whole lines that are not written yet.
    batch: Vec<u8>,
    /// The file ends in the middle of a line, because it did not take the rest.
    is_torn: bool,
    /// Lines that were lost since the file took all of a batch. The first and the last of such losses are reported.
    lost: u64,
}

impl Appender {
    /// # Errors
    ///
    /// The file cannot be opened; the error names it.
    pub fn open(path: &Path) -> Result<Appender> {
        Ok(Appender {
            file: open(path)?,
            path: path.to_path_buf(),
            batch: Vec::with_capacity(BATCH),
            is_torn: false,
            lost: 0,
        })
    }

    /// Opens the file again by its name. If that fails, the one that is open stays in use.
    pub fn reopen(&mut self) {
        match open(&self.path) {
            Ok(file) => {
                self.file = file;
                self.is_torn = false;
            }
            Err(error) => kit_console::say_error("flash", &format!("{error:#}")),
        }
    }

    /// Takes a line. If there is no room for it beside those before it, writes those and returns how many were lost.
    pub fn put(&mut self, line: &str) -> u64 {
        let lost = match self.batch.len() + line.len() > BATCH {
            true => self.flush(),
            false => 0,
        };
        self.batch.extend_from_slice(line.as_bytes());
        lost
    }

    /// Writes the lines that are there. Those that the file does not take are lost; returns how many.
    pub fn flush(&mut self) -> u64 {
        if self.batch.is_empty() {
            return 0;
        }
        let begins_with_end = self.is_torn;
        if begins_with_end {
            self.batch.insert(0, b'\n');
        }
        let (written, result) = write(&mut self.file, &self.batch);
        if written > 0 {
            self.is_torn = self.batch[written - 1] != b'\n';
        }
        let unwritten = self.batch[written..].iter();
        let mut lost = unwritten.filter(|byte| **byte == b'\n').count() as u64;
        if written == 0 && begins_with_end {
            // It ends no line of this batch.
            lost -= 1;
        }
        self.batch.clear();
        self.report(result, lost);
        lost
    }

    fn report(&mut self, result: io::Result<()>, lost: u64) {
        let path = self.path.display();
        let text = match (result, self.lost) {
            (Ok(()), 0) => return,
            (Ok(()), all) => format!("can write to {path} again; {all} lines were lost"),
            (Err(error), 0) => format!("cannot write to {path}, and lines are lost: {error}"),
            (Err(_), _) => {
                self.lost += lost;
                return;
            }
        };
        self.lost = lost;
        kit_console::say_error("flash", &text);
    }
}

/// Writes as much as possible, and returns how much that was.
fn write(file: &mut File, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut at = 0;
    while at < bytes.len() {
        match file.write(&bytes[at..]) {
            Ok(0) => return (at, Err(ErrorKind::WriteZero.into())),
            Ok(length) => at += length,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (at, Err(error)),
        }
    }
    (at, Ok(()))
}

fn open(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.with_context(|| format!("cannot open the access log {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_full_disk_does_not_take_is_counted() {
        let place = tempfile::tempdir().expect("a directory");
        let mut log = Appender::open(Path::new("/dev/full")).expect("a device");
        for _ in 0..3 {
            assert_eq!(log.put("a line\n"), 0);
        }
        assert_eq!(log.flush(), 3);
        assert_eq!((log.flush(), log.lost), (0, 3));
        log.path = place.path().join("log");
        log.reopen();
        log.put("another\n");
        assert_eq!((log.flush(), log.lost), (0, 0));
        let text = std::fs::read_to_string(&log.path).expect("a log");
        assert_eq!(text, "another\n");
    }

    #[test]
    fn a_line_that_was_cut_does_not_run_into_the_next_one() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("log");
        std::fs::write(&path, "whole\nhal").expect("room");
        let mut log = Appender::open(&path).expect("it can be written");
        log.is_torn = true;
        log.put("next\n");
        assert_eq!((log.flush(), log.is_torn), (0, false));
        let text = std::fs::read_to_string(&path).expect("a log");
        assert_eq!(text, "whole\nhal\nnext\n");
        // The line end that it gets is not counted as a line.
        log.file = open(Path::new("/dev/full")).expect("a device");
        log.is_torn = true;
        log.put("next\n");
        assert_eq!((log.flush(), log.is_torn), (1, true));
    }
}
