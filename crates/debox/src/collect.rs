//! Turns the probes' tables into a report.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use anyhow::{Context, Result};
use libbpf_rs::{Iter, MapCore, MapFlags};

use crate::calls;
use crate::explain::Explainer;
use crate::kernel;
use crate::merge::merge_same_site;
use crate::report::{
    CallSite, InFlight, Lost, Report, Sleep, SleepCallSite, Syscall, Thread, Totals, Untapped,
    Waker, SCHEMA,
};
use crate::session::{Session, Tap};
use crate::tables::{self, types, CALL_NONE};

/// What the caller knows of the command that was monitored.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub command: Vec<String>,
    pub exit_status: Option<i32>,
}

/// Everything that was measured, before names are looked up.
struct Measured {
    stopped_ns: u64,
    /// Threads that ended, and those alive with their open part closed at the stop.
    threads: Vec<types::thread>,
    /// The lives of unlisted threads, in `threads` too.
    unlisted: usize,
    /// Threads that are inside a call: index into `threads` and kernel stack.
    open_calls: Vec<(usize, Vec<u64>)>,
    rows: BTreeMap<u32, types::row>,
    lost: types::lost,
}

impl Session {
    /// Stops monitoring and reports.
    pub fn finish(mut self, outcome: Outcome) -> Result<Report> {
        // Stacks of what is asleep are taken before the stop, while tasks are still enrolled.
        let stacks = self.stacks_in_flight()?;
        let stopped_ns = self.stop()?;
        let measured = self.measure(stopped_ns, &stacks)?;
        self.report(outcome, measured)
    }

    /// The kernel stacks of monitored tasks that are not running, by index in `threads`.
    fn stacks_in_flight(&mut self) -> Result<HashMap<u32, Vec<u64>>> {
        let link = self
            .skel
            .progs
            .show_tasks
            .attach()
            .context("cannot walk the tasks")?;
        let mut bytes = Vec::new();
        Iter::new(&link)?.read_to_end(&mut bytes)?;
        let size = std::mem::size_of::<types::in_flight>();
        let mut stacks = HashMap::new();
        for chunk in bytes.chunks_exact(size) {
            let Some(entry) = tables::read_value::<types::in_flight>(chunk) else {
                continue;
            };
            let depth = (entry.depth as usize).min(entry.frames.len());
            stacks.insert(entry.index - 1, entry.frames[..depth].to_vec());
        }
        Ok(stacks)
    }

    fn measure(&self, stopped_ns: u64, stacks: &HashMap<u32, Vec<u64>>) -> Result<Measured> {
        let maps = &self.skel.maps;
        let events = self.events.borrow();
        let mut threads = events.ended.clone();
        threads.extend(&events.ended_unlisted);
        let unlisted = events.ended_unlisted.len();

        let mut rows = BTreeMap::new();
        for call in 0..tables::ROWS {
            add_row(
                &mut rows,
                call,
                maps.rows
                    .lookup_percpu(&call.to_ne_bytes(), MapFlags::ANY)?,
            );
        }
        for key in maps.odd_rows.keys() {
            let Some(call) = tables::read_value::<u32>(&key) else {
                continue;
            };
            add_row(
                &mut rows,
                call,
                maps.odd_rows.lookup_percpu(&key, MapFlags::ANY)?,
            );
        }

        if let Some(tap) = &self.tap {
            tap.rows.add_to(&mut rows)?;
        }

        let mut open_calls = Vec::new();
        for index in 0..self.threads_given_out() {
            let Some(bytes) = maps.threads.lookup(&index.to_ne_bytes(), MapFlags::ANY)? else {
                continue;
            };
            let Some(mut thread) = tables::read_value::<types::thread>(&bytes) else {
                continue;
            };
            if thread.state != tables::THREAD_LIVE {
                continue;
            }
            close_open_part(&mut thread, stopped_ns, self.options.tap);
            if self.options.tap == Tap::User {
                let slot = self.slot(index)?;
                take_calls_out_of_life(&mut thread, slot.as_deref());
                if thread.mode != 0 && thread.call != CALL_NONE {
                    let stack = stacks.get(&index).cloned().unwrap_or_default();
                    open_calls.push((threads.len(), stack));
                }
            } else if thread.call != CALL_NONE {
                // Time so far belongs to the call's row, though the call is not counted yet.
                let row = rows.entry(thread.call).or_default();
                for part in 0..tables::PARTS {
                    row.parts[part] += thread.parts[part];
                }
                row.max_ns = row.max_ns.max(stopped_ns - thread.begin_ns);
                open_calls.push((
                    threads.len(),
                    stacks.get(&index).cloned().unwrap_or_default(),
                ));
            }
            threads.push(thread);
        }

        let mut lost = types::lost::default();
        let zero = 0u32.to_ne_bytes();
        for cpu in maps
            .lost_counts
            .lookup_percpu(&zero, MapFlags::ANY)?
            .unwrap_or_default()
        {
            let Some(counts) = tables::read_value::<types::lost>(&cpu) else {
                continue;
            };
            lost.records += counts.records;
            lost.sleeps += counts.sleeps;
            lost.stacks += counts.stacks;
            lost.threads += counts.threads;
            lost.rows += counts.rows;
            lost.switches += counts.switches;
            lost.calls += counts.calls;
            lost.faults_minor += counts.faults_minor;
            lost.faults_major += counts.faults_major;
            for part in 0..tables::PARTS {
                lost.between[part] += counts.between[part];
                lost.in_calls[part] += counts.in_calls[part];
            }
        }
        Ok(Measured {
            stopped_ns,
            threads,
            unlisted,
            open_calls,
            rows,
            lost,
        })
    }

