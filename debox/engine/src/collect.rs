//! Turns the probes' tables into a report.

mod cpu_waits;
mod join;
mod lives;
mod owners;
mod possible;
mod samples;
mod snapshot;
mod spins;
mod unseen;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::calls;
use crate::explain::{Explainer, UserStack};
use crate::kernel;
use crate::listeners;
use crate::merge::{merge_same_site, merge_untapped};
use crate::options::Tap;
use crate::report::{
    CallSite, InFlight, Lost, Report, Sleep, SleepCallSite, Syscall, Thread, Totals, Untapped,
    WaitersScope, Waker, WakerKind, SCHEMA,
};
use crate::resources::Resources;
use crate::sleep_place::{tapped, SleepPlace};
use crate::tables::{self, add, total, types, OpenWait, CALL_NONE};
use crate::waited::of_thread;
pub(crate) use cpu_waits::cpu_owner_kind;
use lives::{add_totals, life_of};
pub(crate) use lives::{close_open_part, take_calls_out_of_life};
pub(crate) use owners::{certainty, doing};
pub(crate) use snapshot::Snapshot;

/// What the caller knows about the monitored command.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub command: Vec<String>,
    pub exit_status: Option<i32>,
}

impl Snapshot {
    /// Looks up all names and adds up the rows.
    pub(crate) fn report(
        &self,
        outcome: Outcome,
        explainer: &Explainer,
        names: &Resources,
    ) -> Report {
        let irq = self.detail.irq;
        let outside = self.tap == Tap::User;

        let mut totals = Totals::default();
        let mut threads = Vec::new();
        for thread in &self.threads {
            let life = Totals {
                stolen_ns: self.tells_steal.then_some(thread.stolen_ns),
                ..life_of(&thread.between, &thread.in_calls, irq, outside)
            };
            add_totals(&mut totals, &life);
            threads.push(Thread {
                pid: thread.tgid,
                tid: thread.tid,
                comm: tables::comm(&thread.comm),
                calls: thread.calls,
                totals: life,
            });
        }
        if let Some(at) = self.unlisted {
            threads[at].comm = "(further threads)".to_string();
            (threads[at].pid, threads[at].tid) = (0, 0);
        }
        let lost_life = life_of(&self.lost.between, &self.lost.in_calls, irq, outside);
        add_totals(&mut totals, &lost_life);

        let mut syscalls: Vec<Syscall> = self
            .rows
            .iter()
            .map(|(call, row)| self.syscall(*call, row))
            .collect();
        syscalls.push(self.between());
        syscalls.sort_by_key(|row| std::cmp::Reverse(row.wall_ns));

        let cpu_waits = self.cpu_waits(&syscalls);
        let live_on = self.live_on(&outcome);
        let report = Report {
            schema: SCHEMA.to_string(),
            headline: None,
            has_listener: listeners::any(self.living_processes()),
            deadlocks: self.deadlocks.clone(),
            command: outcome.command,
            kernel: kernel::release(),
            tap: if outside { "user" } else { "kernel" }.to_string(),
            detail: self.detail.names(),
            duration_ns: self.duration(),
            exit_status: outcome.exit_status,
            totals,
            steal_ns: self.steal_ns,
            unseen_wait_ns: self.lost.unseen_wait_ns,
            slow_ns: (self.slow_ns > 0).then_some(self.slow_ns),
            lost: Lost {
                records: self.lost.records,
                sleeps: self.lost.sleeps,
                stacks: self.lost.stacks + explainer.stacks_lost(),
                threads: self.lost.threads,
                rows: self.lost.rows,
                probe_misses: self.probe_misses,
                refused: self.refused,
            },
            syscalls,
            sleeps: self.sleeps(explainer, names),
            chains: self.chains(explainer),
            cpu_waits,
            spins: self.spins(explainer, names),
            call_sites: self.call_sites(explainer),
            samples: self.sampled(explainer),
            threads,
            processes: Vec::new(),
            live_on,
            in_flight: in_flight(explainer, self, names),
            untapped: self.untapped(explainer, names),
            trace: None,
            triggers: Vec::new(),
            unstamped: self.unstamped(),
            hints: Vec::new(),
            unseen: self.unseen(),
            incomplete: self.incomplete.clone(),
        };
        report
            .with_headline()
            .with_hints(&crate::packages::sources(|file| {
                explainer.path_of_nameless(file)
            }))
    }

