//! Goes through the rows, as columns, with as many threads as the machine has.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;

use anyhow::{Context, Result};
use arrow::array::{Array, AsArray, BooleanArray, PrimitiveArray, RecordBatch, StructArray};
use arrow::datatypes::{ArrowPrimitiveType, TimestampNanosecondType, UInt32Type, UInt64Type};
use debox_history::{Group, History};

use crate::aggregate::{
    Aggregate, LabelSums, Parts, Place, StackKey, ThreadSums, WaitKey, WaitSums,
};
use crate::names::{Name, Names, Translator, NONE};
use crate::segments::{room, Random, Segment, SEGMENTS};
use crate::timeline::{part_of_class, CPU, IRQ, PREEMPTED, RUNQUEUE, UNLISTED};

/// Rows that are decoded at once.
const BATCH_ROWS: usize = 32_768;

const COLUMNS: &[&str] = &[
    "time",
    "pid",
    "tid",
    "comm",
    "call",
    "error",
    "wall_ns",
    "cpu_ns",
    "blocked_ns",
    "runqueue_ns",
    "preempted_ns",
    "irq_ns",
    "spin_ns",
    "faults_minor",
    "faults_major",
    "restarted",
    "partial",
    "caller",
    "stack",
    "sleeps.begin_ns",
    "sleeps.blocked_ns",
    "sleeps.label",
    "sleeps.class",
    "sleeps.site",
    "sleeps.stack",
    "sleeps.resource",
    "sleeps.waker_kind",
    "sleeps.waker_comm",
    "sleeps.owner_certainty",
    "sleeps.owner_tid",
    "sleeps.owner_comm",
    "sleeps.owner_doing",
    "sleeps_left_out",
];

/// Adds up all rows. `progress` is told how many more rows are done.
pub fn scan(
    history: &History,
    threads: usize,
    names: &Names,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Aggregate> {
    let groups = history.groups();
    let origin = origin(&groups)?;
    let parts = SEGMENTS.div_ceil(groups.len().max(1));
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let done = Mutex::new(Vec::new());
    let work = || {
        let mut scanner = Scanner::new(origin, names, room(parts * groups.len()));
        let result = (|| -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(group) = groups.get(index) else {
                    break;
                };
                scanner.group(index as u32, group, parts, progress)?;
            }
            Ok(())
        })();
        if result.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        let mut done = done.lock().unwrap_or_else(|lock| lock.into_inner());
        done.push(result.map(|()| scanner.aggregate));
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(groups.len()).max(1) {
            scope.spawn(work);
        }
        work();
    });
    let done = done.into_inner().unwrap_or_else(|lock| lock.into_inner());
    let mut whole = Aggregate::new(origin);
    for aggregate in done {
        whole.merge(aggregate?);
    }
    Ok(whole)
}

/// When the history begins: the first time in the first groups of its files. Rows come nearly in the
/// order of their ends; what began earlier counts there.
fn origin(groups: &[Group<'_>]) -> Result<i64> {
    let mut first = i64::MAX;
    for group in groups.iter().filter(|group| group.index == 0) {
        for batch in group.batches(&["time"], BATCH_ROWS)? {
            let batch = batch?;
            let times = numbers::<TimestampNanosecondType>(&batch, "time")?;
            first = times
                .values()
                .iter()
                .fold(first, |first, time| first.min(*time));
        }
    }
    Ok(if first == i64::MAX { 0 } else { first })
}

#[derive(Default)]
struct Translators {
    comm: Translator,
    call: Translator,
    error: Translator,
    caller: Translator,
    stack: Translator,
    label: Translator,
    class: Translator,
    site: Translator,
    kernel: Translator,
    resource: Translator,
    waker_kind: Translator,
    waker_comm: Translator,
    certainty: Translator,
    owner: Translator,
    doing: Translator,
}

struct Scanner<'a> {
    aggregate: Aggregate,
    names: &'a Names,
    translators: Translators,
    /// The part of the timeline of each class.
    parts: rustc_hash::FxHashMap<Name, usize>,
    idle: Name,
    user: Name,
    room: usize,
    /// Labels of the call at hand.
    labels: Vec<(Name, LabelSums)>,
}

