//! A session that many clients share: its clients, and how they join and leave.
//!
//! A client's number is the index of its entry in the probes' tables. The entry, and those of the client's
//! threads, are reused only some time after the client has left, when no probe can be using them any more.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context, Result};
use libbpf_rs::{libbpf_sys, MapCore, MapFlags, MapHandle, MapType};

use super::account::{kernel_memory, Account, Share};
use super::peer::Peer;
use super::protocol::Wish;
use super::quota::Limits;
use crate::kernel::objects;
use crate::options::{Detail, Options, Role, Tap};
use crate::random;
use crate::record::Slot;
use crate::session::{Enrolment, Session, Table};
use crate::stack_table::frames_of;
use crate::tables::{self, types};

const CLIENT_LIVE: u32 = 1;
const CLIENT_GONE: u32 = 2;
/// The number of threads in a client's table (`CLIENT_WORDS` of debox/probe/shared.h).
pub const CLIENT_THREADS: u32 = 1024;

/// Unused probes are detached after this time: attaching and detaching costs more than some switches.
const IDLE: Duration = Duration::from_secs(5);

/// The estimated memory of a session's tables and programs, until one was loaded.
const ESTIMATE: u64 = 96 << 20;

/// The kind of session that serves a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub tap: Tap,
    pub sleeps: bool,
    pub irq: bool,
}

impl Kind {
    pub fn of(wish: &Wish) -> Kind {
        Kind {
            tap: wish.tap(),
            sleeps: wish.sleeps,
            irq: wish.irq && !wish.user_tap,
        }
    }
}

pub struct Shared {
    pub kind: Kind,
    session: Session,
    clients: ClientTable,
    free: Vec<u32>,
    /// Clients that have left, until none of their threads is monitored any more.
    leaving: Vec<u32>,
    /// Clients and threads that are unused since the last tick.
    cooling: Vec<u32>,
    cooling_threads: Vec<u32>,
    /// The number of clients, and since when there has been none.
    count: usize,
    idle_since: Instant,
    _memory: Share,
}

/// What a new client is given.
pub struct Admitted {
    pub client: u32,
    pub slots: MapHandle,
    pub slots_id: u32,
}

impl Shared {
    /// Loads the probes, if there is memory for them. It is charged to the user who requests them first, or,
    /// for the usual ones, to no user.
    pub fn open(
        kind: Kind,
        limits: &Limits,
        account: &Arc<Account>,
        user: Option<u32>,
    ) -> Result<Shared> {
        let wish = format!("{kind:?}");
        let estimate = account.estimate(&wish, ESTIMATE);
        let memory = account.take_large(user, "these probes", estimate);
        let mut memory = memory.map_err(|refusal| anyhow!(refusal))?;
        let options = Options {
            tap: kind.tap,
            detail: Detail {
                sleeps: kind.sleeps,
                irq: kind.irq,
                ..Detail::default()
            },
            max_threads: limits.threads,
            max_records: 1, // the probes write records; their slots are the clients'
            report: false,
            ..Options::default()
        };
        let role = Role::Shared {
            clients: limits.clients,
        };
        let session = Session::load(options, role)?;
        let clients = ClientTable::map(session.table(Table::Clients), limits.clients)?;
        let bytes = kernel_memory(session.object());
        account.learn(&wish, bytes);
        memory.set(bytes);
        Ok(Shared {
            kind,
            session,
            clients,
            free: (0..limits.clients).rev().collect(),
            leaving: Vec::new(),
            cooling: Vec::new(),
            cooling_threads: Vec::new(),
            count: 0,
            idle_since: Instant::now(),
            _memory: memory,
        })
    }