    /// Processes whose end was not seen.
    fn living_processes(&self) -> BTreeSet<u32> {
        let listed = self.threads.iter().enumerate();
        let alive = listed.filter(|(at, thread)| thread.end_ns == 0 && Some(*at) != self.unlisted);
        alive.map(|(_, thread)| thread.tgid).collect()
    }

    /// Processes that were still monitored when the command had ended.
    fn live_on(&self, outcome: &Outcome) -> Vec<u32> {
        let has_ended = outcome.exit_status.is_some();
        let still_there = |pid: &u32| kernel::require_process(*pid).is_ok();
        self.living_processes()
            .into_iter()
            .filter(|pid| has_ended && *pid != 0 && still_there(pid))
            .collect()
    }

    /// The time from the birth of the first thread to the end of the last, or to the stop if any is
    /// still alive.
    fn duration(&self) -> u64 {
        let first = self.threads.iter().min_by_key(|thread| thread.birth_ns);
        let Some(first) = first else {
            return self.stopped_ns.saturating_sub(self.started_ns);
        };
        let listed = self.threads.iter().enumerate();
        let ends = listed
            .filter(|(at, _)| Some(*at) != self.unlisted)
            .map(|(_, thread)| thread.end_ns);
        let is_alive = ends.clone().any(|end| end == 0);
        let end = match ends.max() {
            Some(end) if !is_alive => end,
            _ => self.stopped_ns,
        };
        end.saturating_sub(first.birth_ns)
    }

    fn syscall(&self, call: u32, row: &types::row) -> Syscall {
        let detail = self.detail;
        Syscall {
            name: calls::name(call),
            calls: row.calls,
            errors: row.errors,
            restarts: row.restarts,
            wall_ns: total(&row.parts),
            cpu_ns: row.parts[tables::PART_CPU],
            blocked_ns: row.parts[tables::PART_BLOCKED],
            runqueue_ns: row.parts[tables::PART_RUNQUEUE],
            preempted_ns: row.parts[tables::PART_PREEMPTED],
            irq_ns: detail.irq.then_some(row.parts[tables::PART_IRQ]),
            outside_ns: (self.tap == Tap::User).then_some(row.parts[tables::PART_OUTSIDE]),
            faults_minor: row.faults_minor,
            faults_major: (self.tap == Tap::Kernel).then_some(row.faults_major),
            p50_ns: percentile(row, 0.50),
            p99_ns: percentile(row, 0.99),
            max_ns: row.max_ns,
            spin_ns: (detail.sleeps && self.tap == Tap::Kernel).then_some(row.spin_ns),
            read_bytes: detail.io.then_some(row.read_bytes),
            write_bytes: detail.io.then_some(row.write_bytes),
        }
    }

    /// The row of the pseudo-call `(user)`, from the threads' own sums.
    fn between(&self) -> Syscall {
        let mut row = types::row::default();
        let mut add_parts = |parts: &[u64; tables::PARTS]| {
            for (sum, part) in row.parts.iter_mut().zip(parts) {
                add(sum, *part);
            }
        };
        add_parts(&self.lost.between);
        self.threads
            .iter()
            .for_each(|thread| add_parts(&thread.between));
        row.faults_minor = self.lost.faults_minor;
        row.faults_major = self.lost.faults_major;
        row.calls = self.lost.calls;
        for thread in &self.threads {
            add(&mut row.calls, thread.calls);
            row.max_ns = row.max_ns.max(thread.between_max_ns);
            add(&mut row.spin_ns, thread.between_spin_ns);
            if thread.end_ns > 0 {
                let (minor, major) = tables::faults_of_life(thread);
                add(
                    &mut row.faults_minor,
                    minor.saturating_sub(thread.call_faults_minor),
                );
                add(
                    &mut row.faults_major,
                    major.saturating_sub(thread.call_faults_major),
                );
            }
        }
        Syscall {
            p50_ns: None,
            p99_ns: None,
            ..self.syscall(CALL_NONE, &row)
        }
    }