    /// The slot of a thread, as it is now.
    fn slot(&self, index: u32) -> Result<Option<Box<types::debox_slot>>> {
        let bytes = self
            .skel
            .maps
            .slots
            .lookup(&index.to_ne_bytes(), MapFlags::ANY)?;
        Ok(bytes
            .as_deref()
            .and_then(tables::read_value::<types::debox_slot>)
            .map(Box::new))
    }

    fn report(&self, outcome: Outcome, measured: Measured) -> Result<Report> {
        let events = self.events.borrow();
        let explainer = Explainer::new(self, &events.processes)?;
        let irq = self.options.detail.irq;
        let outside = self.options.tap == Tap::User;

        let mut totals = Totals::default();
        let mut threads = Vec::new();
        for thread in &measured.threads {
            let life = life_of(&thread.between, &thread.in_calls, irq, outside);
            add_totals(&mut totals, &life);
            threads.push(Thread {
                pid: thread.tgid,
                tid: thread.tid,
                comm: tables::comm(&thread.comm),
                calls: thread.calls,
                totals: life,
            });
        }
        if measured.unlisted > 0 {
            let at = events.ended.len();
            threads[at].comm = "(further threads)".to_string();
            (threads[at].pid, threads[at].tid) = (0, 0);
        }
        let lost_life = life_of(
            &measured.lost.between,
            &measured.lost.in_calls,
            irq,
            outside,
        );
        add_totals(&mut totals, &lost_life);

        let mut syscalls: Vec<Syscall> = measured
            .rows
            .iter()
            .map(|(call, row)| self.syscall(*call, row))
            .collect();
        syscalls.push(self.between(&measured));
        syscalls.sort_by_key(|row| std::cmp::Reverse(row.wall_ns));

        let sleeps = if self.options.detail.sleeps {
            self.sleeps(&explainer)?
        } else {
            Vec::new()
        };
        Ok(Report {
            schema: SCHEMA.to_string(),
            command: outcome.command,
            kernel: kernel::release(),
            tap: if outside { "user" } else { "kernel" }.to_string(),
            detail: self.options.detail.names(),
            duration_ns: self.duration(&measured),
            exit_status: outcome.exit_status,
            totals,
            steal_ns: kernel::steal_ns()
                .zip(self.steal_at_start)
                .map(|(now, before)| now.saturating_sub(before)),
            lost: Lost {
                records: measured.lost.records,
                sleeps: measured.lost.sleeps,
                stacks: measured.lost.stacks,
                threads: measured.lost.threads,
                rows: measured.lost.rows,
                probe_misses: self.probe_misses()?,
            },
            syscalls,
            sleeps,
            call_sites: self.call_sites(&explainer)?,
            threads,
            in_flight: in_flight(&explainer, &measured),
            untapped: self.untapped(&explainer)?,
            unseen: self.unseen(&measured),
        })
    }