    /// Admits a process as a client of its own, and enrols its threads.
    pub fn admit(&mut self, peer: &Peer, slots: u32) -> Result<Admitted> {
        if !self.session.is_attached() {
            self.session.attach()?;
        }
        let map = make_slots(slots)?;
        let slots_id = objects::map_id(map.as_fd())?;
        let client = self
            .free
            .pop()
            .context("the broker has reached its limit of clients")?;
        self.clients.begin(client, peer.uid, slots)?;
        self.count += 1;
        let enrolled = self.enrol(client, peer, &map);
        if let Err(error) = enrolled {
            self.leave(client);
            return Err(error);
        }
        Ok(Admitted {
            client,
            slots: map,
            slots_id,
        })
    }

    fn enrol(&mut self, client: u32, peer: &Peer, map: &MapHandle) -> Result<()> {
        self.session.give_slots(client, map.as_fd())?;
        let enrolment = Enrolment {
            tgid: peer.pid,
            client,
            ..Enrolment::default()
        };
        // A thread that starts during a walk over the tasks may be missed by that walk.
        let mut before = 0;
        for _ in 0..10 {
            self.session.enrol_by(&enrolment, Some(peer.descriptor()))?;
            let now = self.clients.live(client);
            if now == before {
                break;
            }
            before = now;
        }
        ensure!(peer.is_alive(), "the process has ended");
        if self.clients.refused(client) > 0 {
            bail!(
                "the process has another user's rights (set-user-id, set-group-id or changed ids), or \
                 has forbidden that others of its user look into it"
            );
        }
        ensure!(before > 0, "no thread of the process can be monitored");
        Ok(())
    }

    /// Notes that the client has left: its records are no longer read.
    pub fn leave(&mut self, client: u32) {
        self.clients
            .state(client)
            .store(CLIENT_GONE, Ordering::SeqCst);
        // It has none if it was never admitted.
        self.session.take_slots(client);
        self.leaving.push(client);
        self.count -= 1;
        if self.count == 0 {
            self.idle_since = Instant::now();
        }
    }

    /// Once a second: releases the threads of clients that have left, and reuses entries that no probe can
    /// be using any more.
    pub fn tick(&mut self) -> Result<()> {
        self.session.tidy_gate();
        for index in self.cooling_threads.drain(..) {
            self.session.free_thread(index)?;
        }
        self.free.append(&mut self.cooling);
        if !self.leaving.is_empty() {
            self.session.release_tasks()?;
            let clients = &self.clients;
            let (stay, left) = self
                .leaving
                .drain(..)
                .partition(|client| clients.live(*client) > 0);
            (self.leaving, self.cooling) = (stay, left);
        }
        self.cooling_threads
            .extend(self.session.take_retired_threads());
        if self.is_idle_for(IDLE) {
            self.session.detach();
        }
        Ok(())
    }

    /// Whether no client has used the session for this time, and no client's thread is monitored any more.
    pub fn is_idle_for(&self, time: Duration) -> bool {
        self.count == 0 && self.leaving.is_empty() && self.idle_since.elapsed() >= time
    }

    /// The addresses of the kernel stack with this name, innermost first.
    pub fn stack(&self, name: u64) -> Option<Vec<u64>> {
        Some(frames_of(&self.session.kernel_stack(name).ok()??))
    }

    /// Makes the probes capture cached stacks again: their names were evicted from the table.
    pub fn forget_shapes(&self) {
        self.session.forget_kernel_stacks();
    }

    pub fn is_attached(&self) -> bool {
        self.session.is_attached()
    }
}

/// The addresses of a stack in a session's table of stacks.
pub fn find_stack(stacks: &impl MapCore, name: u64) -> Option<Vec<u64>> {
    let found = stacks.lookup(&name.to_ne_bytes(), MapFlags::ANY);
    let stack = tables::read_value::<types::kernel_stack>(&found.ok()??)?;
    Some(frames_of(&stack))
}

/// The kernel memory of so many slots.
pub fn slots_memory(slots: u32) -> u64 {
    (u64::from(slots) * std::mem::size_of::<Slot>() as u64).next_multiple_of(4096) + 4096
}