    fn sleeps(&self, explainer: &Explainer, names: &Resources) -> Vec<Sleep> {
        let mut wakers: HashMap<SleepPlace, Vec<Waker>> = HashMap::new();
        for (key, row) in &self.wakers {
            let is_task = key.kind == tables::WAKER_TASK;
            wakers.entry(key.into()).or_default().push(Waker {
                kind: waker_kind(key.kind),
                comm: is_task.then(|| tables::comm(&row.comm)),
                tid: is_task.then_some(key.tid),
                count: row.count,
            });
        }
        let mut call_sites = self.sleep_call_sites(explainer);
        let mut owners = self.owners(explainer);
        let mut resources = self.resources(names);

        let mut sleeps = Vec::new();
        for (key, row) in &self.sleeps {
            let place = SleepPlace::from(key);
            if place.is_untapped() {
                continue;
            }
            let explained = explainer.sleep(place);
            let mut woken_by = wakers.remove(&place).unwrap_or_default();
            woken_by.sort_by_key(|waker| std::cmp::Reverse(waker.count));
            let counted = row.waiters_scope != 0;
            sleeps.push(Sleep {
                syscall: calls::name(key.call),
                label: explained.label,
                class: explained.class,
                site: explained.site,
                count: row.count,
                blocked_ns: row.blocked_ns,
                max_ns: row.max_ns,
                frames: explained.frames,
                wakers: woken_by,
                waiters_entry_max: counted.then_some(u64::from(row.waiters_entry)),
                waiters_exit_max: counted.then_some(u64::from(row.waiters_exit)),
                waiters_scope: match row.waiters_scope {
                    tables::WAITERS_MONITORED => Some(WaitersScope::Monitored),
                    tables::WAITERS_ALL => Some(WaitersScope::All),
                    _ => None,
                },
                resource: None, // the largest of `resources`, once rows are merged
                resources: resources.remove(&place).unwrap_or_default(),
                owners: owners.remove(&place).unwrap_or_default(),
                call_sites: call_sites.remove(&place).unwrap_or_default(),
            });
        }
        let mut sleeps = merge_same_site(sleeps);
        sleeps.sort_by_key(|sleep| std::cmp::Reverse(sleep.blocked_ns));
        sleeps
    }

    /// Calls that slept but were not seen by the user tap.
    fn untapped(&self, explainer: &Explainer, names: &Resources) -> Vec<Untapped> {
        let mut owners = self.owners(explainer);
        let mut resources = self.resources(names);
        let mut merged: BTreeMap<(String, String), Untapped> = BTreeMap::new();
        let rows = self.sleeps.iter();
        let rows = rows.map(|(key, row)| (SleepPlace::from(key), row));
        for (place, row) in rows.filter(|(place, _)| place.is_untapped()) {
            let tapped = place.tapped();
            let syscall = calls::name(tapped.call);
            let label = explainer.sleep(tapped).label;
            let sum = merged
                .entry((syscall.clone(), label.clone()))
                .or_insert_with(|| Untapped {
                    syscall,
                    label,
                    ..Untapped::default()
                });
            add(&mut sum.count, row.count);
            add(&mut sum.blocked_ns, row.blocked_ns);
            sum.owners.extend(owners.remove(&place).unwrap_or_default());
            sum.resources
                .extend(resources.remove(&place).unwrap_or_default());
        }
        let mut untapped: Vec<Untapped> = merged.into_values().map(merge_untapped).collect();
        untapped.sort_by_key(|call| std::cmp::Reverse(call.blocked_ns));
        untapped
    }

    fn sleep_call_sites(&self, explainer: &Explainer) -> HashMap<SleepPlace, Vec<SleepCallSite>> {
        let mut sites: HashMap<SleepPlace, Vec<SleepCallSite>> = HashMap::new();
        for (key, row) in self.sites.iter().filter(|(key, _)| key.stack != 0) {
            let stack = explainer.user_stack(key.user_stack);
            sites.entry(key.into()).or_default().push(SleepCallSite {
                frames: stack.frames,
                caller: stack.caller,
                count: row.count,
                blocked_ns: row.blocked_ns,
            });
        }
        sites
    }