    /// From the birth of the first thread to the end of the command's process, or to the stop.
    fn duration(&self, measured: &Measured) -> u64 {
        let first = measured.threads.iter().min_by_key(|thread| thread.birth_ns);
        let Some(first) = first else {
            return measured.stopped_ns - self.started_ns;
        };
        let of_process = measured
            .threads
            .iter()
            .filter(|thread| thread.tgid == first.tgid);
        let alive = of_process.clone().any(|thread| thread.end_ns == 0);
        let end = match of_process.map(|thread| thread.end_ns).max() {
            Some(end) if !alive => end,
            _ => measured.stopped_ns,
        };
        end - first.birth_ns
    }

    fn syscall(&self, call: u32, row: &types::row) -> Syscall {
        let detail = self.options.detail;
        Syscall {
            name: calls::name(call),
            calls: row.calls,
            errors: row.errors,
            restarts: row.restarts,
            wall_ns: row.parts.iter().sum(),
            cpu_ns: row.parts[tables::PART_CPU],
            blocked_ns: row.parts[tables::PART_BLOCKED],
            runqueue_ns: row.parts[tables::PART_RUNQUEUE],
            preempted_ns: row.parts[tables::PART_PREEMPTED],
            irq_ns: detail.irq.then_some(row.parts[tables::PART_IRQ]),
            outside_ns: (self.options.tap == Tap::User).then_some(row.parts[tables::PART_OUTSIDE]),
            faults_minor: row.faults_minor,
            faults_major: (self.options.tap == Tap::Kernel).then_some(row.faults_major),
            p50_ns: percentile(row, 0.50),
            p99_ns: percentile(row, 0.99),
            max_ns: row.max_ns,
            spin_ns: detail.sleeps.then_some(row.spin_ns),
            read_bytes: detail.io.then_some(row.read_bytes),
            write_bytes: detail.io.then_some(row.write_bytes),
        }
    }

    /// The row of the pseudo-call `(user)`, from the threads' own sums.
    fn between(&self, measured: &Measured) -> Syscall {
        let mut row = types::row::default();
        let mut add_parts = |parts: &[u64; tables::PARTS]| {
            for (sum, part) in row.parts.iter_mut().zip(parts) {
                *sum += part;
            }
        };
        add_parts(&measured.lost.between);
        measured
            .threads
            .iter()
            .for_each(|thread| add_parts(&thread.between));
        row.faults_minor = measured.lost.faults_minor;
        row.faults_major = measured.lost.faults_major;
        row.calls = measured.lost.calls;
        for thread in &measured.threads {
            row.calls += thread.calls;
            row.max_ns = row.max_ns.max(thread.between_max_ns);
            row.spin_ns += thread.between_spin_ns;
            if thread.end_ns > 0 {
                let minor = thread.end_faults_minor - thread.birth_faults_minor;
                let major = thread.end_faults_major - thread.birth_faults_major;
                row.faults_minor += minor.saturating_sub(thread.call_faults_minor);
                row.faults_major += major.saturating_sub(thread.call_faults_major);
            }
        }
        Syscall {
            p50_ns: None,
            p99_ns: None,
            ..self.syscall(CALL_NONE, &row)
        }
    }

