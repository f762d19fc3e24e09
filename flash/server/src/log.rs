// SPDX-License-Identifier: MIT OR Apache-2.0
//! The access log: a loop hands a line over and never waits for the file.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{fence, AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use crossbeam_queue::ArrayQueue;
use rustix::event::{eventfd, EventfdFlags};
use rustix::io::{read, write};

use crate::sandbox;

mod appender;
mod entry;

use appender::Appender;
pub use entry::{Entry, Format};

/// Lines that wait to be written. One that finds no room is lost, and counted.
const ROOM: usize = 1 << 16;

/// A log with its thread.
pub struct LogFile {
    /// `None`: it is the standard error stream.
    pub path: Option<PathBuf>,
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

enum Out {
    File(Appender),
    /// The standard error stream, line by line.
    Messages,
}

impl Out {
    fn reopen(&mut self) {
        if let Out::File(file) = self {
            file.reopen();
        }
    }

    /// Takes a line, and returns how many were lost.
    fn put(&mut self, line: &str) -> u64 {
        match self {
            Out::File(file) => file.put(line),
            Out::Messages => {
                kit_console::say_error("flash", line.trim_end());
                0
            }
        }
    }

    fn flush(&mut self) -> u64 {
        match self {
            Out::File(file) => file.flush(),
            Out::Messages => 0,
        }
    }
}

pub struct Log {
    lines: ArrayQueue<String>,
    wakes: OwnedFd,
    /// The thread has found nothing left to write.
    sleeps: AtomicBool,
    reopens: AtomicBool,
    ends: AtomicBool,
    /// Lines that the file did not take, as on a full disk.
    pub unwritten: AtomicU64,
}

impl Log {
    /// Begins to write to the standard error stream.
    ///
    /// # Errors
    ///
    /// There is no descriptor or no thread left.
    pub fn start_messages(
        prepare: impl FnOnce() + Send + 'static,
    ) -> Result<(Arc<Log>, JoinHandle<()>)> {
        Log::start_with(Out::Messages, prepare)
    }

    /// Begins to write to the end of a file. `prepare` is called in the thread that does it.
    ///
    /// # Errors
    ///
    /// The file cannot be opened; the error names it.
    pub fn start(
        path: &Path,
        prepare: impl FnOnce() + Send + 'static,
    ) -> Result<(Arc<Log>, JoinHandle<()>)> {
        let file = Appender::open(path)?;
        Log::start_with(Out::File(file), prepare)
    }

    fn start_with(
        out: Out,
        prepare: impl FnOnce() + Send + 'static,
    ) -> Result<(Arc<Log>, JoinHandle<()>)> {
        let log = Arc::new(Log {
            lines: ArrayQueue::new(ROOM),
            wakes: eventfd(0, EventfdFlags::CLOEXEC).context("no descriptor for the log")?,
            sleeps: AtomicBool::new(false),
            reopens: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            unwritten: AtomicU64::new(0),
        });
        let writer = Arc::clone(&log);
        let thread = std::thread::Builder::new()
            .name("flash-log".to_string())
            .spawn(move || {
                prepare();
                writer.run(out);
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

    fn run(&self, mut out: Out) {
        loop {
            self.sleeps.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.lines.is_empty() {
                let _ = read(&self.wakes, &mut [0u8; 8]);
            }
            self.sleeps.store(false, Ordering::Relaxed);
            let ends = self.ends.load(Ordering::Relaxed);
            if self.reopens.swap(false, Ordering::Relaxed) {
                out.reopen();
            }
            while let Some(line) = self.lines.pop() {
                self.count_unwritten(out.put(&line));
            }
            self.count_unwritten(out.flush());
            if ends {
                return;
            }
        }
    }

    fn count_unwritten(&self, lines: u64) {
        self.unwritten.fetch_add(lines, Ordering::Relaxed);
    }
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
