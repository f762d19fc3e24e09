//! What a session measured, on its way from the broker to the client that asked for it.
//!
//! Only what is named here goes: fields that are added to the probes' tables stay with the broker
//! until somebody has thought about who may see them.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::protocol::{self, FrameText};
use super::seen::{hide_address, Life};
use crate::collect::Snapshot;
use crate::session::{Detail, Tap};
use crate::tables::{self, types, OpenWait};

/// Plain C structs, as their bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Blob(Vec<u8>);

impl Blob {
    fn of<T: Copy>(items: &[T]) -> Blob {
        Blob(items.iter().flat_map(tables::bytes_of).copied().collect())
    }

    /// `None` if these are not whole structs.
    fn items<T: Copy>(&self) -> Option<Vec<T>> {
        let chunks = self.0.chunks_exact(std::mem::size_of::<T>());
        if !chunks.remainder().is_empty() {
            return None;
        }
        chunks.map(tables::read_value).collect()
    }
}

/// Keys and values of a table.
#[derive(Serialize, Deserialize)]
struct Table(Blob, Blob);

impl Table {
    fn of<K: Copy, V: Copy>(entries: impl IntoIterator<Item = (K, V)>) -> Table {
        let (keys, values): (Vec<K>, Vec<V>) = entries.into_iter().unzip();
        Table(Blob::of(&keys), Blob::of(&values))
    }

    fn entries<K: Copy, V: Copy>(&self) -> Option<Vec<(K, V)>> {
        let (keys, values) = (self.0.items()?, self.1.items()?);
        (keys.len() == values.len()).then(|| keys.into_iter().zip(values).collect())
    }
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
    /// So many of these have ended, and were not told of before.
    ended: usize,
    unlisted: Option<usize>,
    open_calls: Vec<(usize, Vec<u64>)>,
    open_waits: Table,
    rows: Table,
    sleeps: Table,
    wakers: Table,
    owners: Table,
    resources: Table,
    chains: Blob,
    cpu_waits: Table,
    finds_owners: bool,
    tells_steal: bool,
    sites: Table,
    kernel_stacks: Vec<(u64, Vec<u64>)>,
    stack_args: Vec<(u64, [u64; 3])>,
    user_stacks: Table,
    lost: Blob,
    probe_misses: u64,
    /// What stands for an address in the stacks above, and the place that it is.
    frames: Vec<(u64, FrameText)>,
}

fn shown_resource(
    (mut key, mut row): (types::resource_key, types::resource_row),
) -> (types::resource_key, types::resource_row) {
    hide_address(&mut key.resource);
    row.ends.peer_tgid = 0; // perhaps another user's process
    (key, row)
}

fn shown_wait((index, mut wait): (u32, OpenWait)) -> (u32, OpenWait) {
    hide_address(&mut wait.resource);
    (wait.owner.index, wait.owner.blocked_ns) = (0, 0);
    (index, wait)
}

fn shown_sleep(
    (key, mut row): (types::sleep_key, types::sleep_row),
) -> (types::sleep_key, types::sleep_row) {
    if row.waiters_scope == tables::WAITERS_ALL {
        (row.waiters_entry, row.waiters_exit, row.waiters_scope) = (0, 0, 0);
    }
    (key, row)
}

/// The place of each address, as far as it has been looked up.
pub type Places = HashMap<u64, FrameText>;

/// Numbers for addresses, as they come.
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

/// All addresses of the kernel in a snapshot.
pub fn addresses(snapshot: &Snapshot) -> impl Iterator<Item = u64> + '_ {
    let open = snapshot.open_calls.iter().map(|(_, stack)| stack);
    let stacks = snapshot.kernel_stacks.values();
    stacks.chain(open).flatten().copied()
}

