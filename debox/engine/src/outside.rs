//! Everything that reads data written by others, run on arbitrary bytes, with the properties that must
//! hold.
//!
//! Events and tables come from the probes, but processes under the user tap can write to their slots
//! and rows; programs and libraries are files that any user may have made. The property tests beside
//! this file and the fuzz targets (`fuzz/`) call the same functions. The preload shim's readers are in
//! C: `fuzz/welcome.c`, and the property tests in `debox/preload/tests`.

mod packets;
mod programs;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::FileExt;

use crate::broker::owners::Owners;
use crate::broker::wire::{self, look};
use crate::collect::{Outcome, Snapshot};
use crate::explain::Explainer;
use crate::inband;
use crate::options::{Detail, Tap};
use crate::process::Processes;
use crate::record::{Record, Slot, HISTORY_MAX};
use crate::report::Report;
use crate::resources::Resources;
use crate::session::{frames_in_flight, tasks_by_index, Events};
use crate::stack_table::StackTable;
use crate::stacks::Stacks;
use crate::symbols::Symbols;
use crate::tables::{self, types};
use crate::trace;
use crate::usertap::{Address, TapRows};

pub use packets::{admission, reply, request, welcome};
#[cfg(feature = "fuzzing")]
pub use programs::memory_file;
pub use programs::{mappings, program, unwinding, ASK, STACK};

/// Turns bytes into values; zeros when there are no more.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn value<T: Copy>(&mut self) -> T {
        let (now, later) = self.0.split_at(self.0.len().min(std::mem::size_of::<T>()));
        self.0 = later;
        let mut bytes = now.to_vec();
        bytes.resize(std::mem::size_of::<T>(), 0);
        tables::read_value(&bytes).expect("as many bytes as it takes")
    }

    fn count(&mut self, most: u8) -> usize {
        usize::from(self.value::<u8>()) % (usize::from(most) + 1)
    }

    fn values<T: Copy>(&mut self, most: u8) -> Vec<T> {
        (0..self.count(most)).map(|_| self.value()).collect()
    }

    fn is_set(&mut self) -> bool {
        self.value::<u8>() & 1 != 0
    }
}

/// Parses both files, with a zero byte between them. A user must count for itself or for the owner of a
/// range that includes it, and root for itself.
pub fn subordinates(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (ranges, users) = text.split_once('\0').unwrap_or((&text, ""));
    let owners = Owners::read(ranges, users);
    assert_eq!(owners.owner(0), 0);
    let numbers = text.split([':', '\n', '\0']);
    let numbers: Vec<u32> = numbers
        .filter_map(|field| field.trim().parse().ok())
        .collect();
    for edge in numbers.iter().take(64) {
        for uid in [edge.saturating_sub(1), *edge, edge.saturating_add(1)] {
            let owner = owners.owner(uid);
            assert!(owner == uid || numbers.contains(&owner));
        }
    }
}

/// Makes a report of arbitrary tables. No sum in it may be less than one of its parts.
pub fn report(bytes: &[u8]) -> Report {
    let mut source = Source(bytes);
    let report = report_of(&snapshot(&mut source), source.value());
    check(&report);
    assert!(report.threads.len() <= 5 && report.in_flight.len() <= 2);
    report
}

/// Decodes a report as if it came from the broker.
pub fn broker_report(bytes: &[u8]) {
    if let Some(received) = wire::decode(bytes) {
        assert!(received.ended <= received.snapshot.threads.len());
        check(&report_of(&received.snapshot, 0));
    }
}

/// Decodes a look, or the stacks of sleeping threads, as if they came from the broker.
pub fn broker_look(bytes: &[u8]) {
    if let Some(tables) = look::decode(bytes) {
        assert!(tables.ended.is_empty() && tables.living.len() <= bytes.len());
    }
    if let Some(tasks) = look::decode_tasks(bytes) {
        assert!(tasks.len() <= bytes.len());
    }
}

fn report_of(snapshot: &Snapshot, status: i32) -> Report {
    let processes = RefCell::new(Processes::default());
    let stacks = RefCell::new(Stacks::default());
    let explainer = Explainer::new(&snapshot.stacks, &processes, &stacks);
    let outcome = Outcome {
        command: vec!["any".to_string()],
        exit_status: Some(status),
    };
    snapshot.report(outcome, &explainer, &Resources::default())
}

