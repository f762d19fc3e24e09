// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the probes' tables.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use anyhow::{Context, Result};
use libbpf_rs::{Iter, MapCore, MapFlags};

use super::deadlocks::owner_of;
use super::programs::{Skips, PROGRAMS};
use super::Session;
use crate::collect::{close_open_part, take_calls_out_of_life, Snapshot};
use crate::kernel;
use crate::options::Tap;
use crate::sums;
use crate::tables::{self, add, types, OpenWait, CALL_NONE};

impl Session {
    /// The kernel stacks of monitored tasks that are not running, by index in `threads`.
    pub(crate) fn stacks_in_flight(&mut self) -> Result<HashMap<u32, Vec<u64>>> {
        self.look_before_stop()?;
        let tasks = self.tasks_in_flight()?;
        Ok(tasks
            .iter()
            .map(|(at, task)| (*at, frames_in_flight(task)))
            .collect())
    }

    /// The same tasks, with the calls that they are in.
    pub(crate) fn tasks_in_flight(&mut self) -> Result<HashMap<u32, types::in_flight>> {
        self.tasks_in_flight_from(0)
    }

    /// The same without tasks that have been asleep since before `from_ns`: to take a stack costs more than to walk by.
    pub(crate) fn tasks_in_flight_from(
        &mut self,
        from_ns: u64,
    ) -> Result<HashMap<u32, types::in_flight>> {
        let bss = self.skel.maps.bss_data.as_deref_mut();
        bss.context("no .bss in the probes")?.show_from_ns = from_ns;
        let link = self
            .skel
            .progs
            .show_tasks
            .attach()
            .context("cannot walk the tasks")?;
        let mut bytes = Vec::new();
        Iter::new(&link)?.read_to_end(&mut bytes)?;
        Ok(tasks_by_index(&bytes))
    }

    /// Reads all tables. `stacks` are those of the tasks that were asleep before the stop.
    pub(crate) fn snapshot(
        &self,
        stopped_ns: u64,
        stacks: &HashMap<u32, Vec<u64>>,
    ) -> Result<Snapshot> {
        let maps = &self.skel.maps;
        let events = self.events.borrow();
        let mut threads = events.ended.clone();
        let unlisted = (!events.ended_unlisted.is_empty()).then_some(threads.len());
        threads.extend(&events.ended_unlisted);

        let facts = kernel::type_facts();
        let (rows, refused) = self.rows()?;
        let mut snapshot = Snapshot {
            slow_ns: self.options.slow_ns,
            started_ns: self.started_ns,
            steal_ns: kernel::steal_ns()
                .zip(self.steal_at_start)
                .map(|(now, before)| now.saturating_sub(before)),
            threads,
            unlisted,
            rows,
            refused,
            sites: entries(&maps.site_rows)?,
            lost: self.lost()?,
            probe_misses: self.probe_misses()?,
            tells_steal: facts.is_some_and(|facts| facts.tells_steal),
            deadlocks: self.deadlocks.clone(),
            waited: self.waited.clone(),
            samples: self.samples(),
            notes: self.notes(),
            ..Snapshot::empty(self.options.tap, self.options.detail, stopped_ns)
        };
        snapshot.stacks.user = entries(&maps.user_stacks)?.into_iter().collect();
        if self.options.detail.cpu {
            snapshot.cpu_waits = entries(&maps.cpu_rows)?;
        }
        if self.options.detail.sleeps {
            snapshot.sleeps = entries(&maps.sleep_rows)?;
            snapshot.wakers = entries(&maps.waker_rows)?;
            snapshot.owners = entries(&maps.owner_rows)?;
            snapshot.finds_owners = facts.is_none_or(|facts| facts.finds_tasks);
            snapshot.resources = entries(&maps.resource_rows)?;
            snapshot.spins = entries(&maps.spin_rows)?;
            let chains: Vec<(u64, types::chain_row)> = entries(&maps.chain_rows)?;
            snapshot.chains = chains.into_iter().map(|(_, row)| row).collect();
            let stacks: Vec<(u64, types::kernel_stack)> = entries(&maps.kernel_stacks)?;
            for (name, stack) in &stacks {
                snapshot.stacks.add_kernel(*name, stack);
            }
        }
        self.add_living(&mut snapshot, stacks)?;
        Ok(snapshot)
    }

