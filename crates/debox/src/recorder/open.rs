//! Calls that have not returned when the recording ends: what they have come to, and what they wait for.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use anyhow::Result;
use libbpf_rs::{MapCore, MapFlags};

use super::Recorder;
use crate::collect::{frames_in_flight, Snapshot};
use crate::history::{Budget, Call, Sleep};
use crate::session::Tap;
use crate::tables::{self, total, types, CALL_IA32};

/// Threads whose place in the program is looked up, at most.
const MAX_STACKS: usize = 1024;

/// Of a user stack, as much as the probes send (`STACK_ASK_BYTES`).
const STACK_BYTES: usize = 16384;

/// What the tasks were in shortly before the stop.
pub(super) struct Tasks {
    tasks: HashMap<u32, types::in_flight>,
    /// Names of their user stacks.
    user_stacks: HashMap<u32, u64>,
}

impl Tasks {
    /// By index in `threads`.
    pub fn kernel_stacks(&self) -> HashMap<u32, Vec<u64>> {
        let tasks = self.tasks.iter();
        tasks
            .map(|(at, task)| (*at, frames_in_flight(task)))
            .collect()
    }
}

impl Recorder {
    /// To be asked before the stop, while the tasks are still known to the probes.
    pub(super) fn tasks_in_flight(&mut self) -> Result<Tasks> {
        let tasks = self.session.tasks_in_flight()?;
        let events = self.session.events.borrow();
        let mut user_stacks = HashMap::new();
        let in_calls = tasks.iter().filter(|(_, task)| task.ordinal > 0);
        for (at, task) in in_calls.take(MAX_STACKS) {
            // The probes' names are hashes; none of these is likely to be one.
            let name = u64::MAX - u64::from(*at);
            let mut processes = events.processes.borrow_mut();
            let Some(ask) = user_stack(task, name, &mut processes) else {
                continue;
            };
            events.stacks.borrow_mut().take(&ask, &mut processes);
            user_stacks.insert(*at, name);
        }
        drop(events);
        Ok(Tasks { tasks, user_stacks })
    }

    pub(super) fn keep_in_flight(
        &mut self,
        tasks: &Tasks,
        stopped_ns: u64,
        keep: &mut dyn FnMut(Call) -> Result<()>,
    ) -> Result<()> {
        let detail = self.session.options.detail;
        let mut open = Snapshot::empty(Tap::Kernel, detail, stopped_ns);
        self.session.add_living(&mut open, &HashMap::new())?;
        for (at, _) in &open.open_calls {
            let thread = &open.threads[*at];
            // What was seen before the stop may have ended, and another call begun.
            let is_same = |task: &&types::in_flight| {
                task.call == thread.call && task.ordinal == thread.calls + 1
            };
            let task = tasks.tasks.get(&thread.index).filter(is_same);
            let user_stack = task.and_then(|_| tasks.user_stacks.get(&thread.index));
            let call = self.open_call(thread, task, user_stack.copied(), stopped_ns)?;
            keep(call)?;
        }
        Ok(())
    }

