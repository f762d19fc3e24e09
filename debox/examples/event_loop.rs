//! An event loop that notices its own slow calls, and stops making them.
//!
//! Requests come through a pipe: each names one of two files, of which one has to be fetched from
//! the disk every time. The loop reads files itself, as long as that does not block it. After each
//! call it looks at the call's record; a file whose read slept for more than a millisecond goes to
//! a helper thread from then on.
//!
//! ```text
//! event_loop [--tap kernel|user] [DIRECTORY]
//! ```
//!
//! The directory is to be on a real disk; default: the current one. With `--tap user` the program takes
//! the stamps itself: only calls made inside [`inband::tap`] have records, and they cost less.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use debox::{inband, Tap};

const LENGTH: usize = 8 << 20;
const REQUESTS: usize = 12;
const TOO_LONG_NS: u64 = 1_000_000;
const NAMES: [&str; 2] = ["warm", "cold"];
const COLD: usize = 1;
const USAGE: &str = "usage: event_loop [--tap kernel|user] [DIRECTORY]

A loop that reads two files, one of them from the disk each time, and hands the
slow one to a helper when it sees that the call slept. DIRECTORY: where the files
are made, on a real disk; default: the current one.";

/// What the command line asks for; `None` if it is not understood.
fn parse(mut arguments: impl Iterator<Item = String>) -> Option<(Option<Tap>, PathBuf)> {
    let (mut tap, mut directory) = (None, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--help" => {
                println!("{USAGE}");
                std::process::exit(0);
            }
            "--tap" => {
                tap = match arguments.next()?.as_str() {
                    "kernel" => Some(Tap::Kernel),
                    "user" => Some(Tap::User),
                    _ => return None,
                }
            }
            _ if argument.starts_with('-') || directory.is_some() => return None,
            _ => directory = Some(PathBuf::from(argument)),
        }
    }
    Some((tap, directory.unwrap_or_else(|| ".".into())))
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some((tap, directory)) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        std::process::exit(2);
    };
    let open = |name| make_file(&directory, name).map(Arc::new);
    let files = [open(NAMES[0])?, open(NAMES[1])?];
    let (requests, client) = io::pipe()?;
    let (jobs, helper) = io::pipe()?;
    let (answers, answer) = io::pipe()?;

    inband::enable(&inband::Options {
        tap,
        ..inband::Options::default()
    })?;
    let helping = thread::spawn({
        let files = files.clone();
        move || help(&files, jobs, answer)
    });
    let asking = thread::spawn({
        let cold = Arc::clone(&files[COLD]);
        move || ask(&cold, client)
    });
    let event_loop = Loop {
        files,
        blocks: [false; 2],
        requests,
        helper,
        answers,
        longest_ns: 0,
        buffer: vec![0; LENGTH],
    };
    event_loop.run()?;
    asking.join().expect("the client does not panic")?;
    helping.join().expect("the helper does not panic")?;
    inband::disable()?;
    Ok(())
}

struct Loop {
    files: [Arc<File>; 2],
    /// What the loop has found out.
    blocks: [bool; 2],
    requests: PipeReader,
    helper: PipeWriter,
    answers: PipeReader,
    longest_ns: u64,
    buffer: Vec<u8>,
}

impl Loop {
    fn run(mut self) -> Result<(), Box<dyn Error>> {
        let mut sources = [
            libc::pollfd {
                fd: self.requests.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            },
            libc::pollfd {
                fd: self.answers.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            },
        ];
        let mut answered = 0;
        while answered < REQUESTS {
            let arguments = [sources.as_ptr() as u64, 2, u64::MAX];
            let ready = inband::tap(libc::SYS_poll, arguments, || {
                // SAFETY: the array is valid for its length.
                unsafe { libc::poll(sources.as_mut_ptr(), 2, -1) }
            });
            if ready < 1 {
                continue;
            }
            let mut index = [0];
            if sources[1].revents != 0 {
                read_byte(&mut self.answers, &mut index)?;
                self.was_slow("an answer")?;
                println!("{}: answered by the helper", NAMES[usize::from(index[0])]);
                answered += 1;
                continue;
            }
            read_byte(&mut self.requests, &mut index)?;
            self.was_slow("a request")?;
            let index = usize::from(index[0]);
            answered += usize::from(!self.blocks[index]);
            self.serve(index)?;
            if index == COLD && answered == 2 {
                let longest_ms = self.longest_ns as f64 / 1e6;
                println!("the loop was blocked for up to {longest_ms:.2} ms; from here on:");
                self.longest_ns = 0;
            }
        }
        println!(
            "the loop was blocked for up to {:.2} ms",
            self.longest_ns as f64 / 1e6
        );
        Ok(())
    }

