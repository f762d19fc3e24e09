//! Calls that have not returned when the recording ends: their times so far, and what they wait for.

use std::collections::HashMap;
use std::rc::Rc;

use anyhow::Result;

use super::Recorder;
use crate::history::{Budget, Call, Sleep, Text};
use crate::kept::InFlight;
use crate::session::frames_in_flight;
use crate::tables::{self, total, types, CALL_IA32};
use crate::waited::of_thread;

/// The waker of a sleep that has not ended.
const NOT_ENDED: &str = "none";

impl Recorder {
    pub(super) fn keep_in_flight(
        &mut self,
        in_flight: &InFlight,
        keep: &mut dyn FnMut(Call) -> Result<()>,
    ) -> Result<()> {
        let mut calls = Vec::new();
        for thread in &in_flight.threads {
            // The call seen before the stop may have ended, and another one may have begun.
            let is_same = |task: &&types::in_flight| {
                task.call == thread.call && task.ordinal == thread.calls + 1
            };
            let task = in_flight.tasks.get(&thread.index).filter(is_same);
            let user_stack = task.and_then(|_| in_flight.user_stacks.get(&thread.index));
            calls.push(self.open_call(thread, task, user_stack.copied(), in_flight));
        }
        name_doings(&mut calls);
        calls.into_iter().try_for_each(keep)
    }

    fn open_call(
        &mut self,
        thread: &types::thread,
        task: Option<&types::in_flight>,
        user_stack: Option<u64>,
        in_flight: &InFlight,
    ) -> Call {
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
        sleeps.extend(self.open_sleep(thread, task, in_flight));
        let (caller, stack) = self
            .texts
            .user_stack(self.source.lookups(), user_stack.unwrap_or(0));
        let detail = self.source.options().detail;
        // The open part was closed at the stop.
        let parts = thread.parts;
        // The probes report who had the CPU only when the call ends.
        let waited_ns = parts[tables::PART_RUNQUEUE].saturating_add(parts[tables::PART_PREEMPTED]);
        let cpu_wait = self.cpu_wait(waited_ns, None);
        Call {
            pid: thread.tgid,
            tid: thread.tid,
            comm: self.texts.comm(&thread.comm),
            name: self.texts.call(thread.call),
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
            cpu_wait,
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
        }
    }

    /// The sleep that has not ended.
    fn open_sleep(
        &mut self,
        thread: &types::thread,
        task: Option<&types::in_flight>,
        in_flight: &InFlight,
    ) -> Option<Sleep> {
        if thread.mode != tables::MODE_BLOCKED {
            return None;
        }
        let wait = in_flight.waits.get(&thread.index);
        let wait = wait.copied().unwrap_or_default();
        // The broker sends it with the wait.
        let lock_flags = thread.lock_flags | wait.lock_flags;
        let begin_ns = match thread.has_parts {
            0 => thread.begin_ns,
            _ => thread.stamp_ns,
        };
        let kept = types::kept_sleep {
            kind: tables::KEPT_SLEEP,
            tid: thread.tid,
            call: thread.call,
            lock_flags,
            ordinal: thread.calls + 1,
            begin_ns,
            blocked_ns: in_flight.stopped_ns.saturating_sub(begin_ns),
            resource: wait.resource,
            owner: wait.owner,
            ownable: wait.ownable,
            ..types::kept_sleep::default()
        };
        let frames = task.map(frames_in_flight).unwrap_or_default();
        let args = task.map(|task| task.args);
        let at = (thread.call, lock_flags);
        let sleep = self.sleep(&kept);
        let waited = of_thread(self.source.waited(), thread, Some(&wait.resource));
        let (resource_kind, resource) = match waited.cloned() {
            Some(waited) => self.texts.of_resource(&waited),
            None => (sleep.resource_kind.clone(), sleep.resource.clone()),
        };
        let place = self
            .texts
            .open_place(self.source.lookups(), at, args, &frames);
        Some(Sleep {
            label: place.label,
            class: place.class,
            site: place.site,
            stack: place.stack,
            waker_kind: Rc::from(NOT_ENDED),
            resource_kind,
            resource,
            ..sleep
        })
    }
}

/// Fills in what holders do if the probes did not see it, from the calls that they sleep in.
fn name_doings(calls: &mut [Call]) {
    let label = |call: &Call| {
        let last = call
            .sleeps
            .last()
            .filter(|last| &*last.waker_kind == NOT_ENDED);
        last.map(|last| (call.tid, Rc::clone(&last.label)))
    };
    let labels: HashMap<u32, Text> = calls.iter().filter_map(label).collect();
    let sleeps = calls.iter_mut().filter_map(|call| call.sleeps.last_mut());
    for sleep in sleeps.filter(|sleep| sleep.owner_doing.is_none()) {
        let doing = sleep.owner_tid.and_then(|tid| labels.get(&tid));
        sleep.owner_doing = doing.cloned();
    }
}
