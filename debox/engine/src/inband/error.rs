// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why something in-band could not be done.

use std::fmt;

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The process may not load probes; the text says which privilege is missing.
    Privilege(String),
    /// The kernel lacks what the probes need.
    Unsupported(String),
    /// This process has enabled DeBox already.
    AlreadyEnabled,
    /// This process has not enabled DeBox.
    NotEnabled,
    /// The calling thread has no slot: there were more threads than [`Options::max_threads`].
    NotMonitored,
    /// No thread of that id is monitored.
    NoSuchThread(i32),
    /// The scope began on another thread.
    OtherThread,
    /// The program has closed the session's descriptors. [`enable`] begins a new session.
    Closed,
    /// Monitoring ended, or ended and began again, inside the scope.
    Interrupted,
    /// An argument is out of its range.
    Argument(&'static str),
    /// An invalid predicate; the text shows the place.
    Predicate(String),
    /// Anything else that failed.
    System(String),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Privilege(text)
            | Error::Unsupported(text)
            | Error::Predicate(text)
            | Error::System(text) => f.write_str(text),
            Error::AlreadyEnabled => f.write_str("this process has enabled DeBox already"),
            Error::NotEnabled => f.write_str("this process has not enabled DeBox"),
            Error::NotMonitored => {
                f.write_str("this thread has no record: more than max_threads threads are running")
            }
            Error::NoSuchThread(tid) => write!(f, "thread {tid} is not monitored"),
            Error::OtherThread => f.write_str(
                "this scope began on another thread: a scope ends on the thread it began on",
            ),
            Error::Closed => f.write_str(
                "nothing is measured any more: the program has closed DeBox's file descriptors \
                 (closefrom, close_range); enabling DeBox again begins a new session",
            ),
            Error::Interrupted => f.write_str(
                "monitoring ended or was started again inside this scope: DeBox was disabled or enabled, \
                 its file descriptors were closed, the broker went away, or the process forked",
            ),
            Error::Argument(text) => f.write_str(text),
        }
    }
}
