//! Finds who holds what monitored threads wait for, from their processes' memory.

use std::collections::HashMap;

use anyhow::Result;
use libbpf_rs::{MapCore, MapFlags};

use super::Session;
use crate::calls;
use crate::clock::monotonic_ns;
use crate::deadlock::tasks::threads;
use crate::deadlock::{may_wait, Circle, Place, Wait};
use crate::explain::{Explainer, UserStack};
use crate::report::{Deadlock, DeadlockWait};
use crate::resources::Resources;
use crate::stack_table::StackTable;
use crate::stacks::of_task;
use crate::tables::{self, types, CALL_NONE, CALL_UNTAPPED};
use crate::waited::{is_for_descriptors, is_poll, waits_of, Waited};

/// Names of the stacks of threads in circles. The probes' names are hashes, and those of other calls in
/// flight count down from the highest number.
pub(crate) const STACK_NAMES: u64 = u64::MAX - (1 << 40);

/// A monitored thread that sleeps.
struct Sleeper {
    index: u32,
    tid: u32,
    since_ns: u64,
}

impl Session {
    /// Whether this process may inspect the monitored processes itself.
    fn looks_into_processes(&self) -> bool {
        let is_own = self.events.borrow().forwarded.is_none();
        is_own && self.options.report && self.options.detail.sleeps
    }

    /// Looks for threads that wait for each other, if a look is due.
    pub(super) fn watch_for_deadlocks(&mut self) -> Result<()> {
        // A live view shows who waits for whom itself.
        if self.options.live || !self.watch.is_due() || !self.looks_into_processes() {
            return Ok(());
        }
        let sleepers = self.sleepers(may_wait)?;
        self.look_for_deadlocks(&sleepers)
    }

    /// To be called before the stop: looks for deadlocks, and for what the calls in flight wait for and who
    /// holds it.
    pub(crate) fn look_before_stop(&mut self) -> Result<()> {
        if !self.looks_into_processes() {
            return Ok(());
        }
        let sleepers = self.sleepers(may_wait)?;
        self.look_for_deadlocks(&sleepers)?;
        let waits = sleepers.iter();
        let waits = waits.filter_map(|one| Some((one.index, Wait::of(one.tid)?)));
        self.held = waits.filter(|(_, wait)| wait.is_for_lock()).collect();
        let sleepers = self.sleepers(is_for_descriptors)?;
        let resources = &mut self.events.borrow_mut().resources;
        self.waited = waits_of(sleepers.iter().map(|one| one.tid), resources);
        Ok(())
    }

    /// Tells the probes what threads of a process that are already asleep in `poll()` and `select()` wait
    /// for.
    pub(super) fn send_polls(&self, tgid: u32) {
        if !self.looks_into_processes() {
            return;
        }
        let waits = threads(tgid).into_iter().filter_map(Waited::of);
        for wait in waits.filter(|wait| is_poll(wait.call)) {
            let read = types::read_polled {
                switches: wait.switches,
                count: wait.descriptors.len() as u32,
                fd: wait.descriptors.first().copied().unwrap_or(-1),
            };
            // Best effort: without it only the call is known.
            let _ = self.skel.maps.polls_read.update(
                &wait.tid.to_ne_bytes(),
                tables::bytes_of(&read),
                MapFlags::ANY,
            );
        }
    }

    /// Tells the probes who holds what threads of a process that are already asleep wait for. The probes see
    /// this only when a wait begins, and cannot read another process's memory.
    pub(super) fn send_holders(&self, tgid: u32) {
        if !self.looks_into_processes() {
            return;
        }
        for wait in Wait::all_of(tgid) {
            // The kernel itself knows the holders of file locks.
            if matches!(wait.place, Place::File { .. }) || !wait.is_for_lock() {
                continue;
            }
            let read = types::read_holder {
                address: wait.word,
                switches: wait.switches,
                holder: wait.holder,
                reserved: 0,
            };
            // Best effort: without it the holder is not known.
            let _ = self.skel.maps.holders_read.update(
                &wait.tid.to_ne_bytes(),
                tables::bytes_of(&read),
                MapFlags::ANY,
            );
        }
    }

