//! A call as a history stores it: one record, with names instead of numbers.
//!
//! Nothing here knows of files; `debox-history` writes and reads them.

use std::borrow::Cow;
use std::rc::Rc;

use crate::calls::{CALL_IA32, CALL_NONE};
use crate::predicate::{self, Fields, Number, Site};

/// Text with few distinct values: names, labels, stacks.
pub type Text = Rc<str>;

/// One call, or a piece of a thread's time between calls.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Call {
    pub pid: u32,
    pub tid: u32,
    pub comm: Text,
    /// Name of the call, or `(user)`.
    pub name: Text,
    /// Its number, -1 for `(user)`.
    pub number: i32,
    /// Made by a 32-bit program.
    pub ia32: bool,
    /// Ordinal of the call on its thread, from 1. `(user)`: that of the next call.
    pub ordinal: u64,
    /// `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    pub wall_ns: u64,
    pub budget: Budget,
    /// Detail `cpu`: why it waited for a CPU. `None`: not measured, or lost.
    pub cpu_wait: Option<CpuWait>,
    /// The part of the CPU time that was spent spinning for a lock.
    pub spin_ns: u64,
    /// It had not returned when the recording ended: the values are those at that time.
    pub in_flight: bool,
    /// As the kernel returned it: `-errno` on error. 0 for `(user)`, and for a call in flight.
    pub ret: i64,
    pub args: [u64; 3],
    pub faults_minor: u32,
    pub faults_major: u32,
    /// Detail `io`: bytes fetched from storage.
    pub read_bytes: Option<u64>,
    /// Detail `io`: bytes to be sent to storage.
    pub write_bytes: Option<u64>,
    /// A piece of a call that the kernel restarts.
    pub restarted: bool,
    /// The call began before it was monitored: start and times are lower bounds. Or its end was not
    /// seen: it then lasts until the next call, and arguments and result are 0.
    pub partial: bool,
    /// The innermost function that is the program's own, with file and line where known.
    pub caller: Option<Text>,
    /// The program's stack: outermost function first, `;` in between.
    pub stack: Option<Text>,
    /// The program's own measurement around the call, if it was requested and the shim saw the call.
    pub user: Option<UserLevel>,
    /// In order.
    pub sleeps: Vec<Sleep>,
    /// Sleeps that are not in `sleeps`; their time is in the budget.
    pub sleeps_left_out: u32,
}

impl Call {
    /// Name of the error that the call returned.
    pub fn error(&self) -> Option<Cow<'static, str>> {
        let is_error = self.number >= 0
            && !self.in_flight
            && (-4095..0).contains(&self.ret)
            && !self.restarted;
        is_error.then(|| crate::calls::error_name(-self.ret as i32))
    }
}

/// The parts of a call's wall time. They add up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    pub cpu_ns: u64,
    pub blocked_ns: u64,
    pub runqueue_ns: u64,
    pub preempted_ns: u64,
    /// Detail `irq`; without it, included in `cpu_ns`.
    pub irq_ns: Option<u64>,
}

/// Why a call waited for a CPU, for as long as `runqueue_ns` and `preempted_ns` say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuWait {
    /// The time in which the CPU quota of a control group was used up.
    pub throttled_ns: u64,
    /// Who had the CPU for the largest part of the remaining time, if any remains.
    pub owner: Option<CpuOwner>,
}

/// Who had a CPU. Processes count as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuOwner {
    /// `task`, `own` (threads of the call's process), `kernel`, `idle`, `hidden`, `stolen`, `many`, or
    /// `unknown`.
    pub kind: Text,
    /// For the first three kinds.
    pub pid: Option<u32>,
    pub comm: Option<Text>,
    pub ns: u64,
}

/// A call as the program sees it: from a stamp before it to a stamp after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserLevel {
    /// Between the stamps: the call and the two times below.
    pub wall_ns: u64,
    /// Upper bound of the time off the CPU on the way into the kernel and back.
    pub away_ns: u64,
    /// Time in other calls between the stamps: those of signal handlers, and earlier pieces of a
    /// restarted call.
    pub calls_ns: u64,
}

