//! The access log: a loop hands a line over and never waits for the file.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use crossbeam_queue::ArrayQueue;
use rustix::event::{eventfd, EventfdFlags};
use rustix::io::{read, write};

use crate::sandbox;

mod entry;
pub use entry::{Entry, Format};

/// Lines that wait to be written. One that finds no room is lost, and counted.
const ROOM: usize = 1 << 16;

/// A log with its thread.
pub struct LogFile {
    pub path: PathBuf,
    pub log: Arc<Log>,
    pub thread: JoinHandle<()>,
    /// What is in force in its thread.
    pub sandbox: sandbox::Status,
}

impl LogFile {
    /// Has the thread write what is there, and waits for it.
    pub fn end(self) {
        self.log.end();
        let _ = self.thread.join();
    }
}

pub struct Log {
    lines: ArrayQueue<String>,
    wakes: OwnedFd,
    /// The thread has found nothing left to write.
    sleeps: AtomicBool,
    reopens: AtomicBool,
    ends: AtomicBool,
}

impl Log {
    /// Begins to write to the end of a file. `prepare` is called in the thread that does it.
    ///
    /// # Errors
    ///
    /// The file cannot be opened; the error names it.
    pub fn start(
        path: &Path,
        prepare: impl FnOnce() + Send + 'static,
    ) -> Result<(Arc<Log>, JoinHandle<()>)> {
        let file = open(path)?;
        let log = Arc::new(Log {
            lines: ArrayQueue::new(ROOM),
            wakes: eventfd(0, EventfdFlags::CLOEXEC).context("no descriptor for the log")?,
            sleeps: AtomicBool::new(false),
            reopens: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        });
        let (writer, path) = (Arc::clone(&log), path.to_path_buf());
        let thread = std::thread::Builder::new()
            .name("flash-log".to_string())
            .spawn(move || {
                prepare();
                writer.run(file, &path);
            })
            .context("no thread for the log")?;
        Ok((log, thread))
    }

    /// False: there was no room for the line.
    pub fn put(&self, line: String) -> bool {
        let fits = self.lines.push(line).is_ok();
        // With the fence of the thread: either it sees the line, or it is seen here to sleep.
        fence(Ordering::SeqCst);
        if self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::Relaxed) {
            self.wake();
        }
        fits
    }

    /// Opens the file again by its name, as after a rotation.
    pub fn reopen(&self) {
        self.reopens.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Has the thread write what is there and end.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        self.wake();
    }

    fn wake(&self) {
        let _ = write(&self.wakes, &1u64.to_ne_bytes());
    }

    fn run(&self, file: File, path: &Path) {
        let mut out = BufWriter::with_capacity(64 << 10, file);
        loop {
            self.sleeps.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.lines.is_empty() {
                let _ = read(&self.wakes, &mut [0u8; 8]);
            }
            self.sleeps.store(false, Ordering::Relaxed);
            let ends = self.ends.load(Ordering::Relaxed);
            if self.reopens.swap(false, Ordering::Relaxed) {
                let _ = out.flush();
                match open(path) {
                    Ok(file) => out = BufWriter::with_capacity(64 << 10, file),
                    Err(error) => kit_console::say_error("flash", &format!("{error:#}")),
                }
            }
            let mut failed = None;
            while let Some(line) = self.lines.pop() {
                failed = out.write_all(line.as_bytes()).err().or(failed);
            }
            failed = out.flush().err().or(failed);
            if let Some(error) = failed {
                let text = format!("cannot write to {}: {error}", path.display());
                kit_console::say_error("flash", &text);
            }
            if ends {
                return;
            }
        }
    }
}

fn open(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.with_context(|| format!("cannot open the access log {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_written_to_its_end_and_opened_again() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("log");
        let (log, thread) = Log::start(&path, || {}).expect("it can be written");
        assert!(log.put("one\n".to_string()));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while std::fs::read_to_string(&path).expect("it is there") != "one\n" {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
        std::fs::rename(&path, place.path().join("old")).expect("a name");
        log.reopen();
        assert!(log.put("two\n".to_string()));
        log.end();
        thread.join().expect("no panic");
        let both = ["old", "log"].map(|name| std::fs::read_to_string(place.path().join(name)));
        assert_eq!(
            both.map(|text| text.unwrap_or_default()).concat(),
            "one\ntwo\n"
        );
    }
}