    /// Threads that are asleep in calls for which `is_asked` is true. Under the user tap, calls that libc
    /// makes internally count as time between calls; threads in these are included.
    fn sleepers(&self, is_asked: fn(u32) -> bool) -> Result<Vec<Sleeper>> {
        let mut sleepers = Vec::new();
        for index in 0..self.threads_given_out() {
            let Some(thread) = self.thread(index)? else {
                continue;
            };
            let sleeps = thread.state == tables::THREAD_LIVE && thread.mode == tables::MODE_BLOCKED;
            let call = thread.call & !CALL_UNTAPPED;
            if sleeps && (thread.call == CALL_NONE || is_asked(call)) {
                let since_ns = match thread.has_parts {
                    0 => thread.begin_ns,
                    _ => thread.stamp_ns,
                };
                sleepers.push(Sleeper {
                    index,
                    tid: thread.tid,
                    since_ns,
                });
            }
        }
        Ok(sleepers)
    }

    fn look_for_deadlocks(&mut self, sleepers: &[Sleeper]) -> Result<()> {
        let asleep: Vec<(u32, u64)> = sleepers.iter().map(|one| (one.tid, one.since_ns)).collect();
        let circles = self.watch.look(&asleep);
        if circles.is_empty() {
            return Ok(());
        }
        let found_ns = monotonic_ns().saturating_sub(self.started_ns);
        let indices = sleepers.iter().map(|one| (one.tid, one.index));
        let indices: HashMap<u32, u32> = indices.collect();
        let tasks = self.tasks_in_flight()?;
        for circle in &circles {
            let stacks = circle.waits.iter().map(|wait| {
                let task = indices.get(&wait.tid).and_then(|index| tasks.get(index));
                task.map(|task| self.stack_of(task)).unwrap_or_default()
            });
            let stacks: Vec<UserStack> = stacks.collect();
            let resources = &mut self.events.borrow_mut().resources;
            let deadlock = in_words(circle, found_ns, stacks, resources);
            self.deadlocks.push(deadlock);
        }
        Ok(())
    }

    /// The user stack of a task, in words.
    fn stack_of(&self, task: &types::in_flight) -> UserStack {
        let events = self.events.borrow();
        let name = STACK_NAMES - u64::from(task.index) - ((self.deadlocks.len() as u64) << 32);
        {
            let mut processes = events.processes.borrow_mut();
            let Some(ask) = of_task(task, name, &mut processes) else {
                return UserStack::default();
            };
            events.stacks.borrow_mut().take(&ask, &mut processes);
        }
        let nothing = StackTable::new(self.options.detail.callsites);
        Explainer::new(&nothing, &events.processes, &events.stacks).user_stack(name)
    }
}

/// A deadlock in words. `stacks`: those of the threads in the circle, as far as they are known.
pub(crate) fn in_words(
    circle: &Circle,
    found_ns: u64,
    stacks: Vec<UserStack>,
    resources: &mut Resources,
) -> Deadlock {
    let mut stacks = stacks.into_iter();
    let mut in_words = |wait: &Wait| {
        let stack = stacks.next().unwrap_or_default();
        let name = match &wait.place {
            Place::Word(address) => Some(resources.word(wait.pid, *address)),
            Place::File { fd, .. } => {
                let path = std::fs::read_link(format!("/proc/{}/fd/{fd}", wait.tid));
                path.ok().map(|path| path.to_string_lossy().into_owned())
            }
        };
        DeadlockWait {
            pid: wait.pid,
            tid: wait.tid,
            comm: wait.comm.clone(),
            syscall: calls::name(wait.call),
            lock: wait.kind.name().to_string(),
            name,
            has_timeout: wait.has_timeout,
            caller: stack.caller,
            frames: stack.frames,
        }
    };
    Deadlock {
        found_ns,
        may_end: circle.waits.iter().any(|wait| wait.has_timeout),
        behind: circle.behind as u64,
        waits: circle.waits.iter().map(&mut in_words).collect(),
    }
}

/// The holder in the probes' form; what it is doing is not known.
pub(crate) fn owner_of(wait: &Wait) -> types::owner {
    let mut owner = types::owner {
        certainty: tables::OWNER_EXACT,
        tid: wait.holder,
        ..types::owner::default()
    };
    let bytes = wait.holder_comm.bytes().take(owner.comm.len() - 1);
    for (to, from) in owner.comm.iter_mut().zip(bytes) {
        *to = from as i8;
    }
    owner
}
