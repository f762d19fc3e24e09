// SPDX-License-Identifier: MIT OR Apache-2.0
//! What helpers do, and what comes of it.

use std::sync::Arc;

use rustix::fs::{fadvise, Advice};
use rustix::io::Errno;

use super::key::Key;
use super::reading::Reading;
use super::turns::Turn;
use crate::access::check::{Check, Checked};
use crate::contents::PART;
use crate::files::{File, FileId, Kind, Lookup, Root};
use crate::listing;
use crate::path_server::{Brought, How};

/// What is read at once to wait for a file's pages; the bytes are not used.
pub(super) const SCRATCH: usize = PART as usize;

pub enum Work {
    /// Opens the first of several names that exists. A pool with a device leaves names on others to another pool.
    Open {
        root: Arc<Root>,
        names: Vec<Vec<u8>>,
        /// So many bytes of the file are brought into memory, too.
        first: u64,
    },
    /// Brings a part of a file into memory.
    Warm {
        file: Arc<File>,
        begin: u64,
        end: u64,
    },
    /// Reads a part of a file, or its begin.
    Read {
        file: Arc<File>,
        begin: u64,
        end: u64,
    },
    /// Opens a name for another process, and brings its first bytes into memory.
    Bring {
        root: Arc<Root>,
        name: Vec<u8>,
        how: How,
    },
    /// Waits until as many helpers wait.
    #[cfg(test)]
    Meet(Arc<std::sync::Barrier>),
    #[cfg(test)]
    Call(Box<dyn FnOnce(&Turn<'_>) + Send>),
    /// A page with what is in a directory.
    List { directory: Arc<File>, title: String },
    /// Whether a password is right.
    Check(Box<Check>),
}

pub enum Result {
    /// Which of the names it was. If none exists, this is of the last one.
    Opened(usize, Lookup),
    Warmed,
    Read(Vec<u8>),
    Listed(Arc<[u8]>),
    Checked(Box<Checked>),
    Brought(Box<Brought>),
    /// The file cannot be read.
    Failed(Errno),
}

impl Work {
    /// What it waits for, as far as it is known. `None`: for no device.
    pub fn device(&self) -> Option<u64> {
        match self {
            Work::Open { root, .. } | Work::Bring { root, .. } => Some(root.device),
            Work::Warm { file, .. } | Work::Read { file, .. } => Some(file.id.device),
            Work::List { directory, .. } => Some(directory.id.device),
            Work::Check(_) => None,
            #[cfg(test)]
            Work::Meet(..) | Work::Call(..) => None,
        }
    }

    /// The file whose bytes it brings.
    pub(super) fn reads(&self) -> Option<FileId> {
        match self {
            Work::Warm { file, .. } | Work::Read { file, .. } => Some(file.id),
            _ => None,
        }
    }

    /// `None`: its result is only for who asked.
    pub(super) fn key(&self) -> Option<Key> {
        match self {
            Work::Open { root, names, first } => Some(Key::Open {
                root: root.number,
                names: names.clone(),
                first: *first,
            }),
            Work::List { directory, title } => Some(Key::List {
                directory: directory.id,
                title: title.clone(),
            }),
            Work::Warm { file, begin, end } => Some(Key::Warm {
                file: file.id,
                begin: *begin,
                end: *end,
            }),
            _ => None,
        }
    }
}

impl Result {
    /// For one more who waits. What [`Work::key`] says to be for one alone is no answer for another.
    pub(super) fn copy(&self) -> Result {
        match self {
            Result::Opened(at, lookup) => Result::Opened(*at, lookup.clone()),
            Result::Warmed => Result::Warmed,
            Result::Listed(page) => Result::Listed(Arc::clone(page)),
            Result::Failed(error) => Result::Failed(*error),
            Result::Read(_) | Result::Checked(_) | Result::Brought(_) => Result::Failed(Errno::IO),
        }
    }
}

/// Waits as long as it takes.
pub(super) fn work(work: Work, scratch: &mut [u8], turn: &Turn<'_>) -> Result {
    match work {
        Work::Open { root, names, first } => {
            let opened = open_first(&root, &names);
            bring_first(&opened, first, scratch, turn);
            opened
        }
        Work::Warm { file, begin, end } => warm(&file, begin, end, scratch, turn),
        Work::Read { file, begin, end } => read_part(&file, begin, end),
        Work::Bring { root, name, how } => {
            Result::Brought(Box::new(how.bring(&root, &name, scratch, || turn.pass())))
        }
        #[cfg(test)]
        Work::Meet(barrier) => {
            barrier.wait();
            Result::Warmed
        }
        #[cfg(test)]
        Work::Call(call) => {
            call(turn);
            Result::Warmed
        }
        Work::List { directory, title } => match listing::page(&directory, &title) {
            Ok(page) => Result::Listed(page),
            Err(error) => Result::Failed(error),
        },
        Work::Check(check) => Result::Checked(Box::new(check.run())),
    }
}

/// `None`: one of the names is on another device.
pub(super) fn open_on_device(
    root: &Root,
    names: &[Vec<u8>],
    first: u64,
    scratch: &mut [u8],
    turn: &Turn<'_>,
) -> Option<Result> {
    let mut found = (0, Lookup::Missing);
    for (at, name) in names.iter().enumerate() {
        found = (at, root.open_on_device(name)?);
        if !matches!(found.1, Lookup::Missing) {
            break;
        }
    }
    let opened = Result::Opened(found.0, found.1);
    bring_first(&opened, first, scratch, turn);
    Some(opened)
}

/// Brings the first bytes of a file that has just been opened, so that no other name's turn comes between. If they cannot be
/// read, who sends them finds out.
fn bring_first(opened: &Result, first: u64, scratch: &mut [u8], turn: &Turn<'_>) {
    if let Result::Opened(_, Lookup::Found(file)) = opened {
        let end = file.size.min(first);
        if file.kind == Kind::Regular && end > 0 {
            let _reading = Reading::begin(file.id);
            warm(file, 0, end, scratch, turn);
        }
    }
}

fn open_first(root: &Root, names: &[Vec<u8>]) -> Result {
    let mut found = (0, Lookup::Missing);
    for (at, name) in names.iter().enumerate() {
        found = (at, root.open_waiting(name));
        if !matches!(found.1, Lookup::Missing) {
            break;
        }
    }
    Result::Opened(found.0, found.1)
}

/// Has all of it read at once, and waits for it piece by piece.
fn warm(file: &File, begin: u64, end: u64, scratch: &mut [u8], turn: &Turn<'_>) -> Result {
    let length = std::num::NonZeroU64::new(end.saturating_sub(begin));
    let _ = fadvise(&file.fd, begin, length, Advice::WillNeed);
    turn.pass();
    let mut at = begin;
    while at < end {
        let here = scratch.len().min((end - at) as usize);
        match rustix::io::pread(&file.fd, &mut scratch[..here], at) {
            Ok(0) => break, // it has become shorter
            Ok(read) => at += read as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Result::Failed(error),
        }
    }
    Result::Warmed
}

fn read_part(file: &File, begin: u64, end: u64) -> Result {
    let length = usize::try_from(end.saturating_sub(begin)).unwrap_or(SCRATCH);
    let mut bytes = vec![0; length.min(SCRATCH)];
    loop {
        match rustix::io::pread(&file.fd, &mut bytes, begin) {
            Ok(read) => {
                bytes.truncate(read);
                return Result::Read(bytes);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Result::Failed(error),
        }
    }
}