/// Makes an array of slots.
fn make_slots(slots: u32) -> Result<MapHandle> {
    const FLAGS: u32 = libbpf_sys::BPF_F_MMAPABLE | libbpf_sys::BPF_F_INNER_MAP;
    let options = libbpf_sys::bpf_map_create_opts {
        sz: std::mem::size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        map_flags: FLAGS,
        ..Default::default()
    };
    MapHandle::create(
        MapType::Array,
        Some("debox_slots"),
        4,
        std::mem::size_of::<Slot>() as u32,
        slots,
        &options,
    )
    .context("cannot make room for the records")
}

/// Marks the slots, for processes that still read them, as no longer written.
pub fn mark_gone(slots: &MapHandle, count: u32) {
    let length = (count as usize * std::mem::size_of::<Slot>()).next_multiple_of(4096);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let fd = slots.as_fd().as_raw_fd();
    // SAFETY: a new mapping, wherever there is room.
    let base = unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, fd, 0) };
    if base == libc::MAP_FAILED {
        return; // its reader can still find out that the broker has closed the connection
    }
    for index in 0..count as usize {
        // SAFETY: the slot is inside the mapping; others write to it at any time, hence volatile.
        unsafe { ptr::write_volatile(&raw mut (*base.cast::<Slot>().add(index)).gone, 1) };
    }
    // SAFETY: the mapping is this function's own.
    unsafe { libc::munmap(base, length) };
}

/// The probes' table of clients, mapped: the probes change some of its words at any time.
pub struct ClientTable {
    base: *mut types::client,
    count: u32,
}

impl ClientTable {
    pub fn map(fd: BorrowedFd, count: u32) -> Result<ClientTable> {
        let length = count as usize * std::mem::size_of::<types::client>();
        // SAFETY: a new mapping, wherever there is room.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length.next_multiple_of(4096),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).context("cannot map the clients");
        }
        Ok(ClientTable {
            base: base.cast(),
            count,
        })
    }

    fn at(&self, client: u32) -> *mut types::client {
        assert!(client < self.count);
        // SAFETY: inside the mapping.
        unsafe { self.base.add(client as usize) }
    }

    fn word(&self, word: *mut u32) -> &AtomicU32 {
        // SAFETY: an aligned word of the mapping, which lives as long as the table.
        unsafe { AtomicU32::from_ptr(word) }
    }

    fn state(&self, client: u32) -> &AtomicU32 {
        // SAFETY: no more than the address is taken.
        self.word(unsafe { (&raw mut (*self.at(client)).state).cast() })
    }

    fn live(&self, client: u32) -> u32 {
        // SAFETY: no more than the address is taken.
        let word = unsafe { &raw mut (*self.at(client)).live };
        self.word(word).load(Ordering::SeqCst)
    }

    fn refused(&self, client: u32) -> u32 {
        // SAFETY: no more than the address is taken.
        let word = unsafe { &raw mut (*self.at(client)).refused };
        self.word(word).load(Ordering::SeqCst)
    }

    /// Fills in the entry of a client that no probe knows yet.
    pub fn begin(&self, client: u32, uid: u32, slots: u32) -> Result<()> {
        let fresh = types::client {
            uid,
            slots: slots.min(CLIENT_THREADS),
            salt: random::random()?,
            ..types::client::default()
        };
        // SAFETY: the entry is inside the mapping, and its client's threads are not monitored.
        unsafe { ptr::write_volatile(self.at(client), fresh) };
        self.state(client).store(CLIENT_LIVE, Ordering::SeqCst);
        Ok(())
    }
}

impl Drop for ClientTable {
    fn drop(&mut self) {
        let length = self.count as usize * std::mem::size_of::<types::client>();
        // SAFETY: the mapping is this table's own.
        unsafe { libc::munmap(self.base.cast(), length.next_multiple_of(4096)) };
    }
}