fn numbers<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a PrimitiveArray<T>> {
    let column = batch
        .column_by_name(name)
        .and_then(|column| column.as_primitive_opt::<T>());
    column.with_context(|| format!("the column {name} is missing or of another type"))
}

fn flags<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a BooleanArray> {
    let column = batch
        .column_by_name(name)
        .and_then(|column| column.as_boolean_opt());
    column.with_context(|| format!("the column {name} is missing or of another type"))
}

fn field<'a, T: ArrowPrimitiveType>(
    entries: &'a StructArray,
    name: &str,
) -> Result<&'a PrimitiveArray<T>> {
    let column = entries
        .column_by_name(name)
        .and_then(|column| column.as_primitive_opt::<T>());
    column.with_context(|| format!("the field sleeps.{name} is missing or of another type"))
}

impl<'a> Scanner<'a> {
    fn new(origin: i64, names: &'a Names, room: usize) -> Scanner<'a> {
        Scanner {
            aggregate: Aggregate::new(origin),
            names,
            translators: Translators::default(),
            parts: rustc_hash::FxHashMap::default(),
            idle: names.of("idle"),
            user: names.of(crate::build::USER),
            room,
            labels: Vec::new(),
        }
    }

    fn group(
        &mut self,
        index: u32,
        group: &Group<'_>,
        parts: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<()> {
        let path = || format!("cannot read {}: it is damaged", group.file.path.display());
        let mut row = 0;
        let mut part = 0;
        let mut random = Random::new(u64::from(index));
        for batch in group.batches(COLUMNS, BATCH_ROWS)? {
            let batch = batch?;
            let mut from = 0;
            while from < batch.num_rows() {
                // Where the part at hand ends.
                let end = group
                    .rows
                    .saturating_mul(part as u64 + 1)
                    .div_ceil(parts as u64);
                let to = end.saturating_sub(row).min(batch.num_rows() as u64) as usize;
                if to <= from && part + 1 < parts {
                    self.end_segment(index, part as u32);
                    part += 1;
                    continue;
                }
                let to = if to <= from { batch.num_rows() } else { to };
                self.rows(&batch, from..to, (index, row), &mut random)
                    .with_context(path)?;
                from = to;
            }
            row += batch.num_rows() as u64;
            progress(batch.num_rows() as u64);
        }
        self.end_segment(index, part as u32);
        Ok(())
    }

    fn end_segment(&mut self, group: u32, part: u32) {
        let aggregate = &mut self.aggregate;
        let calls = std::mem::take(&mut aggregate.current)
            .into_iter()
            .enumerate();
        let calls = calls
            .filter(|(_, call)| call.count > 0)
            .map(|(index, call)| (aggregate.calls[index].0, call))
            .collect();
        aggregate.segments.push(Segment { group, part, calls });
    }

    /// Adds rows of a batch whose first is `place` of its group.
    fn rows(
        &mut self,
        batch: &RecordBatch,
        range: std::ops::Range<usize>,
        place: (u32, u64),
        random: &mut Random,
    ) -> Result<()> {
        let names = self.names;
        let texts = &mut self.translators;
        let column = |name: &str| {
            let found = batch.column_by_name(name);
            found.with_context(|| format!("the column {name} is missing"))
        };
        let times = numbers::<TimestampNanosecondType>(batch, "time")?.values();
        let pids = numbers::<UInt32Type>(batch, "pid")?.values();
        let tids = numbers::<UInt32Type>(batch, "tid")?.values();
        let comms = texts.comm.column(column("comm")?, names)?;
        let call_names = texts.call.column(column("call")?, names)?;
        let errors = texts.error.column(column("error")?, names)?;
        let callers = texts.caller.column(column("caller")?, names)?;
        let stacks = texts.stack.column(column("stack")?, names)?;
        let long = |name: &str| numbers::<UInt64Type>(batch, name).map(|column| column.values());
        let (wall, cpu, blocked) = (long("wall_ns")?, long("cpu_ns")?, long("blocked_ns")?);
        let (runqueue, preempted) = (long("runqueue_ns")?, long("preempted_ns")?);
        let (irq, spin) = (numbers::<UInt64Type>(batch, "irq_ns")?, long("spin_ns")?);
        let no_irq = irq.null_count() == irq.len();
        let minor = numbers::<UInt32Type>(batch, "faults_minor")?.values();
        let major = numbers::<UInt32Type>(batch, "faults_major")?.values();
        let (restarted, partial) = (flags(batch, "restarted")?, flags(batch, "partial")?);
        let left_out = numbers::<UInt32Type>(batch, "sleeps_left_out")?.values();
        let lists = column("sleeps")?
            .as_list_opt::<i32>()
            .context("the column sleeps is no list")?;
        let entries: &StructArray = lists
            .values()
            .as_struct_opt()
            .context("the column sleeps has no fields")?;
        let entry = |name: &str| {
            let found = entries.column_by_name(name);
            found.with_context(|| format!("the field sleeps.{name} is missing"))
        };
        let sleep_begin = field::<UInt64Type>(entries, "begin_ns")?.values();
        let sleep_blocked = field::<UInt64Type>(entries, "blocked_ns")?.values();
        let owner_tids = field::<UInt32Type>(entries, "owner_tid")?;
        let labels = texts.label.column(entry("label")?, names)?;
        let classes = texts.class.column(entry("class")?, names)?;
        let sites = texts.site.column(entry("site")?, names)?;
        let kernels = texts.kernel.column(entry("stack")?, names)?;
        let resources = texts.resource.column(entry("resource")?, names)?;
        let waker_kinds = texts.waker_kind.column(entry("waker_kind")?, names)?;
        let waker_comms = texts.waker_comm.column(entry("waker_comm")?, names)?;
        let certainties = texts.certainty.column(entry("owner_certainty")?, names)?;
        let owners = texts.owner.column(entry("owner_comm")?, names)?;
        let doings = texts.doing.column(entry("owner_doing")?, names)?;
        let offsets = lists.value_offsets();

        let aggregate = &mut self.aggregate;
        aggregate.has_irq |= !no_irq;
        aggregate.rows += range.len() as u64;
        let (mut last_call, mut last_index) = (NONE, 0);
        for row in range {
            let call = call_names.get(row);
            if call != last_call || row == 0 {
                (last_call, last_index) = (call, aggregate.call(call));
            }
            let begin = times[row];
            let parts = Parts {
                wall: wall[row],
                cpu: cpu[row],
                blocked: blocked[row],
                runqueue: runqueue[row],
                preempted: preempted[row],
                irq: if no_irq || irq.is_null(row) {
                    0
                } else {
                    irq.value(row)
                },
            };
            aggregate.first = aggregate.first.min(begin);
            let end = begin.saturating_add(parts.wall.min(i64::MAX as u64) as i64);
            aggregate.last = aggregate.last.max(end);
            let timeline = &mut aggregate.timeline;
            // Between calls, CPU time is the program's own, and only some of it is in the history.
            let in_call = call != self.user;
            if in_call {
                timeline.add(begin, parts.wall, CPU, parts.cpu);
            }
            timeline.add(begin, parts.wall, IRQ, parts.irq);
            timeline.add(begin, parts.wall, RUNQUEUE, parts.runqueue);
            timeline.add(begin, parts.wall, PREEMPTED, parts.preempted);
            let (mut listed, mut idle) = (0u64, 0u64);
            let (from, to) = (offsets[row] as usize, offsets[row + 1] as usize);
            self.labels.clear();
            for at in from..to {
                let ns = sleep_blocked[at];
                let (label, class) = (labels.get(at), classes.get(at));
                let part = match self.parts.get(&class) {
                    Some(part) => *part,
                    None => {
                        let part = part_of_class(&names.get(class));
                        self.parts.insert(class, part);
                        part
                    }
                };
                listed = listed.saturating_add(ns);
                if class == self.idle {
                    idle = idle.saturating_add(ns);
                }
                let since = sleep_begin[at].min(i64::MAX as u64) as i64;
                aggregate
                    .timeline
                    .add(begin.saturating_add(since), ns, part, ns);
                aggregate.classes.entry(label).or_insert(class);
                match self.labels.iter_mut().find(|(known, _)| *known == label) {
                    Some((_, sums)) => {
                        sums.sleeps += 1;
                        sums.blocked = sums.blocked.saturating_add(ns);
                    }
                    None => self.labels.push((
                        label,
                        LabelSums {
                            sleeps: 1,
                            calls: 1,
                            blocked: ns,
                        },
                    )),
                }
                let caller = callers.get(row);
                let stack = stacks.get(row);
                let kernel = kernels.get(at);
                let key = StackKey {
                    stack: if stack == NONE { caller } else { stack },
                    call,
                    label,
                    kernel: if kernel == NONE {
                        sites.get(at)
                    } else {
                        kernel
                    },
                };
                aggregate.add_stack(key, ns, 1);
                let key = WaitKey {
                    comm: comms.get(row),
                    is_main: pids[row] == tids[row],
                    call,
                    label,
                    resource: resources.get(at),
                    caller,
                    certainty: certainties.get(at),
                    owner: owners.get(at),
                    doing: doings.get(at),
                };
                let sums = WaitSums {
                    count: 1,
                    blocked: ns,
                    longest: ns,
                    tid: tids[row],
                    owner_tid: owner_tids.is_valid(at).then(|| owner_tids.value(at)),
                    waker: Some((waker_kinds.get(at), waker_comms.get(at))),
                    ..WaitSums::default()
                };
                aggregate.add_wait(key, &sums);
            }
            let unlisted = parts.blocked.saturating_sub(listed);
            let timeline = &mut aggregate.timeline;
            timeline.add(begin, parts.wall, UNLISTED, unlisted);
            for (label, sums) in &self.labels {
                aggregate.add_label(call, *label, sums);
            }
            let sums = &mut aggregate.calls[last_index].1;
            sums.count += 1;
            sums.parts.add(&parts);
            sums.idle = sums.idle.saturating_add(idle);
            sums.spin = sums.spin.saturating_add(spin[row]);
            sums.faults_minor += u64::from(minor[row]);
            sums.faults_major += u64::from(major[row]);
            sums.restarted += u64::from(restarted.value(row));
            sums.partial += u64::from(partial.value(row));
            sums.slept += u64::from(to > from);
            sums.left_out += u64::from(left_out[row]);
            sums.histogram.add(parts.wall);
            sums.offer(Place {
                score: parts.wall.saturating_sub(idle),
                group: place.0,
                row: (place.1 + row as u64) as u32,
            });
            let error = errors.get(row);
            if error != NONE && sums.errors.len() < 256 {
                *sums.errors.entry(error).or_default() += 1;
            }
            if aggregate.current.len() <= last_index {
                aggregate
                    .current
                    .resize_with(last_index + 1, Default::default);
            }
            aggregate.current[last_index].add(parts.wall, parts.cpu, self.room, random);
            let thread = ThreadSums {
                pid: pids[row],
                comm: comms.get(row),
                calls: u64::from(in_call),
                parts,
                idle,
            };
            aggregate.add_thread(tids[row], &thread);
        }
        Ok(())
    }
}