    /// The rows by call number, and how many of the processes' own rows were refused.
    fn rows(&self) -> Result<(BTreeMap<u32, types::row>, u64)> {
        let maps = &self.skel.maps;
        let mut rows = BTreeMap::new();
        for call in 0..tables::ROWS {
            let values = maps
                .rows
                .lookup_percpu(&call.to_ne_bytes(), MapFlags::ANY)?;
            let is_last = call == tables::ROWS - 1;
            let number = if is_last { tables::NO_SUCH_CALL } else { call };
            add_row(&mut rows, number, values);
        }
        for key in maps.unlisted_rows.keys() {
            let Some(call) = tables::read_value::<u32>(&key) else {
                continue;
            };
            let values = maps.unlisted_rows.lookup_percpu(&key, MapFlags::ANY)?;
            add_row(&mut rows, call, values);
        }
        // With `user_stamps` the probes count the calls, too.
        let counts = self.options.tap == Tap::User;
        let tap = self.tap.as_ref().filter(|_| counts);
        let refused = tap.map(|tap| tap.rows.add_to(&mut rows)).transpose()?;
        Ok((rows, refused.unwrap_or(0)))
    }

    /// Adds the threads that are still alive, with the calls that they are in.
    pub(crate) fn add_living(
        &self,
        snapshot: &mut Snapshot,
        stacks: &HashMap<u32, Vec<u64>>,
    ) -> Result<()> {
        let stopped_ns = snapshot.stopped_ns;
        for index in 0..self.threads_given_out() {
            let found = self
                .skel
                .maps
                .threads
                .lookup(&index.to_ne_bytes(), MapFlags::ANY)?;
            let thread = found
                .as_deref()
                .and_then(tables::read_value::<types::thread>);
            let Some(mut thread) = thread.filter(|thread| thread.state == tables::THREAD_LIVE)
            else {
                continue;
            };
            close_open_part(&mut thread, stopped_ns, self.options.tap);
            let mut is_inside = thread.call != CALL_NONE;
            if self.options.tap == Tap::User {
                take_calls_out_of_life(&mut thread, self.slot(index)?.as_deref(), stopped_ns);
                is_inside &= thread.mode != 0;
            } else if is_inside {
                // Time so far belongs to the call's row, though the call is not counted yet.
                let row = snapshot.rows.entry(thread.call).or_default();
                for part in 0..tables::PARTS {
                    add(&mut row.parts[part], thread.parts[part]);
                }
                row.max_ns = row.max_ns.max(stopped_ns.saturating_sub(thread.begin_ns));
            }
            if is_inside {
                let stack = stacks.get(&index).cloned().unwrap_or_default();
                snapshot.open_calls.push((snapshot.threads.len(), stack));
                snapshot
                    .open_waits
                    .extend(self.open_wait(&thread)?.map(|wait| (index, wait)));
            }
            snapshot.threads.push(thread);
        }
        Ok(())
    }

    /// What a thread that is asleep waits for now; `None` if the probes have not seen the wait begin.
    fn open_wait(&self, thread: &types::thread) -> Result<Option<OpenWait>> {
        if thread.mode != tables::MODE_BLOCKED || !self.options.detail.sleeps {
            return Ok(None);
        }
        let wait = self.seen_wait(thread)?;
        Ok(wait.map(|wait| self.with_holder(thread, &wait)))
    }

    /// The same, with as much as is known.
    pub(crate) fn known_wait(&self, thread: &types::thread) -> Result<OpenWait> {
        let wait = self.seen_wait(thread)?.unwrap_or_default();
        Ok(self.with_holder(thread, &wait))
    }

    /// What the probes know about a thread's wait.
    fn seen_wait(&self, thread: &types::thread) -> Result<Option<types::wait>> {
        let key = thread.index.to_ne_bytes();
        let found = self.skel.maps.waits.lookup(&key, MapFlags::ANY)?;
        let wait = found.as_deref().and_then(tables::read_value::<types::wait>);
        Ok(wait.filter(|wait| wait.tid == thread.tid))
    }

