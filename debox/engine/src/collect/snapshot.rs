//! What the probes measured: plain data, before names are looked up.

use std::collections::BTreeMap;

use crate::options::{Detail, Tap};
use crate::report::Deadlock;
use crate::samples::Samples;
use crate::stack_table::StackTable;
use crate::tables::{types, OpenWait};
use crate::waited::Waits;

/// A session's tables at its stop.
pub(crate) struct Snapshot {
    pub tap: Tap,
    pub detail: Detail,
    pub slow_ns: u64,
    pub started_ns: u64,
    pub stopped_ns: u64,
    /// Time the hypervisor took meanwhile, if the kernel reports it.
    pub steal_ns: Option<u64>,
    /// Threads that ended, and those alive with their open part closed at the stop.
    pub threads: Vec<types::thread>,
    /// The index in `threads` of the sum of the unlisted ones.
    pub unlisted: Option<usize>,
    /// Threads that are inside a call: index into `threads` and kernel stack.
    pub open_calls: Vec<(usize, Vec<u64>)>,
    /// By `thread.index`, for threads that are asleep.
    pub open_waits: Vec<(u32, OpenWait)>,
    /// By call number.
    pub rows: BTreeMap<u32, types::row>,
    pub sleeps: Vec<(types::sleep_key, types::sleep_row)>,
    pub wakers: Vec<(types::waker_key, types::waker_row)>,
    pub owners: Vec<(types::owner_key, types::owner_row)>,
    pub resources: Vec<(types::resource_key, types::resource_row)>,
    pub chains: Vec<types::chain_row>,
    pub cpu_waits: Vec<(types::cpu_key, types::cpu_row)>,
    pub spins: Vec<(types::spin_key, types::spin_row)>,
    /// Whether the kernel lets probes find the owning task of a lock.
    pub finds_owners: bool,
    /// Whether `stolen_ns` of the threads is known.
    pub tells_steal: bool,
    pub sites: Vec<(types::site_key, types::site_row)>,
    pub stacks: StackTable,
    pub lost: types::lost,
    pub probe_misses: u64,
    /// The number of values that programs keep of their own calls and that could not be true.
    pub refused: u64,
    /// Sentences on what else was not seen.
    pub notes: Vec<String>,
    /// Why a part of the run is missing.
    pub incomplete: Option<String>,
    pub deadlocks: Vec<Deadlock>,
    /// What calls in flight wait for, as far as it was read from outside.
    pub waited: Waits,
    /// With detail `samples`.
    pub samples: Option<Samples>,
}

impl Snapshot {
    /// The snapshot of a session without any results.
    pub(crate) fn empty(tap: Tap, detail: Detail, now: u64) -> Snapshot {
        Snapshot {
            tap,
            detail,
            slow_ns: 0,
            started_ns: now,
            stopped_ns: now,
            steal_ns: None,
            threads: Vec::new(),
            unlisted: None,
            open_calls: Vec::new(),
            open_waits: Vec::new(),
            rows: BTreeMap::new(),
            sleeps: Vec::new(),
            wakers: Vec::new(),
            owners: Vec::new(),
            resources: Vec::new(),
            chains: Vec::new(),
            cpu_waits: Vec::new(),
            spins: Vec::new(),
            finds_owners: true,
            tells_steal: false,
            sites: Vec::new(),
            stacks: StackTable::new(detail.callsites),
            lost: types::lost::default(),
            probe_misses: 0,
            refused: 0,
            notes: Vec::new(),
            incomplete: None,
            deadlocks: Vec::new(),
            waited: Waits::new(),
            samples: None,
        }
    }
}