    fn serve(&mut self, index: usize) -> Result<(), Box<dyn Error>> {
        let name = NAMES[index];
        if self.blocks[index] {
            let job = [index as u8];
            let arguments = [self.helper.as_raw_fd() as u64, job.as_ptr() as u64, 1];
            inband::tap(libc::SYS_write, arguments, || self.helper.write(&job))?;
            self.was_slow("the job queue")?;
            println!("{name}: given to the helper");
            return Ok(());
        }
        let fd = self.files[index].as_raw_fd() as u64;
        let arguments = [fd, self.buffer.as_ptr() as u64, LENGTH as u64];
        let read = inband::tap(libc::SYS_pread64, arguments, || {
            self.files[index].read_at(&mut self.buffer, 0)
        })?;
        assert_eq!(read, LENGTH, "a short read");
        self.blocks[index] = self.was_slow(name)?;
        let then = if self.blocks[index] {
            "; the helper will do it next time"
        } else {
            ""
        };
        println!("{name}: read in the loop{then}");
        Ok(())
    }

    /// Called after each call of the loop but the one that waits for work.
    fn was_slow(&mut self, what: &str) -> Result<bool, inband::Error> {
        let Some(last) = inband::last() else {
            return Ok(false);
        };
        let blocked_ns = last.budget().blocked_ns;
        self.longest_ns = self.longest_ns.max(blocked_ns);
        if blocked_ns <= TOO_LONG_NS {
            return Ok(false);
        }
        let record = last.copy();
        println!(
            "  {} of {what} took {:.1} ms, {:.1} of them asleep:",
            record.call_name(),
            record.wall_ns as f64 / 1e6,
            blocked_ns as f64 / 1e6
        );
        for (index, sleep) in record.sleeps().iter().enumerate() {
            let why = inband::explain(&record, index)?;
            println!("    {} x {} ({})", sleep.count, why.label, why.site());
        }
        Ok(true)
    }
}

/// A read with a record under either tap.
fn read_byte(from: &mut PipeReader, byte: &mut [u8; 1]) -> io::Result<()> {
    let arguments = [from.as_raw_fd() as u64, byte.as_ptr() as u64, 1];
    let read = inband::tap(libc::SYS_read, arguments, || from.read(byte))?;
    assert_eq!(read, 1, "an end of the pipe");
    Ok(())
}

fn help(files: &[Arc<File>; 2], mut jobs: PipeReader, mut answers: PipeWriter) -> io::Result<()> {
    let mut buffer = vec![0; LENGTH];
    let mut index = [0];
    while jobs.read(&mut index)? == 1 {
        files[usize::from(index[0])].read_exact_at(&mut buffer, 0)?;
        answers.write_all(&index)?;
    }
    Ok(())
}

fn ask(cold: &File, mut requests: PipeWriter) -> io::Result<()> {
    for i in 0..REQUESTS {
        if i % 2 == COLD {
            // SAFETY: the descriptor is open; the call touches no memory of ours.
            unsafe { libc::posix_fadvise(cold.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        }
        requests.write_all(&[(i % 2) as u8])?;
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn make_file(directory: &Path, name: &str) -> io::Result<File> {
    let path = directory.join(format!("event_loop.{}.{name}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    fs::remove_file(&path)?;
    file.write_all_at(&vec![1; LENGTH], 0)?;
    file.sync_all()?;
    Ok(file)
}