fn snapshot(source: &mut Source) -> Snapshot {
    let threads: Vec<types::thread> = source.values(4);
    let is_some = !threads.is_empty();
    let unlisted = (is_some && source.is_set()).then(|| source.count(255) % threads.len());
    let open_calls: Vec<(u8, Vec<u64>)> = (0..source.count(2))
        .map(|_| (source.value(), source.values(3)))
        .collect();
    let tap = [Tap::Kernel, Tap::User][source.count(1)];
    let detail = Detail {
        sleeps: source.is_set(),
        callsites: source.is_set(),
        irq: source.is_set(),
        io: source.is_set(),
        cpu: source.is_set(),
        samples: false,
    };
    Snapshot {
        tap,
        detail,
        slow_ns: source.value(),
        notes: Vec::new(),
        started_ns: source.value(),
        stopped_ns: source.value(),
        steal_ns: source.is_set().then(|| source.value()),
        finds_owners: source.is_set(),
        tells_steal: source.is_set(),
        open_calls: open_calls
            .into_iter()
            .filter(|_| is_some)
            .map(|(at, stack)| (usize::from(at) % threads.len(), stack))
            .collect(),
        open_waits: pairs(source, 3),
        threads,
        unlisted,
        rows: pairs(source, 3).into_iter().collect(),
        sleeps: pairs(source, 4),
        wakers: pairs(source, 4),
        owners: pairs(source, 4),
        resources: pairs(source, 4),
        chains: source.values(3),
        cpu_waits: pairs(source, 4),
        spins: pairs(source, 4),
        sites: pairs(source, 4),
        stacks: StackTable {
            args: pairs(source, 3).into_iter().collect(),
            kernel: (0..source.count(3))
                .map(|_| (source.value(), source.values(4)))
                .collect(),
            user: pairs(source, 3).into_iter().collect(),
            wants_whole: detail.callsites,
        },
        lost: source.value(),
        probe_misses: source.value(),
        refused: source.value(),
        incomplete: None,
        deadlocks: Vec::new(),
        waited: HashMap::new(),
        samples: None,
    }
}

fn pairs<K: Copy, V: Copy>(source: &mut Source, most: u8) -> Vec<(K, V)> {
    let count = source.count(most);
    (0..count)
        .map(|_| (source.value(), source.value()))
        .collect()
}

fn check(report: &Report) {
    for row in &report.syscalls {
        let parts = [
            row.cpu_ns,
            row.blocked_ns,
            row.runqueue_ns,
            row.preempted_ns,
        ];
        assert!(parts.iter().all(|part| *part <= row.wall_ns), "{row:?}");
    }
    for thread in &report.threads {
        let (life, all) = (&thread.totals, &report.totals);
        assert!(life.user_cpu_ns <= life.wall_ns && life.blocked_ns <= life.wall_ns);
        assert!(life.wall_ns <= all.wall_ns && life.blocked_ns <= all.blocked_ns);
    }
    for sleep in &report.sleeps {
        assert!(
            !sleep.label.is_empty() && !sleep.class.is_empty() && !sleep.site.function.is_empty()
        );
    }
}

/// Processes messages of the probes, each preceded by its length, and then the state that they led to.
pub fn events(bytes: &[u8]) {
    let mut events = Events::default();
    let mut source = Source(bytes);
    while !source.0.is_empty() {
        let length = usize::from(source.value::<u16>()).min(source.0.len());
        let (message, later) = source.0.split_at(length);
        source.0 = later;
        events.take(message);
    }
    let symbols = Symbols::default();
    for seen in std::mem::take(&mut events.call_sites).iter().take(4) {
        // Process ids in the input would refer to processes of this machine, which are not part of the
        // test.
        let seen = types::call_site_seen { tgid: 0, ..*seen };
        events.processes.borrow_mut().learn(&seen);
        look_up(
            &events.processes.borrow(),
            &symbols,
            seen.tgid,
            seen.ip,
            true,
        );
    }
}

