//! A process without the privilege to load probes: the broker loads them and has its records written.
//!
//! The library runs no thread in the process: a second thread would make each call that takes a descriptor, and
//! libc, slower in a single-threaded program (`debox/bench/overhead/brokered.py`). A thread that looks for its
//! record finds a word changed when the broker has gone ([`presence`]) or has dropped this process (`gone` in
//! the slot). Then the slots are unpublished, so that old records are not taken for new ones, and each thread
//! that looks for a record takes a step towards the next broker (`seek.rs`). A step takes some microseconds, at
//! most once a millisecond; it allocates nothing and is safe in signal handlers. A forked child only finds that
//! there are no more records, and has to enable again.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::poll::PollTimeout;
use nix::sys::socket::UnixAddr;

use crate::broker;
use crate::broker::channel;
use crate::broker::client::{self, Enabled, Trouble};
use crate::broker::protocol::{self, Admission, Request, Wish};
use crate::broker::reconnect::{self, Kept};
use crate::clock;
use crate::kernel;
use crate::options::Tap;
use crate::symbols::Frame;

use super::options::Options;
use super::slot_fields::is_gone;
use super::{memory, presence, user_tap, Error};

/// How often a broker that has gone is looked for.
pub(super) const RETRY_NS: u64 = 200_000_000;
/// How often its answer is polled for.
const ANSWER_NS: u64 = 1_000_000;
/// How long a step blocks for the answer to a hello, which the broker gives without loading anything: a program
/// that seldom looks for records would come back too late for the broker.
const HELLO_MS: u8 = 2;
/// A broker that takes longer counts as none: see `WORK` in `broker/client.rs`.
const PATIENCE_NS: u64 = 60_000_000_000;

/// Whether there may be a broker to seek, and the time of the next step.
pub(super) static IS_BROKERED: AtomicBool = AtomicBool::new(false);
pub(super) static NEXT_NS: AtomicU64 = AtomicU64::new(0);

pub(super) struct Brokered {
    path: PathBuf,
    address: UnixAddr,
    wish: Wish,
    given: Given,
    stage: Stage,
    /// The process that this belongs to; a fork only has a copy.
    process: u32,
}

/// What the current or the last broker gave.
struct Given {
    connection: Option<Kept>,
    /// The id of the map that the descriptor should stand for: the program may have closed it.
    slots: Option<OwnedFd>,
    slots_id: u32,
    slot_count: usize,
}

/// The progress towards the next broker.
enum Stage {
    /// A broker serves the process.
    Served,
    Away,
    /// A hello was sent at that time.
    Greeted(Kept, u64),
    /// The request was sent at that time.
    Asked(Kept, u64),
}

/// Asks the broker for slots and maps them; `None` if this process loads the probes itself. The caller holds
/// the lock.
pub(super) fn ask(options: &Options) -> Result<Option<Brokered>, Error> {
    let is_able = kernel::may_load_probes();
    if is_able && !broker::is_named() {
        return Ok(None);
    }
    let Some(path) = broker::socket_path() else {
        return Ok(None);
    };
    let tap = options.tap.unwrap_or(Tap::Kernel);
    let wish = Wish::new(tap, options.detail, options.max_threads);
    let enabled = match enable(&path, wish) {
        Ok(enabled) => enabled,
        // Without a broker, the attempt to load the probes reports which privilege is missing.
        Err(Trouble::Absent(_)) if !broker::is_named() => return Ok(None),
        Err(trouble) => return Err(explain(&path, &trouble)),
    };
    let address = UnixAddr::new(&path).map_err(|error| Error::System(error.to_string()))?;
    if tap == Tap::User {
        user_tap::start_clock();
    }
    let fd = enabled.slots.as_raw_fd();
    let slots_id = super::map_id::map_id_of(fd);
    memory::map(fd, slots_id, enabled.slot_count)?;
    if !presence::watch(&enabled.presence) {
        let error = std::io::Error::last_os_error();
        memory::vacate();
        return Err(Error::System(format!(
            "cannot watch over the broker: {error}"
        )));
    }
    IS_BROKERED.store(true, Ordering::Release);
    Ok(Some(Brokered {
        path,
        address,
        wish,
        given: Given {
            connection: Some(Kept::new(enabled.connection)),
            slots: Some(enabled.slots),
            slots_id,
            slot_count: enabled.slot_count,
        },
        stage: Stage::Served,
        process: std::process::id(),
    }))
}

fn enable(path: &Path, wish: Wish) -> Result<Enabled, Trouble> {
    if let (Tap::User, Some(refusal)) = (wish.tap(), clock::refusal()) {
        return Err(Trouble::Refused(refusal));
    }
    client::enable(path, wish)
}

fn explain(path: &Path, trouble: &Trouble) -> Error {
    let text = format!("{trouble} ({})", path.display());
    match trouble {
        // The program does not need a broker.
        Trouble::Absent(_) if kernel::may_load_probes() => Error::System(format!(
            "{text}, which {} names: unset it, and the probes are loaded by the program itself",
            broker::VARIABLE
        )),
        Trouble::Absent(_) => {
            let (takes, remedy) = (kernel::what_it_takes(), kernel::remedy());
            Error::Privilege(format!("{text}, and loading probes {takes}: {remedy}"))
        }
        _ => Error::System(text),
    }
}

