//! A session's results, as they are sent from the broker to the client that requested them.
//!
//! Only the fields that are listed here are sent. Fields that are added to the probes' tables are
//! not sent until they are listed, which requires a decision on who may see them.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::probe_data::Life;
use super::protocol::{self, FrameText};
use super::record_data::OpenCall;
use crate::collect::Snapshot;
use crate::options::{Detail, Tap};
use crate::stack_table::StackTable;
use crate::sums::{Calls, Lost};
use crate::tables::types;
use crate::trigger::Counts;

pub(crate) mod look;
pub(super) mod rows;

/// Keys and values of a table, as they are sent.
type Table<K, V> = Vec<(K, V)>;

/// Converts a table of the probes to the rows that are sent, or back.
fn converted<'a, K, V, ShownK, ShownV>(table: &'a [(K, V)]) -> Table<ShownK, ShownV>
where
    ShownK: From<&'a K>,
    ShownV: From<&'a V>,
{
    let pairs = table.iter();
    pairs
        .map(|(key, value)| (key.into(), value.into()))
        .collect()
}

#[derive(Serialize, Deserialize)]
struct Wire {
    user_tap: bool,
    /// sleeps, callsites, irq, io, cpu
    detail: [bool; 5],
    slow_ns: u64,
    started_ns: u64,
    stopped_ns: u64,
    steal_ns: Option<u64>,
    threads: Vec<Life>,
    /// How many of these threads have ended and were not sent before.
    ended: usize,
    unlisted: Option<usize>,
    open_calls: Vec<(usize, Vec<u64>)>,
    open_waits: Table<u32, rows::Wait>,
    rows: Table<u32, Calls>,
    sleeps: Table<rows::SleepKey, rows::ShownSleep>,
    wakers: Table<rows::WakerKey, rows::Waker>,
    owners: Table<rows::OwnerKey, rows::OwnerRow>,
    resources: Table<rows::ResourceKey, rows::ResourceRow>,
    chains: Vec<rows::Chain>,
    cpu_waits: Table<rows::CpuKey, rows::CpuRow>,
    spins: Vec<rows::Spin>,
    finds_owners: bool,
    tells_steal: bool,
    sites: Table<rows::SiteKey, rows::Site>,
    kernel_stacks: Vec<(u64, Vec<u64>)>,
    stack_args: Vec<(u64, [u64; 3])>,
    user_stacks: Table<u64, rows::UserStack>,
    lost: Lost,
    probe_misses: u64,
    /// By index in the table of threads: the calls that have not returned.
    open_tasks: Table<u32, OpenCall>,
    triggers: Vec<Counts>,
    /// The numbers that replace addresses in the stacks above, and their places.
    frames: Vec<(u64, FrameText)>,
}

/// What a client gets in addition to a snapshot.
#[derive(Default)]
pub struct Beside {
    /// By index in the table of threads: the calls that had not returned. Their stacks are in the snapshot.
    pub tasks: HashMap<u32, types::in_flight>,
    pub triggers: Vec<Counts>,
}

/// The places of the addresses that have been looked up.
pub type Places = HashMap<u64, FrameText>;

/// Numbers addresses in the order in which they occur.
struct Numbers<'a> {
    places: &'a Places,
    numbers: HashMap<u64, u64>,
    frames: Vec<(u64, FrameText)>,
}

impl Numbers<'_> {
    fn of(&mut self, stack: &[u64]) -> Vec<u64> {
        stack.iter().map(|address| self.number(*address)).collect()
    }

    fn number(&mut self, address: u64) -> u64 {
        let next = self.numbers.len() as u64 + 1;
        let number = *self.numbers.entry(address).or_insert(next);
        if number == next {
            let unknown = || FrameText {
                function: "(no symbol)".to_string(),
                offset: 0,
                line: None,
            };
            let text = self.places.get(&address).cloned();
            self.frames.push((number, text.unwrap_or_else(unknown)));
        }
        number
    }
}

/// All kernel addresses in a snapshot.
pub fn addresses(snapshot: &Snapshot) -> impl Iterator<Item = u64> + '_ {
    let open = snapshot.open_calls.iter().map(|(_, stack)| stack);
    let stacks = snapshot.stacks.kernel.values();
    stacks.chain(open).flatten().copied()
}

