//! Reads the rows, column by column, with as many threads as the machine has.

mod columns;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;

use anyhow::{Context, Result};
use arrow_array::types::TimestampNanosecondType;
use debox_history::{Group, History};
use debox_model::runtimes::Purpose;
use rand::rngs::Xoshiro256PlusPlus;
use rand::SeedableRng;

use crate::aggregate::{Aggregate, LabelSums, ThreadSums, WaitSums};
use crate::held_up::{self, Woken};
use crate::loopers::{self, CallKind, KindSums, Looper};
use crate::names::{Name, Names, NONE};
use crate::parts::Place;
use crate::segments::{samples_per_segment, Kind, Segment, SEGMENTS};
use crate::stacks::StackKey;
use crate::timeline::{part_of_class, CPU, IRQ, PREEMPTED, RUNQUEUE, UNLISTED};
use crate::user_level::Measured;
use crate::wait_key::WaitKey;
use crate::wait_lines::WaitLines;
use columns::{numbers, Columns, Sleeps, Translators, BATCH_ROWS};

/// Adds up all rows. `progress` is called with the number of further rows that are done.
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
        let mut scanner = Scanner::new(origin, names, samples_per_segment(parts * groups.len()));
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
    whole.keep_longest_open();
    Ok(whole)
}

/// When the history begins: the earliest time in the first groups of its files. Rows are nearly in
/// the order of their ends; a call that began earlier counts at this time.
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

struct Scanner<'a> {
    aggregate: Aggregate,
    names: &'a Names,
    translators: Translators,
    /// Maps the group's dictionary of calls to indices of the aggregate's calls.
    calls: Vec<usize>,
    kinds: Vec<CallKind>,
    idle: Name,
    user: Name,
    futex: Name,
    not_ended: Name,
    room: usize,
    wait_lines: WaitLines,
    /// Labels of the current call.
    labels: Vec<(Name, LabelSums)>,
}

/// The part of a row that its sleeps need.
struct Row {
    at: usize,
    begin: i64,
    call: Name,
    index: usize,
}