    fn open_call(
        &mut self,
        thread: &types::thread,
        task: Option<&types::in_flight>,
        user_stack: Option<u64>,
        stopped_ns: u64,
    ) -> Result<Call> {
        let ordinal = thread.calls + 1;
        let kept = self.open.remove(&thread.tid).unwrap_or_default();
        let own =
            |sleep: &&types::kept_sleep| sleep.ordinal == ordinal && sleep.call == thread.call;
        let mut sleeps: Vec<Sleep> = kept
            .sleeps
            .iter()
            .filter(own)
            .map(|sleep| self.sleep(sleep))
            .collect();
        sleeps.extend(self.open_sleep(thread, task, stopped_ns)?);
        let (caller, stack) = self
            .words
            .user_stack(&self.session, user_stack.unwrap_or(0));
        let detail = self.session.options.detail;
        // The open part was closed at the stop.
        let parts = thread.parts;
        Ok(Call {
            pid: thread.tgid,
            tid: thread.tid,
            comm: self.words.comm(&thread.comm),
            name: self.words.call(thread.call),
            number: (thread.call & !CALL_IA32) as i32,
            ia32: thread.call & CALL_IA32 != 0,
            ordinal,
            start_ns: thread.begin_ns,
            wall_ns: total(&parts),
            budget: Budget {
                cpu_ns: parts[tables::PART_CPU],
                blocked_ns: parts[tables::PART_BLOCKED],
                runqueue_ns: parts[tables::PART_RUNQUEUE],
                preempted_ns: parts[tables::PART_PREEMPTED],
                irq_ns: detail.irq.then_some(parts[tables::PART_IRQ]),
            },
            spin_ns: thread.spin_ns,
            in_flight: true,
            ret: 0,
            args: task.map_or([0; 3], |task| task.args),
            faults_minor: task.map_or(0, |task| task.faults_minor),
            faults_major: task.map_or(0, |task| task.faults_major),
            read_bytes: None,
            write_bytes: None,
            restarted: false,
            partial: thread.flags & tables::THREAD_PARTIAL != 0,
            caller,
            stack,
            user: None,
            sleeps,
            sleeps_left_out: kept.left_out,
        })
    }

    /// The sleep that has not ended.
    fn open_sleep(
        &mut self,
        thread: &types::thread,
        task: Option<&types::in_flight>,
        stopped_ns: u64,
    ) -> Result<Option<Sleep>> {
        if thread.mode != tables::MODE_BLOCKED {
            return Ok(None);
        }
        let key = thread.index.to_ne_bytes();
        let found = self.session.skel.maps.waits.lookup(&key, MapFlags::ANY)?;
        let wait = found.as_deref().and_then(tables::read_value::<types::wait>);
        let wait = wait
            .filter(|wait| wait.tid == thread.tid)
            .unwrap_or_default();
        let begin_ns = match thread.parted {
            0 => thread.begin_ns,
            _ => thread.stamp_ns,
        };
        let kept = types::kept_sleep {
            kind: tables::KEPT_SLEEP,
            tid: thread.tid,
            call: thread.call,
            lock_flags: thread.lock_flags,
            ordinal: thread.calls + 1,
            begin_ns,
            blocked_ns: stopped_ns.saturating_sub(begin_ns),
            resource: wait.resource,
            owner: wait.owner,
            ownable: wait.ownable,
            ..types::kept_sleep::default()
        };
        let frames = task.map(frames_in_flight).unwrap_or_default();
        let args = task.map(|task| task.args);
        let at = (thread.call, thread.lock_flags);
        let place = self.words.open_place(&self.session, at, args, &frames);
        Ok(Some(Sleep {
            label: place.label,
            class: place.class,
            site: place.site,
            stack: place.stack,
            waker_kind: Rc::from("none"),
            ..self.sleep(&kept)
        }))
    }
}

/// A task's user stack as the probes send those of tasks that run, with what the process has mapped
/// there. The task may go on meanwhile: then the words are not those of the registers, and the stack
/// is not used, because the call is another.
fn user_stack(
    task: &types::in_flight,
    name: u64,
    processes: &mut crate::process::Processes,
) -> Option<Vec<u8>> {
    let at_ip = processes.mapped_at(task.ask.tgid, task.ask.ip)?;
    let memory = File::open(format!("/proc/{}/mem", task.ask.tgid)).ok()?;
    let mut words = vec![0u8; STACK_BYTES];
    let mut read = 0;
    while read < words.len() {
        // It ends where it is mapped no more.
        match memory.read_at(&mut words[read..], task.ask.sp + read as u64) {
            Ok(0) | Err(_) => break,
            Ok(more) => read += more,
        }
    }
    let ask = types::stack_ask {
        name,
        bytes: read as u32,
        at_ip,
        ..task.ask
    };
    Some([tables::bytes_of(&ask), &words[..read]].concat())
}
