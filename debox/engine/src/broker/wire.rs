//! A session's results, as they are sent from the broker to the client that requested them.
//!
//! Only the fields that are listed here are sent. Fields that are added to the probes' tables are
//! not sent until they are listed, which requires a decision on who may see them.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::probe_data::Life;
use super::protocol::{self, FrameText};
use crate::collect::Snapshot;
use crate::options::{Detail, Tap};
use crate::stack_table::StackTable;
use crate::tables::types;

mod rows;

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
    rows: Table<u32, rows::Calls>,
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
    lost: rows::Lost,
    probe_misses: u64,
    /// The numbers that replace addresses in the stacks above, and their places.
    frames: Vec<(u64, FrameText)>,
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
pub fn encode(snapshot: &Snapshot, ended: usize, places: &Places) -> Vec<u8> {
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
        lost: rows::Lost::from(&snapshot.lost),
        probe_misses: snapshot.probe_misses,
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
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tables;

    const ADDRESS: u64 = 0xffff_8881_2345_6780;
    const STACK: u64 = 77;

    /// A snapshot with a kernel address wherever there can be one.
    fn snapshot() -> Snapshot {
        let thread = types::thread {
            task: ADDRESS,
            resource: ADDRESS,
            spin_lock: ADDRESS,
            calls: 7,
            ..types::thread::default()
        };
        let mut lock = types::resource_key::default();
        (lock.resource.kind, lock.resource.id) = (tables::RESOURCE_LOCK, ADDRESS);
        let mut ended_at = types::resource_row::default();
        ended_at.ends.peer_tgid = 4321;
        let sleep = types::sleep_row {
            count: 3,
            waiters_entry: 9,
            waiters_scope: tables::WAITERS_ALL,
            ..types::sleep_row::default()
        };
        Snapshot {
            threads: vec![thread; 3],
            open_calls: vec![(2, vec![ADDRESS + 1])],
            rows: BTreeMap::from([(39, types::row::default())]),
            sleeps: vec![(types::sleep_key::default(), sleep)],
            resources: vec![(lock, ended_at)],
            stacks: StackTable {
                kernel: HashMap::from([(STACK, vec![ADDRESS, ADDRESS + 1])]),
                ..StackTable::default()
            },
            ..Snapshot::empty(Tap::Kernel, Detail::default(), 5)
        }
    }

    fn encoded() -> Vec<u8> {
        let text = FrameText {
            function: "do_wait".to_string(),
            offset: 4,
            line: None,
        };
        encode(&snapshot(), 1, &Places::from([(ADDRESS, text)]))
    }

    #[test]
    fn addresses_and_counts_of_others_stay_with_the_broker() {
        let bytes = encoded();
        let as_number = protocol::encode(&ADDRESS);
        for address in [&ADDRESS.to_ne_bytes()[..], &as_number] {
            assert!(!bytes.windows(address.len()).any(|some| some == address));
        }
        let received = decode(&bytes).unwrap();
        let snapshot = &received.snapshot;
        assert_eq!((snapshot.threads.len(), received.ended), (3, 1));
        assert_eq!(
            (snapshot.threads[0].calls, snapshot.threads[0].task),
            (7, 0)
        );
        let (key, row) = &snapshot.resources[0];
        assert_eq!((key.resource.id, row.ends.peer_tgid), (0, 0));
        let (_, sleep) = &snapshot.sleeps[0];
        assert_eq!(
            (sleep.count, sleep.waiters_entry, sleep.waiters_scope),
            (3, 0, 0)
        );
        assert!(addresses(snapshot).all(|number| number < 100));
    }

    #[test]
    fn what_stands_for_an_address_has_its_place() {
        let received = decode(&encoded()).unwrap();
        let frames: HashMap<u64, FrameText> = received.frames.into_iter().collect();
        let stack = &received.snapshot.stacks.kernel[&STACK];
        let names = stack.iter().map(|number| frames[number].function.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["do_wait", "(no symbol)"]);
        assert_eq!(received.snapshot.open_calls, [(2, vec![stack[1]])]);
    }

    /// One row of each table, in which every field that is sent has a different value.
    #[test]
    fn rows_pass_with_all_fields_that_are_named() {
        let mut sent = snapshot();
        let comm = [7i8; 16];
        let link = types::chain_link {
            stack: 1,
            blocked_ns: 2,
            stack_ns: 3,
            call: 4,
            lock_flags: 5,
            tid: 6,
            certainty: 7,
            doing: 8,
            measured: 9,
            comm,
        };
        let mut links = [types::chain_link::default(); 4];
        links[..2].fill(link);
        let chain = types::chain_row {
            count: 3,
            length: 2,
            end: 1,
            links,
        };
        let mut row = types::row {
            calls: 1,
            errors: 2,
            restarts: 3,
            parts: [4, 5, 6, 7, 8, 9],
            faults_minor: 10,
            faults_major: 11,
            max_ns: 12,
            spin_ns: 13,
            read_bytes: 14,
            write_bytes: 15,
            ..types::row::default()
        };
        (row.histogram[0], row.histogram[295]) = (16, 17);
        let mut cpu = types::cpu_row {
            turns: 1,
            ns: 2,
            max_ns: 3,
            quota_ns: 4,
            period_ns: 5,
            flags: 6,
            cpus_allowed: 7,
            comm,
            ..types::cpu_row::default()
        };
        cpu.group[..3].fill(9);
        let mut socket = types::resource_row {
            count: 1,
            blocked_ns: 2,
            ..types::resource_row::default()
        };
        (socket.ends.family, socket.ends.r#type) = (3, 4);
        (socket.ends.local_port, socket.ends.peer_port) = (5, 6);
        (socket.ends.local, socket.ends.peer) = ([8; 16], [9; 16]);
        socket.name[1..4].fill(10); // an abstract address begins with a zero
        let mut stack = types::user_stack {
            tgid: 1,
            depth: tables::RAW_STACK,
            ..types::user_stack::default()
        };
        stack.frames[2] = 5;
        sent.rows = BTreeMap::from([(39, row)]);
        sent.chains = vec![chain];
        sent.cpu_waits = vec![(types::cpu_key::default(), cpu)];
        sent.resources = vec![(types::resource_key::default(), socket)];
        sent.stacks.user = HashMap::from([(STACK, stack)]);
        (sent.lost.unseen_wait_ns, sent.lost.in_calls) = (4, [5; 6]);
        let bytes = encode(&sent, 1, &Places::new());
        let got = decode(&bytes).expect("a snapshot").snapshot;
        // The structs are integers without padding, so equal bytes mean equal values.
        assert_eq!(tables::bytes_of(&got.rows[&39]), tables::bytes_of(&row));
        assert_eq!(tables::bytes_of(&got.chains[0]), tables::bytes_of(&chain));
        assert_eq!(
            tables::bytes_of(&got.cpu_waits[0].1),
            tables::bytes_of(&cpu)
        );
        assert_eq!(
            tables::bytes_of(&got.resources[0].1),
            tables::bytes_of(&socket)
        );
        assert_eq!(
            tables::bytes_of(&got.stacks.user[&STACK]),
            tables::bytes_of(&stack)
        );
        assert_eq!(tables::bytes_of(&got.lost), tables::bytes_of(&sent.lost));
    }

    #[test]
    fn snapshots_that_were_cut_are_refused() {
        let bytes = encoded();
        for length in (0..bytes.len()).step_by(7) {
            assert!(decode(&bytes[..length]).is_none());
        }
    }

    proptest! {
        #[test]
        fn damaged_snapshots_are_refused_or_others(
            at in any::<prop::sample::Index>(), with in any::<u8>(),
        ) {
            let mut bytes = encoded();
            let at = at.index(bytes.len());
            bytes[at] = with;
            if let Some(received) = decode(&bytes) {
                let count = received.snapshot.threads.len();
                prop_assert!(received.ended <= count);
            }
        }
    }
}
