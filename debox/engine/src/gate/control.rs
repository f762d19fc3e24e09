//! The word and tables of a gate that all its sessions map, and the lock on them.
//!
//! A session is identified by its **token**: a map of its own that no program uses, so that it exists exactly
//! as long as a process holds the session, however that process ends. There is a second token, because a
//! process that ends closes its files one by one in an unspecified order. With one token below all other
//! descriptors of the session and one above them, the first to be closed is a token, in either order.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use libbpf_rs::libbpf_sys;

use crate::kernel::objects;
use crate::skeleton_gate::types::gate_control;

const MAGIC: u64 = 0x6574_6167_786f_6265;
/// Changes with the layout or the meaning of what the sessions share (debox/probe/gate.h). A number that was never used
/// before.
const FORMAT: u32 = 5;
pub(super) const SESSIONS: u32 = 32; // GATE_SESSIONS
/// The number of maps that all sessions share.
pub(super) const SHARED: usize = 4;

const LENGTH: usize = std::mem::size_of::<gate_control>().next_multiple_of(4096);

/// The version of a gate with these events, in the order of their numbers. Sessions that number events differently cannot
/// share a gate, so the events are a part of it: FNV-1a of the format and the names.
pub(super) fn version_of(events: &[String]) -> u32 {
    let names = events.iter().flat_map(|name| name.bytes().chain([b'\n']));
    let bytes = FORMAT.to_le_bytes().into_iter().chain(names);
    bytes.fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// How long the lock is waited for. Changes take milliseconds. A process that is stopped during one blocks
/// this gate; other sessions then make one of their own.
const PATIENCE: Duration = Duration::from_secs(3);

/// A map that stands for a session.
pub(super) struct Token {
    _map: OwnedFd,
    pub id: u32,
}

impl Token {
    pub fn new() -> Result<Token> {
        // SAFETY: the name is a C string, and no options are given.
        let map = objects::owned(unsafe {
            libbpf_sys::bpf_map_create(
                libbpf_sys::BPF_MAP_TYPE_ARRAY,
                c"debox_session".as_ptr(),
                4,
                4,
                1,
                ptr::null(),
            )
        });
        let map = map.context("cannot make the session's token")?;
        let id = objects::map_id(map.as_fd())?;
        Ok(Token { _map: map, id })
    }

    /// A token whose descriptor is above these.
    pub fn above<'a>(others: impl Iterator<Item = BorrowedFd<'a>>) -> Result<Token> {
        let Token { _map: map, id } = Token::new()?;
        let highest = others.map(|fd| fd.as_raw_fd()).max().unwrap_or(0);
        // SAFETY: duplicates a descriptor.
        let above = unsafe { libc::fcntl(map.as_raw_fd(), libc::F_DUPFD_CLOEXEC, highest + 1) };
        if above < 0 {
            return Err(io::Error::last_os_error()).context("no descriptor left for the session");
        }
        let map = objects::owned(above)?;
        Ok(Token { _map: map, id })
    }
}

/// The control map, mapped.
pub(super) struct Control {
    base: *mut gate_control,
    pub map: OwnedFd,
}

// SAFETY: the mapping belongs to this value, and its words are changed atomically.
unsafe impl Send for Control {}

impl Control {
    pub fn map(map: OwnedFd) -> Result<Control> {
        // SAFETY: a new mapping at any free address.
        let base = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let fd = map.as_raw_fd();
            libc::mmap(ptr::null_mut(), LENGTH, protection, libc::MAP_SHARED, fd, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("cannot map the gate's tables");
        }
        Ok(Control {
            base: base.cast(),
            map,
        })
    }

    /// Fills in a new gate's tables.
    pub fn begin(&self, version: u32, shared_ids: [u32; SHARED]) {
        let [tasks_id, contended_id, waiters_id, runs_id] = shared_ids;
        // SAFETY: inside the mapping; other processes do not use it until the last of these fields is set.
        unsafe {
            (*self.base).tasks_id = tasks_id;
            (*self.base).contended_id = contended_id;
            (*self.base).waiters_id = waiters_id;
            (*self.base).runs_id = runs_id;
            (*self.base).version = version;
            AtomicU64::from_ptr(&raw mut (*self.base).magic).store(MAGIC, Ordering::Release);
        }
    }

    /// Fails if the gate is of another version of DeBox.
    pub fn require_version(&self, wanted: u32) -> Result<()> {
        // SAFETY: inside the mapping; the values are written once, before the magic number.
        let (magic, version) = unsafe {
            let magic = AtomicU64::from_ptr(&raw mut (*self.base).magic).load(Ordering::Acquire);
            (magic, (*self.base).version)
        };
        ensure!(
            magic == MAGIC && version == wanted,
            "the gate belongs to another version of DeBox"
        );
        Ok(())
    }