    fn sleeps(&self, explainer: &Explainer) -> Result<Vec<Sleep>> {
        let maps = &self.skel.maps;
        let mut wakers: HashMap<(u64, u32, u32), Vec<Waker>> = HashMap::new();
        for key_bytes in maps.waker_rows.keys() {
            let Some(key) = tables::read_value::<types::waker_key>(&key_bytes) else {
                continue;
            };
            let Some(bytes) = maps.waker_rows.lookup(&key_bytes, MapFlags::ANY)? else {
                continue;
            };
            let Some(row) = tables::read_value::<types::waker_row>(&bytes) else {
                continue;
            };
            let is_task = key.kind == 1;
            wakers
                .entry((key.stack, key.call, key.lock_flags))
                .or_default()
                .push(Waker {
                    kind: ["unknown", "task", "hardirq", "softirq"][key.kind.min(3) as usize]
                        .into(),
                    comm: is_task.then(|| tables::comm(&row.comm)),
                    tid: is_task.then_some(key.tid),
                    count: row.count,
                });
        }
        let mut call_sites = self.sleep_call_sites(explainer)?;

        let mut sleeps = Vec::new();
        for key_bytes in maps.sleep_rows.keys() {
            let Some(key) = tables::read_value::<types::sleep_key>(&key_bytes) else {
                continue;
            };
            let Some(bytes) = maps.sleep_rows.lookup(&key_bytes, MapFlags::ANY)? else {
                continue;
            };
            let Some(row) = tables::read_value::<types::sleep_row>(&bytes) else {
                continue;
            };
            if is_untapped(key.call) {
                continue;
            }
            let explained = explainer.sleep(key.call, key.stack, key.lock_flags);
            let mut woken_by = wakers
                .remove(&(key.stack, key.call, key.lock_flags))
                .unwrap_or_default();
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
                    tables::WAITERS_MONITORED => Some("monitored".to_string()),
                    tables::WAITERS_ALL => Some("all".to_string()),
                    _ => None,
                },
                call_sites: call_sites
                    .remove(&(key.call, key.stack))
                    .unwrap_or_default(),
            });
        }
        let mut sleeps = merge_same_site(sleeps);
        sleeps.sort_by_key(|sleep| std::cmp::Reverse(sleep.blocked_ns));
        Ok(sleeps)
    }

    /// Calls that slept without the user tap having seen them.
    fn untapped(&self, explainer: &Explainer) -> Result<Vec<Untapped>> {
        let map = &self.skel.maps.sleep_rows;
        let mut merged: BTreeMap<(String, String), Untapped> = BTreeMap::new();
        for key_bytes in map.keys() {
            let Some(key) = tables::read_value::<types::sleep_key>(&key_bytes) else {
                continue;
            };
            let Some(bytes) = map.lookup(&key_bytes, MapFlags::ANY)? else {
                continue;
            };
            let Some(row) = tables::read_value::<types::sleep_row>(&bytes) else {
                continue;
            };
            if !is_untapped(key.call) {
                continue;
            }
            let syscall = calls::name(key.call & !tables::CALL_UNTAPPED);
            let label = explainer.sleep(key.call, key.stack, key.lock_flags).label;
            let sum = merged
                .entry((syscall.clone(), label.clone()))
                .or_insert_with(|| Untapped {
                    syscall,
                    label,
                    ..Untapped::default()
                });
            sum.count += row.count;
            sum.blocked_ns += row.blocked_ns;
        }
        let mut untapped: Vec<Untapped> = merged.into_values().collect();
        untapped.sort_by_key(|call| std::cmp::Reverse(call.blocked_ns));
        Ok(untapped)
    }

    fn sleep_call_sites(
        &self,
        explainer: &Explainer,
    ) -> Result<HashMap<(u32, u64), Vec<SleepCallSite>>> {
        let mut sites: HashMap<(u32, u64), Vec<SleepCallSite>> = HashMap::new();
        self.for_each_site(|key, row| {
            if key.stack == 0 {
                return;
            }
            sites
                .entry((key.call, key.stack))
                .or_default()
                .push(SleepCallSite {
                    frames: explainer.user_stack(key.user_stack),
                    count: row.count,
                    blocked_ns: row.blocked_ns,
                });
        })?;
        Ok(sites)
    }

    fn call_sites(&self, explainer: &Explainer) -> Result<Vec<CallSite>> {
        let mut merged: BTreeMap<(String, Vec<String>), CallSite> = BTreeMap::new();
        if !self.options.detail.callsites {
            return Ok(Vec::new());
        }
        self.for_each_site(|key, row| {
            if key.stack != 0 {
                return;
            }
            let syscall = calls::name(key.call);
            let frames = explainer.user_stack(key.user_stack);
            let site = merged
                .entry((syscall.clone(), frames.clone()))
                .or_insert_with(|| CallSite {
                    syscall,
                    frames,
                    ..CallSite::default()
                });
            site.calls += row.count;
            site.wall_ns += row.wall_ns;
            site.blocked_ns += row.blocked_ns;
        })?;
        let mut sites: Vec<CallSite> = merged.into_values().collect();
        sites.sort_by_key(|site| std::cmp::Reverse(site.wall_ns));
        Ok(sites)
    }

    fn for_each_site(
        &self,
        mut visit: impl FnMut(&types::site_key, &types::site_row),
    ) -> Result<()> {
        let map = &self.skel.maps.site_rows;
        for key_bytes in map.keys() {
            let Some(key) = tables::read_value::<types::site_key>(&key_bytes) else {
                continue;
            };
            let Some(bytes) = map.lookup(&key_bytes, MapFlags::ANY)? else {
                continue;
            };
            let Some(row) = tables::read_value::<types::site_row>(&bytes) else {
                continue;
            };
            visit(&key, &row);
        }
        Ok(())
    }

    /// Times the kernel skipped one of the session's probes because it was already running there.
    fn probe_misses(&self) -> Result<u64> {
        let progs = &self.skel.progs;
        let all = [
            &progs.on_switch,
            &progs.on_waking,
            &progs.on_fork,
            &progs.on_sys_enter,
            &progs.on_sys_exit,
            &progs.on_contention_begin,
            &progs.on_contention_end,
            &progs.on_exec,
            &progs.on_signal_deliver,
            &progs.on_kernel_fault,
        ];
        let mut misses = 0;
        for prog in all {
            use std::os::fd::{AsFd, AsRawFd};
            let fd = prog.as_fd().as_raw_fd();
            if fd >= 0 {
                misses += kernel::recursion_misses(fd)?;
            }
        }
        Ok(misses)
    }

    fn unseen(&self, measured: &Measured) -> Vec<String> {
        let mut unseen = Vec::new();
        unseen.push(
            "Spinning is shown for mutexes only; on other locks it is inside cpu.".to_string(),
        );
        if self.options.tap == Tap::User {
            let mut silent: Vec<String> = measured
                .threads
                .iter()
                .filter(|t| t.calls == 0)
                .map(|t| tables::comm(&t.comm))
                .collect();
            silent.sort();
            silent.dedup();
            if !silent.is_empty() {
                silent.truncate(8);
                unseen.push(format!(
                    "Threads that made no call through libc's entry points show only where they \
                     slept: {}.",
                    silent.join(", ")
                ));
            }
            unseen.push(
                "Calls that libc makes inside itself (stdio, start-up, its futexes) are untapped."
                    .to_string(),
            );
        }
        if measured.lost.switches > 0 {
            unseen.push(format!(
                "Switches or wake-ups that the kernel did not show: {}. How long those threads \
                 waited is the scheduler's own account; what they waited for shows as unknown.",
                measured.lost.switches
            ));
        }
        if measured
            .threads
            .iter()
            .any(|thread| thread.flags & tables::THREAD_PARTIAL != 0)
        {
            unseen.push(
                "Calls that were already running when monitoring began are timed from then on."
                    .to_string(),
            );
        }
        unseen
    }
}