/// Encodes a snapshot in the form that a client may have. The first `ended` of its threads have
/// ended.
pub fn encode(snapshot: &Snapshot, ended: usize, places: &Places, beside: &Beside) -> Vec<u8> {
    let mut numbers = Numbers {
        places,
        numbers: HashMap::new(),
        frames: Vec::new(),
    };
    let open_calls = snapshot.open_calls.iter();
    let open_calls = open_calls.map(|(at, stack)| (*at, numbers.of(stack)));
    let open_calls = open_calls.collect();
    let stacks = snapshot.stacks.kernel.iter();
    let kernel_stacks = stacks.map(|(name, stack)| (*name, numbers.of(stack)));
    let kernel_stacks = kernel_stacks.collect();
    let detail = snapshot.detail;
    protocol::encode(&Wire {
        user_tap: snapshot.tap == Tap::User,
        detail: [
            detail.sleeps,
            detail.callsites,
            detail.irq,
            detail.io,
            detail.cpu,
        ],
        slow_ns: snapshot.slow_ns,
        started_ns: snapshot.started_ns,
        stopped_ns: snapshot.stopped_ns,
        steal_ns: snapshot.steal_ns,
        threads: snapshot.threads.iter().map(Life::from).collect(),
        ended,
        unlisted: snapshot.unlisted,
        open_calls,
        open_waits: snapshot
            .open_waits
            .iter()
            .map(|(at, wait)| (*at, wait.into()))
            .collect(),
        rows: snapshot
            .rows
            .iter()
            .map(|(call, row)| (*call, row.into()))
            .collect(),
        sleeps: converted(&snapshot.sleeps),
        wakers: converted(&snapshot.wakers),
        owners: converted(&snapshot.owners),
        resources: converted(&snapshot.resources),
        chains: snapshot.chains.iter().map(rows::Chain::from).collect(),
        cpu_waits: converted(&snapshot.cpu_waits),
        spins: rows::Spin::list(&snapshot.spins),
        finds_owners: snapshot.finds_owners,
        tells_steal: snapshot.tells_steal,
        sites: converted(&snapshot.sites),
        kernel_stacks,
        stack_args: snapshot.stacks.args.iter().map(|(k, v)| (*k, *v)).collect(),
        user_stacks: snapshot
            .stacks
            .user
            .iter()
            .map(|(name, stack)| (*name, stack.into()))
            .collect(),
        lost: Lost::from(&snapshot.lost),
        probe_misses: snapshot.probe_misses,
        open_tasks: beside
            .tasks
            .iter()
            .map(|(at, task)| (*at, task.into()))
            .collect(),
        triggers: beside.triggers.clone(),
        frames: numbers.frames,
    })
}

/// A decoded snapshot.
pub struct Received {
    pub snapshot: Snapshot,
    /// How many of its threads have ended.
    pub ended: usize,
    /// The numbers that replace addresses in its stacks, and their places.
    pub frames: Vec<(u64, FrameText)>,
    pub beside: Beside,
}

/// `None` if the bytes are not exactly one snapshot.
pub fn decode(bytes: &[u8]) -> Option<Received> {
    let wire: Wire = protocol::decode(bytes)?;
    let [sleeps, callsites, irq, io, cpu] = wire.detail;
    let rows: BTreeMap<u32, types::row> = wire
        .rows
        .iter()
        .map(|(call, row)| (*call, row.into()))
        .collect();
    let snapshot = Snapshot {
        tap: if wire.user_tap {
            Tap::User
        } else {
            Tap::Kernel
        },
        detail: Detail {
            sleeps,
            callsites,
            irq,
            io,
            cpu,
            samples: false,
        },
        slow_ns: wire.slow_ns,
        started_ns: wire.started_ns,
        stopped_ns: wire.stopped_ns,
        steal_ns: wire.steal_ns,
        threads: wire.threads.iter().map(types::thread::from).collect(),
        unlisted: wire.unlisted,
        open_calls: wire.open_calls,
        open_waits: wire
            .open_waits
            .iter()
            .map(|(at, wait)| (*at, wait.into()))
            .collect(),
        rows,
        sleeps: converted(&wire.sleeps),
        wakers: converted(&wire.wakers),
        owners: converted(&wire.owners),
        resources: converted(&wire.resources),
        chains: wire.chains.iter().map(types::chain_row::from).collect(),
        cpu_waits: converted(&wire.cpu_waits),
        spins: wire.spins.iter().enumerate().map(rows::Spin::row).collect(),
        finds_owners: wire.finds_owners,
        tells_steal: wire.tells_steal,
        sites: converted(&wire.sites),
        stacks: StackTable {
            kernel: wire.kernel_stacks.into_iter().collect(),
            args: wire.stack_args.into_iter().collect(),
            user: wire
                .user_stacks
                .iter()
                .map(|(name, stack)| (*name, stack.into()))
                .collect(),
            wants_whole: callsites,
        },
        lost: types::lost::from(&wire.lost),
        probe_misses: wire.probe_misses,
        refused: 0,
        notes: Vec::new(),
        incomplete: None,
        deadlocks: Vec::new(),
        waited: HashMap::new(),
        samples: None,
    };
    let count = snapshot.threads.len();
    let is_whole = wire.ended <= count
        && snapshot
            .unlisted
            .is_none_or(|at| at == wire.ended && at < count)
        && snapshot
            .open_calls
            .iter()
            .all(|(at, _)| *at < count && *at >= wire.ended);
    is_whole.then_some(Received {
        snapshot,
        ended: wire.ended,
        frames: wire.frames,
        beside: Beside {
            tasks: wire
                .open_tasks
                .iter()
                .map(|(at, task)| (*at, task.into()))
                .collect(),
            triggers: wire.triggers,
        },
    })
}

#[cfg(test)]
mod tests;