fn look_up(processes: &Processes, symbols: &Symbols, tgid: u32, ip: u64, is_return: bool) {
    let Some(located) = processes.find(tgid, ip) else {
        return;
    };
    if let Some(module) = &located.module {
        let names = symbols.user(module, located.file_offset, is_return);
        assert!(names.iter().all(|name| !name.function.is_empty()) && !names.is_empty());
    }
}

/// Parses the output of the task iterator.
pub fn in_flight(bytes: &[u8]) {
    let tasks = tasks_by_index(bytes);
    assert!(tasks
        .values()
        .all(|task| frames_in_flight(task).len() <= 24));
}

/// Reads a slot that another process wrote to.
pub fn slot(bytes: &[u8]) {
    let mut source = Source(bytes);
    let floor: u64 = source.value();
    let wanted = source.count(9);
    let slot: Box<Slot> = Box::new(source.value());
    let mut records = vec![Record::default(); wanted];
    let copied = inband::copy_history(&raw const *slot, &mut records, floor);
    assert!(copied <= wanted.min(HISTORY_MAX));
    for record in &records[..copied] {
        assert!(record.sequence % 2 == 0 && record.number > floor);
        let text = format!(
            "{record:?} {:?} {}",
            record.errno(),
            record.budget.total_ns()
        );
        assert!(text.contains(&record.call_name()));
        for sleep in record.sleeps() {
            let _ = (sleep.waker(), sleep.waker_comm(), sleep.resource_kind());
        }
    }
}

/// Reads a file of rows that processes wrote to anywhere.
pub fn rows(bytes: &[u8]) {
    let mut source = Source(bytes);
    let rows = TapRows::create(3).expect("a memory file");
    let length = rows.file.metadata().expect("a memory file").len();
    while !source.0.is_empty() {
        let at = u64::from(source.value::<u32>()) % length;
        let count = source.count(64).min((length - at) as usize);
        let written: Vec<u8> = (0..count).map(|_| source.value()).collect();
        rows.file.write_all_at(&written, at).expect("memory");
    }
    let mut sum: BTreeMap<u32, types::row> = BTreeMap::new();
    rows.add_to(&mut sum).expect("a readable memory file");
    assert!(sum.keys().all(|call| *call < 511 || *call == 0xffff));
    assert!(sum.values().all(|row| row.calls > 0));
    // The file is younger than a minute, and so is each of its three threads.
    let most_ns = 3 * 60_000_000_000;
    assert!(sum
        .values()
        .all(|row| tables::total(&row.parts) < most_ns && row.max_ns < most_ns));
}

/// Parses a text from the environment; returns whether it is a session's address.
pub fn tap_address(text: &str) -> bool {
    let address = Address::parse(text);
    if let Some(address) = &address {
        assert_eq!(Address::parse(&address.to_string()).as_ref(), Some(address));
    }
    address.is_some()
}

/// Makes the call tree of arbitrary nodes.
pub fn tree(bytes: &[u8]) {
    let mut source = Source(bytes);
    let nodes: HashMap<u64, trace::trace_node> = (0..source.count(40))
        .map(|_| (u64::from(source.value::<u8>()), source.value()))
        .collect();
    let calls = trace::any_tree(&nodes, &|address| format!("{address:#x}"));
    assert!(calls.len() <= nodes.len());
}

/// Parses the kernel's list of its symbols.
pub fn kernel_symbols(text: &str, address: u64) {
    let kernel = trace::AnyFunctions::of_symbols(text);
    if let Some(function) = kernel.at(address) {
        assert!(function.address <= address && !function.name.is_empty());
        let _ = (kernel.is_traceable(function), kernel.is_unique(function));
        assert!(kernel.address_of(&function.name).is_some());
    }
}

/// Explains arbitrary kernel stacks.
pub fn names(bytes: &[u8]) -> HashMap<u64, String> {
    let symbols = Symbols::default();
    let mut source = Source(bytes);
    let addresses: Vec<u64> = source.values(16);
    let named = addresses
        .iter()
        .map(|at| (*at, symbols.kernel(*at).to_string()));
    named.collect()
}

#[cfg(test)]
#[path = "outside/tests.rs"]
mod tests;