/// The snapshot as a client may have it. The first `ended` of its threads have ended.
pub fn encode(snapshot: &Snapshot, ended: usize, places: &Places) -> Vec<u8> {
    let mut numbers = Numbers {
        places,
        numbers: HashMap::new(),
        frames: Vec::new(),
    };
    let open_calls = snapshot.open_calls.iter();
    let open_calls = open_calls.map(|(at, stack)| (*at, numbers.of(stack)));
    let open_calls = open_calls.collect();
    let stacks = snapshot.kernel_stacks.iter();
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
        open_waits: Table::of(snapshot.open_waits.iter().copied().map(shown_wait)),
        rows: Table::of(snapshot.rows.iter().map(|(call, row)| (*call, *row))),
        sleeps: Table::of(snapshot.sleeps.iter().copied().map(shown_sleep)),
        wakers: Table::of(snapshot.wakers.iter().copied()),
        owners: Table::of(snapshot.owners.iter().copied()),
        resources: Table::of(snapshot.resources.iter().copied().map(shown_resource)),
        chains: Blob::of(&snapshot.chains),
        cpu_waits: Table::of(snapshot.cpu_waits.iter().copied()),
        finds_owners: snapshot.finds_owners,
        tells_steal: snapshot.tells_steal,
        sites: Table::of(snapshot.sites.iter().copied()),
        kernel_stacks,
        stack_args: snapshot.stack_args.iter().map(|(k, v)| (*k, *v)).collect(),
        user_stacks: Table::of(snapshot.user_stacks.iter().map(|(k, v)| (*k, *v))),
        lost: Blob::of(&[snapshot.lost]),
        probe_misses: snapshot.probe_misses,
        frames: numbers.frames,
    })
}

/// What came over the wire.
pub struct Received {
    pub snapshot: Snapshot,
    /// So many of its threads have ended.
    pub ended: usize,
    /// What stands for an address in its stacks, and the place that it is.
    pub frames: Vec<(u64, FrameText)>,
}

/// `None` if that is not the whole of one snapshot.
pub fn decode(bytes: &[u8]) -> Option<Received> {
    let wire: Wire = protocol::decode(bytes)?;
    let [sleeps, callsites, irq, io, cpu] = wire.detail;
    let rows: BTreeMap<u32, types::row> = wire.rows.entries()?.into_iter().collect();
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
        },
        slow_ns: wire.slow_ns,
        started_ns: wire.started_ns,
        stopped_ns: wire.stopped_ns,
        steal_ns: wire.steal_ns,
        threads: wire.threads.iter().map(types::thread::from).collect(),
        unlisted: wire.unlisted,
        open_calls: wire.open_calls,
        open_waits: wire.open_waits.entries()?,
        rows,
        sleeps: wire.sleeps.entries()?,
        wakers: wire.wakers.entries()?,
        owners: wire.owners.entries()?,
        resources: wire.resources.entries()?,
        chains: wire.chains.items()?,
        cpu_waits: wire.cpu_waits.entries()?,
        finds_owners: wire.finds_owners,
        tells_steal: wire.tells_steal,
        sites: wire.sites.entries()?,
        kernel_stacks: wire.kernel_stacks.into_iter().collect(),
        stack_args: wire.stack_args.into_iter().collect(),
        user_stacks: wire.user_stacks.entries()?.into_iter().collect(),
        lost: *wire.lost.items()?.first()?,
        probe_misses: wire.probe_misses,
        refused: 0,
        notes: Vec::new(),
        incomplete: None,
        deadlocks: Vec::new(),
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

    const ADDRESS: u64 = 0xffff_8881_2345_6780;
    const STACK: u64 = 77;

    /// With an address of the kernel wherever one can be.
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
            kernel_stacks: HashMap::from([(STACK, vec![ADDRESS, ADDRESS + 1])]),
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
        let is_address = |bytes: &[u8]| bytes == &ADDRESS.to_ne_bytes()[..];
        assert!(!bytes.windows(8).any(is_address));
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
        let stack = &received.snapshot.kernel_stacks[&STACK];
        let names = stack.iter().map(|number| frames[number].function.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["do_wait", "(no symbol)"]);
        assert_eq!(received.snapshot.open_calls, [(2, vec![stack[1]])]);
    }

    #[test]
    fn structs_that_were_cut_are_refused() {
        let whole = Blob::of(&[1u64, 2]);
        assert_eq!(whole.items::<u64>(), Some(vec![1, 2]));
        assert_eq!(Blob(whole.0[..9].to_vec()).items::<u64>(), None);
        let bytes = encoded();
        for length in (0..bytes.len()).step_by(97) {
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
