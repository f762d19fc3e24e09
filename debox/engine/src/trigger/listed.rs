// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls for which triggers fired: what is done for each, and those that are kept for the report.

use serde::{Deserialize, Serialize};

use super::fired::Fired;
use super::Trigger;
use crate::explain::Explainer;
use crate::options::Detail;
use crate::predicate::Number;
use crate::report;
use crate::sleep_place::SleepPlace;

/// The most calls of one trigger that are kept for the report.
const KEPT_MAX: usize = 100;

type Hook = Box<dyn FnMut(&Fired)>;

/// How often a trigger fired, and why it did not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub fired: u64,
    /// Those of them that were decided after the program had continued.
    pub late: u64,
    pub suppressed: u64,
    pub undecided: u64,
    pub unsent: u64,
    pub unlisted: u64,
}

impl Counts {
    pub fn add(&mut self, more: &Counts) {
        for (sum, more) in [
            (&mut self.fired, more.fired),
            (&mut self.late, more.late),
            (&mut self.suppressed, more.suppressed),
            (&mut self.undecided, more.undecided),
            (&mut self.unsent, more.unsent),
            (&mut self.unlisted, more.unlisted),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// The calls that fired, by trigger.
#[derive(Default)]
pub(crate) struct Listed {
    triggers: Vec<OfTrigger>,
    hook: Option<Hook>,
}

struct OfTrigger {
    trigger: Trigger,
    calls: Vec<Fired>,
    unsent: u64,
    unlisted: u64,
}

impl Listed {
    pub fn new(triggers: &[Trigger]) -> Listed {
        let triggers = triggers.iter().map(|trigger| OfTrigger {
            trigger: trigger.clone(),
            calls: Vec::new(),
            unsent: 0,
            unlisted: 0,
        });
        Listed {
            triggers: triggers.collect(),
            hook: None,
        }
    }

    /// Sets the function to call for each call for which a trigger fires.
    pub fn set_hook(&mut self, hook: Hook) {
        self.hook = Some(hook);
    }

    /// Takes a call for which a trigger fired. If it was decided late, its signal is sent now, with the rights of
    /// this process.
    pub fn take(&mut self, mut fired: Fired) {
        let Some(of) = self.triggers.get_mut(fired.trigger) else {
            return;
        };
        if let (true, Some(signal)) = (fired.is_late, of.trigger.signal) {
            if let Err(error) = send(fired.pid, fired.tid, signal) {
                of.unsent += 1;
                fired.signal_failed = Some(error);
            }
        }
        if let Some(hook) = &mut self.hook {
            hook(&fired);
        }
        if of.calls.len() < KEPT_MAX {
            of.calls.push(fired);
        } else {
            of.unlisted += 1;
        }
    }

    /// The part of the report that is about triggers. `counts`: of each of them.
    pub fn report(
        &self,
        counts: &[Counts],
        explainer: &Explainer,
        started_ns: u64,
        detail: Detail,
    ) -> Vec<report::Trigger> {
        let of_triggers = self.triggers.iter().enumerate();
        let triggers = of_triggers.map(|(index, of)| {
            let counts = counts.get(index).copied().unwrap_or_default();
            let calls = of.calls.iter();
            report::Trigger {
                predicate: of.trigger.predicate.to_string(),
                signal: of.trigger.signal_name(),
                limit_per_second: of.trigger.limit.map(u64::from),
                fired: counts.fired,
                late: counts.late,
                suppressed: counts.suppressed,
                undecided: counts.undecided,
                signals_failed: counts.unsent.saturating_add(of.unsent),
                unlisted: counts.unlisted.saturating_add(of.unlisted),
                calls: calls
                    .map(|fired| call_of(fired, explainer, started_ns, detail))
                    .collect(),
            }
        });
        triggers.collect()
    }
}

fn call_of(
    fired: &Fired,
    explainer: &Explainer,
    started_ns: u64,
    detail: Detail,
) -> report::TriggerCall {
    let value = |field: Number| fired.value(field);
    let slept = value(Number::Sleeps) > 0;
    let sleep = slept.then(|| {
        explainer.sleep(SleepPlace {
            stack: fired.kernel_stack,
            call: fired.call,
            lock_flags: fired.lock_flags,
        })
    });
    let user = explainer.user_stack(fired.user_stack);
    let (label, class, frames) = match sleep {
        Some(sleep) => (Some(sleep.label), Some(sleep.class), sleep.frames),
        None => (None, None, Vec::new()),
    };
    report::TriggerCall {
        at_ns: fired.at_ns.saturating_sub(started_ns),
        pid: fired.pid,
        tid: fired.tid,
        comm: fired.comm.clone(),
        syscall: crate::calls::name(fired.call),
        ret: fired.ret(),
        args: [Number::Arg0, Number::Arg1, Number::Arg2]
            .map(value)
            .to_vec(),
        wall_ns: value(Number::Wall),
        cpu_ns: value(Number::Cpu),
        blocked_ns: value(Number::Blocked),
        runqueue_ns: value(Number::Runqueue),
        preempted_ns: value(Number::Preempted),
        throttled_ns: detail.cpu.then_some(value(Number::Throttled)),
        cpu_owner: fired.cpu_owner.clone(),
        irq_ns: detail.irq.then_some(value(Number::Irq)),
        spin_ns: detail.sleeps.then_some(value(Number::Spin)),
        sleeps: value(Number::Sleeps),
        longest_ns: value(Number::Longest),
        faults_minor: value(Number::FaultsMinor),
        faults_major: Some(value(Number::FaultsMajor)),
        label,
        class,
        kernel_frames: frames,
        caller: user.caller,
        frames: user.frames,
        late: fired.is_late,
        signal_failed: fired.signal_failed.is_some(),
    }
}

/// Sends a signal to this thread, if it still exists. Without privilege: not to a thread that has got other rights than
/// this process since, although the kernel lets a user signal the set-user-id programs that it starts.
fn send(pid: u32, tid: u32, signal: i32) -> Result<(), i32> {
    // SAFETY: takes nothing and cannot fail.
    let own = unsafe { libc::geteuid() };
    if own != 0 && !has_ids(tid, own) {
        return Err(libc::EPERM);
    }
    // SAFETY: tgkill takes numbers only.
    match unsafe { libc::syscall(libc::SYS_tgkill, pid as i32, tid as i32, signal) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

/// Whether all user ids of a thread are this one.
fn has_ids(tid: u32, id: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{tid}/status")) else {
        return false;
    };
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let ids = ids.unwrap_or_default().split_whitespace();
    let ids: Vec<Option<u32>> = ids.map(|id| id.parse().ok()).collect();
    ids.len() == 4 && ids.iter().all(|one| *one == Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_users_ids_or_others() {
        // SAFETY: takes nothing and cannot fail.
        let own = unsafe { libc::geteuid() };
        let tid = std::process::id();
        assert!(has_ids(tid, own));
        assert!(!has_ids(tid, own + 1));
        assert!(!has_ids(u32::MAX / 2, own));
    }
}
