//! The broker's log about its clients, on standard error, which is the journal under systemd.
//!
//! There is one line for each event. A user who is refused again and again cannot fill the journal: after
//! a few lines, further lines are only counted. A client's own data is never written, only its identity
//! according to the kernel, and the broker's reasons. No client has to wait if the journal accepts
//! nothing.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

/// Lines of one user at once; after that, one line per interval.
const AT_ONCE: u32 = 5;
const BETWEEN: Duration = Duration::from_secs(10);
/// Users whose lines are counted one by one.
const USERS_MAX: usize = 1024;
/// The longest line. A line is written as a whole or not at all.
const LINE_MAX: usize = 400;

pub struct Log {
    /// The prefix that marks a line as a warning for the journal.
    prefix: &'static str,
    users: Mutex<HashMap<u32, Said>>,
}

struct Said {
    lines: u32,
    last: Instant,
    left_out: u64,
}

impl Log {
    pub fn of_standard_error() -> Log {
        let stream = std::env::var("JOURNAL_STREAM").ok();
        let is_journal = stream.is_some_and(|text| is_stream(&text, standard_error().as_fd()));
        Log {
            prefix: if is_journal { "<4>" } else { "" },
            users: Mutex::default(),
        }
    }

    fn users(&self) -> MutexGuard<'_, HashMap<u32, Said>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs that a user's process was refused something.
    pub fn refused(&self, user: u32, process: u32, why: &str) {
        if let Some(left_out) = self.may_say(user, Instant::now()) {
            let event = format!("refused user {user}, process {process}: {why}");
            write(&self.line(&event, left_out));
        }
    }

    /// Logs how many lines were left out of users who have been quiet since, and drops their entries.
    pub fn settle(&self, now: Instant) {
        let mut lines = Vec::new();
        self.users().retain(|user, said| {
            let is_quiet = now.saturating_duration_since(said.last) >= BETWEEN;
            if is_quiet && said.left_out > 0 {
                lines.push((*user, said.left_out));
            }
            !is_quiet
        });
        for (user, left_out) in lines {
            write(&self.line(&format!("refused user {user}"), left_out));
        }
    }

    /// Whether a line may be written, and how many lines of this user were left out before it.
    fn may_say(&self, user: u32, now: Instant) -> Option<u64> {
        let mut users = self.users();
        if users.len() >= USERS_MAX && !users.contains_key(&user) {
            return None;
        }
        let said = users.entry(user).or_insert(Said {
            lines: 0,
            last: now,
            left_out: 0,
        });
        let is_quiet = now.saturating_duration_since(said.last) >= BETWEEN;
        if said.lines >= AT_ONCE && !is_quiet {
            said.left_out += 1;
            return None;
        }
        (said.lines, said.last) = (said.lines + 1, now);
        Some(std::mem::take(&mut said.left_out))
    }

    fn line(&self, event: &str, left_out: u64) -> String {
        let more = match left_out {
            0 => String::new(),
            _ => format!(" ({left_out} more such lines were left out)"),
        };
        let shown = |c: char| {
            if c == ' ' || c.is_ascii_graphic() {
                c
            } else {
                '?'
            }
        };
        let text: String = format!("debox broker: {event}")
            .chars()
            .map(shown)
            .collect();
        let room = LINE_MAX - more.len() - self.prefix.len() - 1;
        let text = &text[..text.len().min(room)];
        format!("{}{text}{more}\n", self.prefix)
    }
}

/// Whether `JOURNAL_STREAM` has the device and inode of this descriptor.
fn is_stream(text: &str, fd: BorrowedFd) -> bool {
    let Ok(status) = nix::sys::stat::fstat(fd) else {
        return false;
    };
    text == format!("{}:{}", status.st_dev, status.st_ino)
}

/// For its descriptor: only the broker's own text is written to it, without waiting.
#[allow(clippy::disallowed_methods)]
fn standard_error() -> std::io::Stderr {
    std::io::stderr()
}

/// A line that cannot be written at once is lost.
fn write(line: &str) {
    let error = standard_error();
    let mut polled = [PollFd::new(error.as_fd(), PollFlags::POLLOUT)];
    let is_polled = poll(&mut polled, PollTimeout::ZERO) == Ok(1);
    if is_polled && polled[0].revents() == Some(PollFlags::POLLOUT) {
        // SAFETY: the line has that length. The result does not matter.
        unsafe { libc::write(error.as_raw_fd(), line.as_ptr().cast(), line.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Log {
        Log {
            prefix: "<4>",
            users: Mutex::default(),
        }
    }

    #[test]
    fn a_flood_is_a_few_lines_and_a_count() {
        let log = log();
        let start = Instant::now();
        let said = (0..1000).filter(|_| log.may_say(7, start).is_some());
        assert_eq!(said.count(), AT_ONCE as usize);
        assert_eq!(log.may_say(8, start), Some(0));
        assert_eq!(
            log.may_say(7, start + BETWEEN),
            Some(1000 - u64::from(AT_ONCE))
        );
        assert_eq!(log.may_say(7, start + BETWEEN), None);
        log.settle(start + BETWEEN * 2);
        assert!(log.users().is_empty());
        let said = (0..5000).filter(|user| log.may_say(*user, start).is_some());
        assert_eq!(said.count(), USERS_MAX);
    }

    #[test]
    fn a_line_is_one_line_of_plain_text() {
        let line = log().line("refused user 7: \u{1b}[31m\n<0>\u{202e}é", 0);
        assert_eq!(line, "<4>debox broker: refused user 7: ?[31m?<0>??\n");
        let line = log().line(&"long ".repeat(1000), 12);
        assert_eq!(line.len(), LINE_MAX);
        assert!(line.ends_with("(12 more such lines were left out)\n"));
    }

    #[test]
    fn the_journal_is_known_by_its_file() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let status = nix::sys::stat::fstat(&file).unwrap();
        let name = format!("{}:{}", status.st_dev, status.st_ino);
        assert!(is_stream(&name, file.as_fd()));
        assert!(!is_stream("1:2", file.as_fd()));
    }
}