    fn call_sites(&self, explainer: &Explainer) -> Vec<CallSite> {
        let mut merged: BTreeMap<(String, UserStack), CallSite> = BTreeMap::new();
        for (key, row) in self.sites.iter().filter(|(key, _)| key.stack == 0) {
            let syscall = calls::name(key.call);
            let stack = explainer.user_stack(key.user_stack);
            let site = merged
                .entry((syscall.clone(), stack.clone()))
                .or_insert_with(|| CallSite {
                    syscall,
                    frames: stack.frames,
                    caller: stack.caller,
                    ..CallSite::default()
                });
            add(&mut site.calls, row.count);
            site.max_ns = site.max_ns.max(row.max_ns);
            add(&mut site.wall_ns, row.wall_ns);
            add(&mut site.blocked_ns, row.blocked_ns);
        }
        let mut sites: Vec<CallSite> = merged.into_values().collect();
        sites.sort_by_key(|site| std::cmp::Reverse(site.wall_ns));
        sites
    }
}

pub(crate) fn waker_kind(kind: u32) -> WakerKind {
    match kind {
        tables::WAKER_TASK => WakerKind::Task,
        tables::WAKER_HARDIRQ => WakerKind::HardIrq,
        tables::WAKER_SOFTIRQ => WakerKind::SoftIrq,
        _ => WakerKind::Unknown,
    }
}

/// The wall time that the given share of calls did not exceed: the upper edge of its bucket, or the
/// longest call if that is shorter.
fn percentile(row: &types::row, share: f64) -> Option<u64> {
    let counted = total(&row.histogram);
    if counted == 0 {
        return None;
    }
    let rank = ((counted as f64 * share).ceil() as u64).max(1);
    let mut below = 0u64;
    for (bucket, count) in row.histogram.iter().enumerate() {
        add(&mut below, *count);
        if below >= rank {
            return Some(tables::bucket_upper_edge(bucket).min(row.max_ns));
        }
    }
    Some(row.max_ns)
}

fn in_flight(explainer: &Explainer, snapshot: &Snapshot, names: &Resources) -> Vec<InFlight> {
    let waits: HashMap<u32, &OpenWait> = snapshot
        .open_waits
        .iter()
        .map(|(index, wait)| (*index, wait))
        .collect();
    let mut calls: Vec<InFlight> = snapshot
        .open_calls
        .iter()
        .map(|(at, stack)| {
            let thread = &snapshot.threads[*at];
            let wait = waits.get(&thread.index).copied();
            let wait = wait.filter(|_| thread.mode == tables::MODE_BLOCKED);
            let seen = wait.map(|wait| &wait.resource);
            let waited = (thread.mode == tables::MODE_BLOCKED)
                .then(|| of_thread(&snapshot.waited, thread, seen));
            let lock_flags = wait.map_or(0, |wait| wait.lock_flags);
            let explained = explainer.stack(thread.call, None, stack, lock_flags);
            let (label, class) = match thread.mode {
                tables::MODE_BLOCKED => (explained.label, explained.class),
                tables::MODE_RUNQUEUE | tables::MODE_PREEMPTED => {
                    ("waiting for a CPU".to_string(), "cpu".to_string())
                }
                _ => ("running".to_string(), "cpu".to_string()),
            };
            InFlight {
                pid: thread.tgid,
                tid: thread.tid,
                comm: tables::comm(&thread.comm),
                syscall: calls::name(tapped(thread.call)),
                for_ns: snapshot.stopped_ns.saturating_sub(thread.begin_ns),
                at_least: thread.flags & tables::THREAD_PARTIAL != 0,
                label,
                class,
                resource: waited
                    .flatten()
                    .cloned()
                    .or_else(|| owners::open_resource(names, wait?)),
                owner: wait.and_then(|wait| owners::holder(explainer, wait)),
                frames: explained.frames,
            }
        })
        .collect();
    name_doings(&mut calls);
    calls.sort_by_key(|call| std::cmp::Reverse(call.for_ns));
    calls
}

/// Fills in what holders do if the probes did not see it, from the calls in flight that they are
/// in.
fn name_doings(calls: &mut [InFlight]) {
    let labels = calls.iter().map(|call| (call.tid, call.label.clone()));
    let labels: HashMap<u32, String> = labels.collect();
    let owners = calls.iter_mut().filter_map(|call| call.owner.as_mut());
    for owner in owners.filter(|owner| owner.doing.is_none()) {
        owner.doing = owner.tid.and_then(|tid| labels.get(&tid).cloned());
    }
}
