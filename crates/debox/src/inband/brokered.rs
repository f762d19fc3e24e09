//! A process without the privilege to load probes: the broker does, and writes its records.
//!
//! A thread of the library's waits for the end of the connection. When the broker has gone, nothing
//! is published any more, so that nobody takes old records for new ones; when it, or another one,
//! comes back, the process is enrolled again. A forked child has no such thread: it notices by a word
//! in its slot, and has to enable anew.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use crate::broker;
use crate::broker::channel;
use crate::broker::client::{self, Enabled, Trouble};
use crate::broker::protocol::Wish;
use crate::clock;
use crate::kernel;
use crate::session::Tap;
use crate::signals::Blocked;
use crate::symbols::Frame;

use super::{memory, slot, user_tap, Error, Options};

/// How often a broker is looked for that has gone, in milliseconds.
const RETRY_MS: u16 = 200;

pub(super) struct Brokered {
    path: PathBuf,
    enabled: Enabled,
    options: Options,
    watcher: Option<Watcher>,
}

/// The thread that waits for the end of the connection, as its owner holds it.
struct Watcher {
    /// Different for each, so that one that is late does not touch what its successor watches.
    number: u64,
    stop: File,
    thread: JoinHandle<()>,
    /// Whose thread it is: not that of a copy of this process.
    process: u32,
}

/// Asks the broker for slots, and maps them; `None` where this process loads the probes itself. The
/// caller holds the lock.
pub(super) fn ask(options: &Options) -> Result<Option<Brokered>, Error> {
    let is_able = kernel::has_bpf_privilege();
    if is_able && !broker::is_named() {
        return Ok(None);
    }
    let Some(path) = broker::socket_path() else {
        return Ok(None);
    };
    let enabled = match enable(&path, options) {
        Ok(enabled) => enabled,
        // Without a broker it is as it was: the attempt to load the probes says what it takes.
        Err(Trouble::Absent(_)) if !broker::is_named() => return Ok(None),
        Err(trouble) => return Err(explain(&path, &trouble)),
    };
    let mut brokered = Brokered {
        path,
        enabled,
        options: *options,
        watcher: None,
    };
    brokered.map()?;
    brokered.watcher = Some(watch(&brokered)?);
    Ok(Some(brokered))
}

fn enable(path: &Path, options: &Options) -> Result<Enabled, Trouble> {
    let tap = options.tap.unwrap_or(Tap::Kernel);
    if let (Tap::User, Some(refusal)) = (tap, clock::refusal()) {
        return Err(Trouble::Refused(refusal));
    }
    // One more than the program wants: the thread that watches is monitored like the others.
    client::enable(
        path,
        Wish::new(tap, options.detail, options.max_threads + 1),
    )
}

fn explain(path: &Path, trouble: &Trouble) -> Error {
    let text = format!("{trouble} ({})", path.display());
    match trouble {
        Trouble::Absent(_) => Error::Privilege(text),
        Trouble::Refused(_) | Trouble::Broken(_) => Error::System(text),
    }
}

impl Brokered {
    fn map(&self) -> Result<(), Error> {
        if self.is_tapped() {
            user_tap::start_clock();
        }
        let fd = self.enabled.slots.as_raw_fd();
        memory::map(fd, super::map_id_of(fd), self.enabled.slot_count)
    }

    pub fn slot_count(&self) -> usize {
        self.enabled.slot_count
    }

    pub fn is_tapped(&self) -> bool {
        self.options.tap == Some(Tap::User)
    }

    /// Whether the broker has gone and nobody waits for another one.
    pub fn is_over(&self) -> bool {
        self.watcher.is_none() && channel::has_hung_up(&self.enabled.connection)
    }

    /// In a forked child: the thread, and what stops it, are the parent's.
    pub fn forget_watcher(&mut self) {
        self.watcher = None;
    }

    /// The functions of a stack, innermost first; empty if the broker does not know them.
    pub fn frames(&self, stack: u64) -> Result<Vec<Frame>, Error> {
        // On a connection of its own: forked children share the other one.
        let frames = client::frames(&self.path, stack)
            .map_err(|trouble| Error::System(trouble.to_string()))?;
        Ok(frames.into_iter().map(Frame::from).collect())
    }
}