/// The call's number, whether the user tap saw it or not.
fn tapped(call: u32) -> u32 {
    if is_untapped(call) {
        call & !tables::CALL_UNTAPPED
    } else {
        call
    }
}

fn is_untapped(call: u32) -> bool {
    call != CALL_NONE && call & tables::CALL_UNTAPPED != 0
}

/// Sums a row over the CPUs and keeps it if it was used.
fn add_row(rows: &mut BTreeMap<u32, types::row>, call: u32, values: Option<Vec<Vec<u8>>>) {
    let mut sum = types::row::default();
    for bytes in values.unwrap_or_default() {
        let Some(row) = tables::read_value::<types::row>(&bytes) else {
            continue;
        };
        sum.calls += row.calls;
        sum.errors += row.errors;
        sum.restarts += row.restarts;
        sum.faults_minor += row.faults_minor;
        sum.faults_major += row.faults_major;
        sum.max_ns = sum.max_ns.max(row.max_ns);
        sum.spin_ns += row.spin_ns;
        sum.read_bytes += row.read_bytes;
        sum.write_bytes += row.write_bytes;
        for part in 0..tables::PARTS {
            sum.parts[part] += row.parts[part];
        }
        for (bucket, count) in sum.histogram.iter_mut().zip(row.histogram) {
            *bucket += count;
        }
    }
    if sum.calls > 0 {
        rows.insert(call, sum);
    }
}

/// Wall time below which the given share of calls stayed: the upper edge of its bucket, or the
/// longest call if that is less.
fn percentile(row: &types::row, share: f64) -> Option<u64> {
    let counted: u64 = row.histogram.iter().sum();
    if counted == 0 {
        return None;
    }
    let rank = ((counted as f64 * share).ceil() as u64).max(1);
    let mut below = 0;
    for (bucket, count) in row.histogram.iter().enumerate() {
        below += count;
        if below >= rank {
            return Some(tables::bucket_upper_edge(bucket).min(row.max_ns));
        }
    }
    Some(row.max_ns)
}