/// One sleep, from leaving the CPU to coming back.
///
/// The kinds of wakers and certainties are texts here, not enums: a file may be from a newer recorder, and readers pass on
/// words that they do not know.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sleep {
    /// `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// From leaving the CPU to the wake-up.
    pub blocked_ns: u64,
    /// From the wake-up until the thread ran.
    pub runqueue_ns: u64,
    pub label: Text,
    pub class: Text,
    /// The kernel function that decided to wait.
    pub site: Text,
    /// The kernel's stack: outermost function first, `;` in between.
    pub stack: Option<Text>,
    /// What was waited on.
    pub resource_kind: Option<Text>,
    pub resource: Option<Text>,
    /// `task`, `hardirq`, `softirq` or `unknown`; `none` for a sleep that had not ended.
    pub waker_kind: Text,
    pub waker_tid: Option<u32>,
    pub waker_comm: Option<Text>,
    /// `exact`, `last reader`, `last holder`, or `none`: the resource can be held, but its owner is
    /// unknown.
    pub owner_certainty: Option<Text>,
    pub owner_tid: Option<u32>,
    pub owner_comm: Option<Text>,
    pub owner_doing: Option<Text>,
    /// Most waiters when it began, this one included.
    pub waiters_entry: Option<u32>,
    /// Waiters that it left behind.
    pub waiters_exit: Option<u32>,
}

impl Fields for Call {
    fn call(&self) -> u32 {
        match u32::try_from(self.number) {
            Err(_) => CALL_NONE,
            Ok(number) if self.ia32 => number | CALL_IA32,
            Ok(number) => number,
        }
    }

    fn number(&self, field: Number) -> Option<i128> {
        let longest = || self.sleeps.iter().map(|sleep| sleep.blocked_ns).max();
        // The lengths of the sleeps that were left out are unknown.
        let is_whole = self.sleeps_left_out == 0;
        Some(match field {
            Number::Ret if self.in_flight => return None,
            Number::Ret => self.ret.into(),
            Number::Wall => self.wall_ns.into(),
            Number::Cpu => self.budget.cpu_ns.into(),
            Number::Blocked => self.budget.blocked_ns.into(),
            Number::Runqueue => self.budget.runqueue_ns.into(),
            Number::Preempted => self.budget.preempted_ns.into(),
            Number::Irq => self.budget.irq_ns?.into(),
            Number::Spin => self.spin_ns.into(),
            Number::Throttled => self.cpu_wait.as_ref()?.throttled_ns.into(),
            Number::Longest if is_whole => longest().unwrap_or(0).into(),
            Number::Longest => return None,
            Number::Sleeps => self.sleeps.len() as i128 + i128::from(self.sleeps_left_out),
            Number::FaultsMinor => self.faults_minor.into(),
            Number::FaultsMajor => self.faults_major.into(),
            Number::Pid => self.pid.into(),
            Number::Tid => self.tid.into(),
            Number::Arg0 => self.args[0].into(),
            Number::Arg1 => self.args[1].into(),
            Number::Arg2 => self.args[2].into(),
        })
    }

    fn is_restarted(&self) -> bool {
        self.restarted
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn cpu_owner(&self) -> predicate::CpuOwner<'_> {
        let Some(wait) = &self.cpu_wait else {
            return predicate::CpuOwner::Unknown;
        };
        match &wait.owner {
            None => predicate::CpuOwner::Nobody,
            Some(CpuOwner {
                comm: Some(comm), ..
            }) => predicate::CpuOwner::Named(comm),
            Some(owner) if ["idle", "stolen"].contains(&&*owner.kind) => {
                predicate::CpuOwner::Nobody
            }
            Some(_) => predicate::CpuOwner::Unknown,
        }
    }

    fn sites(&self) -> impl Iterator<Item = Option<Site<'_>>> {
        let left_out = (self.sleeps_left_out > 0).then_some(None);
        let kept = self.sleeps.iter().map(|sleep| {
            Some(Site {
                label: &sleep.label,
                class: &sleep.class,
            })
        });
        kept.chain(left_out)
    }
}