impl Drop for Brokered {
    fn drop(&mut self) {
        let Some(mut watcher) = self.watcher.take() else {
            return;
        };
        if watcher.process != std::process::id() {
            return;
        }
        if watcher.stop.write_all(&1u64.to_ne_bytes()).is_ok() {
            let _ = watcher.thread.join();
        }
    }
}

/// Starts the thread that waits for the end of the connection.
fn watch(brokered: &Brokered) -> Result<Watcher, Error> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let system = |what: &str, error: std::io::Error| Error::System(format!("{what}: {error}"));
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    // SAFETY: takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if fd < 0 {
        let error = std::io::Error::last_os_error();
        return Err(system("cannot watch over the broker", error));
    }
    // SAFETY: the descriptor is new and owned by nobody else.
    let stop = unsafe { File::from_raw_fd(fd) };
    let copies = stop.try_clone().and_then(|stop| {
        let connection = brokered.enabled.connection.try_clone()?;
        Ok((stop, connection))
    });
    let (thread_stop, connection) =
        copies.map_err(|error| system("cannot watch over the broker", error))?;
    let (path, options) = (brokered.path.clone(), brokered.options);
    // The program's signals are not for this thread: it begins with all of them blocked.
    let blocked = Blocked::all();
    let spawned = std::thread::Builder::new()
        .name("debox-broker".to_string())
        .stack_size(256 * 1024)
        .spawn(move || watch_over(number, connection, &thread_stop, &path, &options));
    drop(blocked);
    let thread = spawned.map_err(|error| system("cannot watch over the broker", error))?;
    Ok(Watcher {
        number,
        stop,
        thread,
        process: std::process::id(),
    })
}

/// What a wait ended with.
#[derive(PartialEq)]
enum Event {
    Stopped,
    HungUp,
    TimedOut,
}

fn wait(stop: &File, connection: Option<&OwnedFd>, limit: PollTimeout) -> Event {
    loop {
        let mut polled = vec![PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        polled.extend(connection.map(|fd| PollFd::new(fd.as_fd(), PollFlags::empty())));
        match poll(&mut polled, limit) {
            Ok(0) => return Event::TimedOut,
            Ok(_) if polled[0].any() == Some(true) => return Event::Stopped,
            Ok(_) => return Event::HungUp,
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return Event::Stopped,
        }
    }
}

fn watch_over(number: u64, first: OwnedFd, stop: &File, path: &Path, options: &Options) {
    let mut connection = first;
    loop {
        if wait(stop, Some(&connection), PollTimeout::NONE) == Event::Stopped || !withdraw(number) {
            return;
        }
        connection = loop {
            if wait(stop, None, PollTimeout::from(RETRY_MS)) == Event::Stopped {
                return;
            }
            let Ok(enabled) = enable(path, options) else {
                continue;
            };
            match come_back(number, enabled) {
                Some(connection) => break connection,
                None => return,
            }
        };
    }
}

/// Nobody writes the records any more. False if they are not this watcher's.
fn withdraw(number: u64) -> bool {
    let state = super::state();
    if !is_watched_by(&state, number) {
        return false;
    }
    memory::mark_gone();
    memory::unpublish();
    user_tap::end();
    true
}

/// The process is enrolled again. Returns the connection to watch.
fn come_back(number: u64, enabled: Enabled) -> Option<OwnedFd> {
    let mut state = super::state();
    if !is_watched_by(&state, number) {
        return None;
    }
    let brokered = state.brokered.as_mut()?;
    brokered.enabled = enabled;
    let connection = brokered.enabled.connection.try_clone().ok()?;
    brokered.map().ok()?;
    let tapped = brokered.is_tapped().then_some(brokered.enabled.slot_count);
    state.explained.clear();
    if let Some(threads) = tapped {
        user_tap::begin(threads);
    }
    memory::publish();
    drop(state);
    slot::hide_all();
    Some(connection)
}

fn is_watched_by(state: &super::State, number: u64) -> bool {
    let watcher = state
        .brokered
        .as_ref()
        .and_then(|held| held.watcher.as_ref());
    watcher.is_some_and(|watcher| watcher.number == number)
}