impl<'a> Scanner<'a> {
    fn new(origin: i64, names: &'a Names, room: usize) -> Scanner<'a> {
        Scanner {
            aggregate: Aggregate::new(origin),
            names,
            translators: Translators::default(),
            calls: Vec::new(),
            kinds: Vec::new(),
            idle: names.of("idle"),
            user: names.of(crate::parts::USER),
            futex: names.of(crate::rest::FUTEX),
            not_ended: names.of(crate::slow_calls::NOT_ENDED),
            room,
            wait_lines: WaitLines::default(),
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
        let mut random = Xoshiro256PlusPlus::seed_from_u64(u64::from(index));
        for batch in group.batches(&columns::wanted(group), BATCH_ROWS)? {
            let batch = batch?;
            let mut translators = std::mem::take(&mut self.translators);
            let columns = Columns::of(&batch, &mut translators, self.names).with_context(path)?;
            self.calls.clear();
            self.kinds.clear();
            for name in columns.call.names() {
                self.kinds.push(CallKind::of(&self.names.get(*name)));
                self.calls.push(self.aggregate.call(*name));
            }
            let mut from = 0;
            while from < batch.num_rows() {
                // Where the current segment ends.
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
                self.rows(&columns, from..to, (index, row), &mut random);
                from = to;
            }
            row += batch.num_rows() as u64;
            progress(batch.num_rows() as u64);
            self.translators = translators;
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

    /// Adds rows of a batch. `place`: the group, and the group's row that is the first of the batch.
    fn rows(
        &mut self,
        columns: &Columns<'_>,
        range: std::ops::Range<usize>,
        place: (u32, u64),
        random: &mut Xoshiro256PlusPlus,
    ) {
        let aggregate = &mut self.aggregate;
        aggregate.has_irq |= columns.has_irq;
        aggregate.rows += range.len() as u64;
        let calls = aggregate.calls.len();
        if aggregate.current.len() < calls {
            aggregate.current.resize_with(calls, Default::default);
        }
        for row in range {
            let aggregate = &mut self.aggregate;
            let key = columns.call.key(row);
            let (call, index) = match self.calls.get(key) {
                Some(index) => (columns.call.names()[key], *index),
                None => (NONE, aggregate.call(NONE)),
            };
            let begin = columns.time[row];
            let parts = columns.parts(row);
            let wall = parts.wall.min(i64::MAX as u64) as i64;
            aggregate.first = aggregate.first.min(begin);
            aggregate.last = aggregate.last.max(begin.saturating_add(wall));
            // CPU time between calls is the program's own, and the history has only some of it.
            let in_call = call != self.user;
            let (mut listed, mut idle) = (0, 0);
            let sleeps = columns.sleeps_of(row);
            let slept = !sleeps.is_empty();
            if let (true, Some(columns_of_sleeps)) = (slept, &columns.sleeps) {
                let row = Row {
                    at: row,
                    begin,
                    call,
                    index,
                };
                (listed, idle) = self.sleeps(columns, columns_of_sleeps, &row, sleeps);
            }
            let aggregate = &mut self.aggregate;
            let sums = &mut aggregate.calls[index].1;
            let amounts = [
                (CPU, if in_call { parts.cpu } else { 0 }),
                (IRQ, parts.irq),
                (RUNQUEUE, parts.runqueue),
                (PREEMPTED, parts.preempted),
                (UNLISTED, parts.blocked.saturating_sub(listed)),
            ];
            sums.timeline.add_all(begin, parts.wall, &amounts);
            let in_flight = columns.in_flight.is_some_and(|flags| flags.value(row));
            sums.parts.add(&parts);
            sums.idle = sums.idle.saturating_add(idle);
            sums.spin = sums.spin.saturating_add(columns.spin[row]);
            sums.faults_minor += u64::from(columns.minor[row]);
            sums.faults_major += u64::from(columns.major[row]);
            sums.restarted += u64::from(columns.restarted.is_some_and(|flags| flags.value(row)));
            sums.partial += u64::from(columns.partial.is_some_and(|flags| flags.value(row)));
            sums.slept += u64::from(slept);
            sums.left_out += u64::from(columns.left_out[row]);
            let place = Place {
                score: parts.wall.saturating_sub(idle),
                group: place.0,
                row: (place.1 + row as u64) as u32,
            };
            sums.offer(place);
            // Its duration is not known yet.
            if in_flight {
                sums.in_flight += 1;
            } else {
                sums.count += 1;
                sums.histogram.add(parts.wall);
            }
            let user_level = columns.user_level(row).filter(|_| in_call && !in_flight);
            if let Some([user, away, calls]) = user_level {
                let one = Measured {
                    place,
                    at: begin,
                    tid: columns.tid[row],
                    comm: columns.comm.get(row),
                    user,
                    kernel: parts.wall,
                    away,
                    calls,
                };
                let sums = sums.user.get_or_insert_default();
                sums.add(one, &parts, idle);
            }
            if let Some((throttled, owner)) = columns.cpu_wait(row) {
                let waited = parts.runqueue.saturating_add(parts.preempted);
                aggregate.cpu_waits.add(waited, throttled, owner);
            }
            let error = columns.error.get(row);
            if error != NONE && sums.errors.len() < 256 {
                *sums.errors.entry(error).or_default() += 1;
            }
            if in_flight {
                aggregate.add_open(place);
            } else {
                if aggregate.current.len() <= index {
                    aggregate.current.resize_with(index + 1, Default::default);
                }
                let kind = Kind {
                    caller: columns.caller.get(row),
                    error,
                };
                let segment = &mut aggregate.current[index];
                segment.add(parts.wall, parts.cpu, kind, self.room, random);
            }
            let thread = ThreadSums {
                pid: columns.pid[row],
                comm: columns.comm.get(row),
                calls: u64::from(in_call && !in_flight),
                parts: if in_call { parts } else { parts.without_cpu() },
                idle,
                last: begin,
            };
            if let Some(at) = aggregate.threads.add(columns.tid[row], &thread) {
                let kind = self.kinds.get(key).copied().unwrap_or(CallKind::Other);
                self.see_loop(columns, (place.group, row), call, kind, at);
            }
        }
    }

    /// Takes in what a row says of its thread as an event loop. `at`: the thread's index.
    fn see_loop(
        &mut self,
        columns: &Columns<'_>,
        (group, row): (u32, usize),
        call: Name,
        kind: CallKind,
        at: usize,
    ) {
        let range = columns.sleeps_of(row);
        let known = self.aggregate.loopers.get(at);
        let may_be_loop = known
            .and_then(|looper| looper.as_deref())
            .is_some_and(Looper::may_be_loop);
        if kind == CallKind::Other && (range.is_empty() || !may_be_loop) {
            return;
        }
        let (arg0, begin) = (columns.arg0[row], columns.time[row]);
        let looper = self.aggregate.looper(at);
        looper.see(kind, arg0);
        let is_main = columns.pid[row] == columns.tid[row];
        let wait = kind.wait(is_main, !range.is_empty());
        if let Some(wait) = wait {
            let wall = columns.parts(row).wall.min(i64::MAX as u64) as i64;
            looper.see_events(wait, arg0, group, begin, begin.saturating_add(wall));
        }
        let Some(sleeps) = columns.sleeps.as_ref().filter(|_| looper.may_be_loop()) else {
            return;
        };
        for sleep in range {
            let (label, ns) = (sleeps.label.get(sleep), sleeps.blocked[sleep]);
            let kind = loopers::Kind {
                call,
                label,
                instance: wait.map(|_| arg0),
                is_free: label == self.futex
                    && sleeps.certainty.get(sleep) == NONE
                    && self
                        .wait_lines
                        .purpose(columns.called_from(row), self.names)
                        .may_be_work(),
            };
            let sums = KindSums {
                count: 1,
                blocked: ns,
                longest: ns,
                caller: columns.caller.get(row),
                stack: columns.stack.get(row),
                resource: sleeps.resource.get(sleep),
            };
            looper.wait(kind, &sums);
        }
    }

    /// Adds the sleeps of a row. Returns their total time, and the part of class `idle`.
    fn sleeps(
        &mut self,
        columns: &Columns<'_>,
        sleeps: &Sleeps<'_>,
        row: &Row,
        range: std::ops::Range<usize>,
    ) -> (u64, u64) {
        let (mut listed, mut idle) = (0u64, 0u64);
        let caller = columns.caller.get(row.at);
        let called_from = columns.called_from(row.at);
        let comm = columns.comm.get(row.at);
        let (pid, tid) = (columns.pid[row.at], columns.tid[row.at]);
        self.labels.clear();
        for at in range {
            let ns = sleeps.blocked[at];
            let (label, class) = (sleeps.label.get(at), sleeps.class.get(at));
            let aggregate = &mut self.aggregate;
            let part = match aggregate.classes.get(&label) {
                Some((known, part)) if *known == class => *part,
                Some(_) => part_of_class(&self.names.get(class)),
                None => {
                    let part = part_of_class(&self.names.get(class));
                    aggregate.classes.insert(label, (class, part));
                    part
                }
            };
            listed = listed.saturating_add(ns);
            if class == self.idle {
                idle = idle.saturating_add(ns);
            }
            let since = sleeps.begin[at].min(i64::MAX as u64) as i64;
            let begin = row.begin.saturating_add(since);
            let timeline = &mut aggregate.calls[row.index].1.timeline;
            timeline.add(begin, ns, part, ns);
            let is_futex = label == self.futex;
            let purpose = match is_futex {
                true => self.wait_lines.purpose(called_from, self.names),
                false => Purpose::Unknown,
            };
            let is_on_futex = is_futex && class != self.idle;
            let is_held = sleeps.owner.get(at) != NONE;
            let may_rest = is_on_futex && !is_held && purpose.may_be_work();
            if may_rest {
                aggregate.add_rest((pid, tid), begin, ns);
            }
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
            let kernel = sleeps.stack.get(at);
            let key = StackKey {
                stack: called_from,
                call: row.call,
                label,
                kernel: if kernel == NONE {
                    sleeps.site.get(at)
                } else {
                    kernel
                },
                comm,
                may_rest: may_rest.then_some((pid, tid)),
            };
            aggregate.stacks.add(key, begin, ns);
            let key = WaitKey {
                comm,
                is_main: pid == tid,
                call: row.call,
                label,
                resource: sleeps.resource.get(at),
                caller,
                certainty: sleeps.certainty.get(at),
                owner: sleeps.owner.get(at),
                doing: sleeps.doing.get(at),
                purpose,
                thread: (is_on_futex || is_held).then_some((pid, tid)),
            };
            let waker_comm = sleeps.waker_comm.get(at);
            if let Some(waker) = held_up::waker(waker_comm, sleeps.waker_tid(at), tid) {
                let line = match is_futex {
                    true => self.wait_lines.line(purpose, key.resource, pid, self.names),
                    false => key.resource,
                };
                aggregate.woken.offer(Woken {
                    key,
                    line,
                    tid,
                    begin,
                    ns,
                    waker,
                });
            }
            let sums = WaitSums {
                count: 1,
                open: u64::from(sleeps.waker_kind.get(at) == self.not_ended),
                blocked: ns,
                longest: ns,
                first: begin,
                last: begin.saturating_add(ns.min(i64::MAX as u64) as i64),
                tid,
                owner_tid: sleeps.owner_tid(at),
                waker: Some((sleeps.waker_kind.get(at), waker_comm)),
                waker_tid: sleeps.waker_tid(at),
                ..WaitSums::default()
            };
            aggregate.add_wait(key, &sums);
        }
        for (label, sums) in &self.labels {
            self.aggregate.add_label(row.call, *label, sums);
            self.aggregate.add_process_label(pid, *label, sums.blocked);
        }
        (listed, idle)
    }
}