/// A thread that lives on: what is open ends, for the report, at the stop.
fn close_open_part(thread: &mut types::thread, stopped_ns: u64, tap: Tap) {
    let part = match thread.mode {
        tables::MODE_BLOCKED => tables::PART_BLOCKED,
        tables::MODE_RUNQUEUE => tables::PART_RUNQUEUE,
        tables::MODE_PREEMPTED => tables::PART_PREEMPTED,
        tables::MODE_IRQ => tables::PART_IRQ,
        _ => tables::PART_CPU,
    };
    if tap == Tap::User {
        thread.between[part] += stopped_ns.saturating_sub(thread.stamp_ns);
        thread.begin_ns = thread.stamp_ns;
        return;
    }
    let from = if thread.parted != 0 {
        thread.stamp_ns
    } else {
        thread.begin_ns
    };
    thread.parts[part] += stopped_ns.saturating_sub(from);
    let open = if thread.call == CALL_NONE {
        &mut thread.between
    } else {
        &mut thread.in_calls
    };
    for (sum, part) in open.iter_mut().zip(thread.parts) {
        *sum += part;
    }
}

/// Under the user tap the probes keep a thread's whole life, and the thread itself its calls
/// (`close_tapped_life` of probe/usertap.h, for a thread that has not ended).
fn take_calls_out_of_life(thread: &mut types::thread, slot: Option<&types::debox_slot>) {
    let Some(slot) = slot else { return };
    thread.calls = slot.completed;
    let mut outside = slot.tap_totals_ns[tables::PART_OUTSIDE];
    thread.in_calls[tables::PART_OUTSIDE] = outside;
    for part in tables::PART_BLOCKED..tables::PART_OUTSIDE {
        thread.outside[part] = thread.outside[part].min(outside);
        outside -= thread.outside[part];
    }
    thread.outside[tables::PART_CPU] = outside;
    let mut owed = 0;
    for part in (0..tables::PART_OUTSIDE).rev() {
        thread.in_calls[part] = slot.tap_totals_ns[part];
        let taken = thread.in_calls[part] + thread.outside[part] + owed;
        owed = taken.saturating_sub(thread.between[part]);
        thread.between[part] = thread.between[part].saturating_sub(taken);
    }
}

fn life_of(between: &[u64], in_calls: &[u64], irq: bool, outside: bool) -> Totals {
    let both = |part: usize| between[part] + in_calls[part];
    Totals {
        wall_ns: between.iter().sum::<u64>() + in_calls.iter().sum::<u64>(),
        user_cpu_ns: between[tables::PART_CPU],
        kernel_cpu_ns: in_calls[tables::PART_CPU],
        blocked_ns: both(tables::PART_BLOCKED),
        runqueue_ns: both(tables::PART_RUNQUEUE),
        preempted_ns: both(tables::PART_PREEMPTED),
        irq_ns: irq.then_some(both(tables::PART_IRQ)),
        outside_ns: outside.then_some(both(tables::PART_OUTSIDE)),
    }
}

fn add_totals(sum: &mut Totals, life: &Totals) {
    let add = |sum: &mut Option<u64>, value: Option<u64>| {
        if let Some(value) = value {
            *sum = Some(sum.unwrap_or(0) + value);
        }
    };
    sum.wall_ns += life.wall_ns;
    sum.user_cpu_ns += life.user_cpu_ns;
    sum.kernel_cpu_ns += life.kernel_cpu_ns;
    sum.blocked_ns += life.blocked_ns;
    sum.runqueue_ns += life.runqueue_ns;
    sum.preempted_ns += life.preempted_ns;
    add(&mut sum.irq_ns, life.irq_ns);
    add(&mut sum.outside_ns, life.outside_ns);
}

fn in_flight(explainer: &Explainer, measured: &Measured) -> Vec<InFlight> {
    let mut calls: Vec<InFlight> = measured
        .open_calls
        .iter()
        .map(|(at, stack)| {
            let thread = &measured.threads[*at];
            let explained = explainer.stack(thread.call, stack, 0);
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
                for_ns: measured.stopped_ns - thread.begin_ns,
                at_least: thread.flags & tables::THREAD_PARTIAL != 0,
                label,
                class,
                frames: explained.frames,
            }
        })
        .collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.for_ns));
    calls
}