/// Notes that there is no broker's session in this process any more.
pub(super) fn forget() {
    IS_BROKERED.store(false, Ordering::Release);
    presence::forget();
}

impl Brokered {
    pub fn slot_count(&self) -> usize {
        self.given.slot_count
    }

    pub fn is_tapped(&self) -> bool {
        self.wish.tap() == Tap::User
    }

    /// Whether this belongs to this process, not to one that it was forked from.
    pub fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Whether there are no records and this process does not look for another broker.
    pub fn is_over(&self) -> bool {
        let connection = self.given.connection.as_ref().and_then(Kept::get);
        !self.is_own() && (!presence::is_there() || connection.is_none_or(channel::has_hung_up))
    }

    /// The functions of a stack, innermost first; empty if the broker does not know them.
    pub fn frames(&self, stack: u64) -> Result<Vec<Frame>, Error> {
        // On a connection of its own: forked children share the other one.
        let frames = client::frames(&self.path, stack)
            .map_err(|trouble| Error::System(trouble.to_string()))?;
        Ok(frames.into_iter().map(Frame::from).collect())
    }

    /// From here to the end of the file, nothing allocates.
    pub fn step(&mut self, now: u64) -> bool {
        if let Stage::Served = self.stage {
            if memory::generation() != 0 && presence::is_there() && !is_gone() {
                return true; // another thread was faster
            }
            memory::unpublish();
            user_tap::end();
            self.given.connection = None; // a broker that is there after all then has one client fewer
            self.stage = Stage::Away;
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Away);
        // After a failure, everything is tried again from the beginning.
        self.stage = self.go_on(stage, now).unwrap_or(Stage::Away);
        let pause = match self.stage {
            Stage::Served => 0,
            Stage::Away => RETRY_NS,
            Stage::Greeted(..) | Stage::Asked(..) => ANSWER_NS,
        };
        NEXT_NS.store(now + pause, Ordering::Relaxed);
        matches!(self.stage, Stage::Served)
    }

    fn go_on(&mut self, stage: Stage, now: u64) -> std::io::Result<Stage> {
        match stage {
            Stage::Served => Ok(Stage::Served),
            Stage::Away => {
                let connection = reconnect::connect(&self.address)?;
                let version = protocol::VERSION;
                reconnect::say(&connection, &Request::Hello { version })?;
                self.go_on(Stage::Greeted(Kept::new(connection), now), now)
            }
            Stage::Greeted(kept, since) => {
                let patience = if since == now { HELLO_MS } else { 0 };
                let Some((admission, _)) = answer(&kept, patience, since, now)? else {
                    return Ok(Stage::Greeted(kept, since));
                };
                let (Admission::Welcome { nonce, .. }, Some(connection)) = (admission, kept.get())
                else {
                    return Err(std::io::ErrorKind::InvalidData.into());
                };
                let wish = self.wish;
                reconnect::say(connection, &Request::Enable { nonce, wish })?;
                Ok(Stage::Asked(kept, now))
            }
            Stage::Asked(kept, since) => {
                let Some((admission, descriptors)) = answer(&kept, 0, since, now)? else {
                    return Ok(Stage::Asked(kept, since));
                };
                let (Admission::Enabled { slots: count }, [Some(slots), Some(page), None, _]) =
                    (admission, descriptors)
                else {
                    return Err(std::io::ErrorKind::InvalidData.into());
                };
                self.take(kept, slots, &page, count as usize)
            }
        }
    }

    /// Takes what the broker gave: the process is enrolled again.
    fn take(
        &mut self,
        connection: Kept,
        slots: OwnedFd,
        page: &OwnedFd,
        count: usize,
    ) -> std::io::Result<Stage> {
        let slots_id = super::map_id::map_id_of(slots.as_raw_fd());
        // The tables of the user tap were made for this many threads.
        let slot_count = count.min(self.wish.max_threads as usize);
        self.given.close();
        if slots_id == 0 || !memory::map_again(slots.as_raw_fd(), slots_id, slot_count) {
            return Err(std::io::Error::last_os_error());
        }
        self.given = Given {
            connection: Some(connection),
            slots: Some(slots),
            slots_id,
            slot_count,
        };
        if !presence::watch(page) {
            return Err(std::io::Error::last_os_error());
        }
        if self.is_tapped() {
            user_tap::begin(slot_count);
        }
        memory::publish();
        Ok(Stage::Served)
    }
}

/// The broker's answer, if it has come.
fn answer(
    kept: &Kept,
    patience: u8,
    since: u64,
    now: u64,
) -> std::io::Result<Option<(Admission, channel::Descriptors)>> {
    let connection = kept.get().ok_or(std::io::ErrorKind::NotConnected)?;
    match reconnect::hear(connection, PollTimeout::from(patience)) {
        Ok(heard) => Ok(Some(heard)),
        Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => Err(error),
        Err(_) if now.saturating_sub(since) > PATIENCE_NS => {
            Err(std::io::ErrorKind::TimedOut.into())
        }
        Err(_) => Ok(None),
    }
}

impl Given {
    /// Closes the slots, unless their descriptor is something else by now.
    fn close(&mut self) {
        if let Some(slots) = self.slots.take() {
            if super::map_id::map_id_of(slots.as_raw_fd()) != self.slots_id {
                std::mem::forget(slots);
            }
        }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.close();
    }
}