    /// The maps that sessions share: tasks, contended locks, the numbers of their waiters, and who had the
    /// CPUs.
    pub fn shared_ids(&self) -> [u32; SHARED] {
        // SAFETY: inside the mapping; not changed after `begin`.
        let control = unsafe { &*self.base };
        [
            control.tasks_id,
            control.contended_id,
            control.waiters_id,
            control.runs_id,
        ]
    }

    pub fn accounting(&self) -> &AtomicU32 {
        // SAFETY: only the address is taken.
        self.word(unsafe { &raw mut (*self.base).accounting })
    }

    fn word(&self, word: *mut u32) -> &AtomicU32 {
        // SAFETY: an aligned word of the mapping, which lives as long as this value.
        unsafe { AtomicU32::from_ptr(word) }
    }

    /// One word of a table of the control map.
    fn entry<const N: usize>(&self, table: *mut [u32; N], index: usize) -> &AtomicU32 {
        assert!(index < N);
        self.word(table.cast::<u32>().wrapping_add(index))
    }

    pub fn token(&self, session: u32) -> &AtomicU32 {
        // SAFETY: only the address is taken; here and below.
        self.entry(unsafe { &raw mut (*self.base).tokens }, session as usize)
    }

    pub fn last_token(&self, session: u32) -> &AtomicU32 {
        let table = unsafe { &raw mut (*self.base).last_tokens };
        self.entry(table, session as usize)
    }

    pub fn holders(&self, event: usize) -> &AtomicU32 {
        self.entry(unsafe { &raw mut (*self.base).held }, event)
    }

    pub fn wanted(&self, event: usize) -> &AtomicU32 {
        self.entry(unsafe { &raw mut (*self.base).wanted }, event)
    }

    pub fn programs_id(&self, event: usize) -> &AtomicU32 {
        self.entry(unsafe { &raw mut (*self.base).programs_id }, event)
    }

    pub fn program_id(&self, event: usize) -> &AtomicU32 {
        self.entry(unsafe { &raw mut (*self.base).program_id }, event)
    }

    pub fn link_id(&self, event: usize) -> &AtomicU32 {
        self.entry(unsafe { &raw mut (*self.base).link_id }, event)
    }

    /// Waits until no other process changes the tables. A holder of the lock whose token is gone has ended.
    pub fn lock<'a>(&'a self, token: &'a Token) -> Result<Locked<'a>> {
        let lock = self.word(unsafe { &raw mut (*self.base).lock });
        let end = Instant::now() + PATIENCE;
        loop {
            let holder =
                match lock.compare_exchange(0, token.id, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Ok(Locked { lock, token }),
                    Err(holder) => holder,
                };
            let is_left = objects::map_is_gone(holder);
            if is_left
                && lock
                    .compare_exchange(holder, token.id, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Ok(Locked { lock, token });
            }
            if Instant::now() > end {
                bail!("another session holds the gate's tables and does not let go of them");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.base.cast(), LENGTH) };
    }
}

/// The lock on the tables: this session may change them.
pub(super) struct Locked<'a> {
    lock: &'a AtomicU32,
    token: &'a Token,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let ours = self.token.id;
        let _ = self
            .lock
            .compare_exchange(ours, 0, Ordering::Release, Ordering::Relaxed);
    }
}

/// The control map of the gate that a program stands for, if it is a gate made by root.
pub(super) fn control_of(program: BorrowedFd) -> Option<u32> {
    // It uses the control map, and libbpf binds the gate's constants to it.
    let (info, maps) = objects::program_info::<2>(program).ok()?;
    let stands_for_gate = info.type_ == libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT
        && info.created_by_uid == 0
        && objects::name_of(&info.name) == b"gate_is_here";
    if !stands_for_gate {
        return None;
    }
    let count = (info.nr_map_ids as usize).min(maps.len());
    maps[..count].iter().copied().find(|id| {
        let map = objects::map_by_id(*id);
        let info = map.and_then(|map| objects::map_info(map.as_fd()));
        info.is_ok_and(|info| {
            objects::name_of(&info.name) == b"debox_gate"
                && info.value_size as usize == std::mem::size_of::<gate_control>()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::version_of;

    #[test]
    fn gates_that_number_events_differently_have_different_versions() {
        let lists: [&[&str]; 6] = [
            &["fork", "exec"],
            &["exec", "fork"],
            &["fork", "exec", "switch"],
            &["fork"],
            &["forkexec"],
            &[],
        ];
        let versions = lists.map(|list| {
            let names: Vec<String> = list.iter().map(|name| name.to_string()).collect();
            version_of(&names)
        });
        for (at, version) in versions.iter().enumerate() {
            assert!(!versions[..at].contains(version), "{:?}", lists[at]);
            // Earlier gates had these numbers.
            assert!(*version > 4, "{:?}", lists[at]);
        }
    }
}