    /// Adds who holds the lock, as far as it was read from the process itself.
    fn with_holder(&self, thread: &types::thread, wait: &types::wait) -> OpenWait {
        let held = self.held.get(&thread.index);
        let held = held.filter(|held| held.tid == thread.tid);
        OpenWait {
            resource: wait.resource,
            owner: match held {
                Some(held) if wait.owner.tid != held.holder => owner_of(held),
                _ => wait.owner,
            },
            lock_flags: thread.lock_flags,
            ownable: wait.ownable | u32::from(held.is_some()),
        }
    }

    pub(crate) fn lost(&self) -> Result<types::lost> {
        let mut lost = types::lost::default();
        let values = self
            .skel
            .maps
            .lost_counts
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)?;
        for cpu in values.unwrap_or_default() {
            if let Some(counts) = tables::read_value::<types::lost>(&cpu) {
                sums::add_lost(&mut lost, &counts);
            }
        }
        Ok(lost)
    }

    /// The current content of a thread's slot.
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

    /// Times the kernel skipped the gate at one of the session's events because it was already running there.
    /// The result is an upper bound, because the kernel also counts skips in tasks that are not monitored.
    pub(crate) fn probe_misses(&self) -> Result<u64> {
        let bss = self.skel.maps.bss_data.as_deref();
        let only_interrupts = bss.is_some_and(|bss| bss.tracepoints_keep_cpu);
        // Read before the kernel's counts, so that events in between make the result too high, not too low.
        let stood_in = bss.map_or([0; 2], |bss| bss.stood_in);
        let missed = |program: &str| self.gate.missed(program);
        let mut misses = 0;
        for program in PROGRAMS {
            misses += match program.skips {
                Skips::Lose => missed(program.name)?.unwrap_or(0),
                Skips::LoseInTasks if only_interrupts => 0,
                Skips::LoseInTasks => missed(program.name)?.unwrap_or(0),
                Skips::LoseUnlessSpared { spare, end } => {
                    let stood_in = stood_in[usize::from(end)];
                    let of_first = missed(program.name)?.unwrap_or(0).saturating_sub(stood_in);
                    missed(spare)?.map_or(of_first, |of_spare| of_first.min(of_spare))
                }
                Skips::Uncounted => 0,
            };
        }
        Ok(misses)
    }
}

/// Parses what `show_tasks` of debox/probe/life.h prints.
pub(crate) fn tasks_by_index(printed: &[u8]) -> HashMap<u32, types::in_flight> {
    let size = std::mem::size_of::<types::in_flight>();
    let mut tasks = HashMap::new();
    for chunk in printed.chunks_exact(size) {
        let entry = tables::read_value::<types::in_flight>(chunk);
        if let Some(entry) = entry.filter(|entry| entry.index > 0) {
            tasks.insert(entry.index - 1, entry);
        }
    }
    tasks
}

/// A task's kernel stack, innermost frame first.
pub(crate) fn frames_in_flight(task: &types::in_flight) -> Vec<u64> {
    let depth = (task.depth as usize).min(task.frames.len());
    task.frames[..depth].to_vec()
}

/// All entries of a hash map. An entry that is deleted while the map is read is left out.
fn entries<K: Copy, V: Copy>(map: &impl MapCore) -> Result<Vec<(K, V)>> {
    let mut entries = Vec::new();
    for key in map.keys() {
        let Some(value) = map.lookup(&key, MapFlags::ANY)? else {
            continue;
        };
        if let (Some(key), Some(value)) = (tables::read_value(&key), tables::read_value(&value)) {
            entries.push((key, value));
        }
    }
    Ok(entries)
}

/// Sums a row over the CPUs and keeps it if it was used.
fn add_row(rows: &mut BTreeMap<u32, types::row>, call: u32, values: Option<Vec<Vec<u8>>>) {
    let mut sum = types::row::default();
    for bytes in values.unwrap_or_default() {
        let Some(row) = tables::read_value::<types::row>(&bytes) else {
            continue;
        };
        sums::add_to_row(&mut sum, &row);
    }
    if sum.calls > 0 {
        rows.insert(call, sum);
    }
}
