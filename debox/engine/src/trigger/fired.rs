//! A call for which a trigger fired.

use crate::decision::{EndedCall, SIGN};
use crate::predicate::{CpuOwner, Number, Site};
use crate::tables::{self, types};

/// What was known about the call when its trigger fired.
#[derive(Debug, Clone)]
pub struct Fired {
    /// Index of the trigger in the session.
    pub trigger: usize,
    /// When the call ended and when it began, by CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub begin_ns: u64,
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    /// Its number, as for [`crate::calls::name`].
    pub call: u32,
    /// Whether it was decided by the engine, after the program had continued.
    pub is_late: bool,
    /// The error number if the signal could not be sent.
    pub signal_failed: Option<i32>,
    /// The process that had the CPU for most of the time in which the call waited for one.
    pub cpu_owner: Option<String>,
    is_owner_known: bool,
    values: [u64; 32],
    pub(crate) kernel_stack: u64,
    pub(crate) lock_flags: u32,
    pub(crate) user_stack: u64,
}

impl Fired {
    pub(crate) fn new(event: &types::trigger_fired) -> Fired {
        let value = |field: Number| event.values[field as usize];
        Fired {
            trigger: event.trigger as usize,
            at_ns: event.at_ns,
            begin_ns: event.begin_ns,
            pid: value(Number::Pid) as u32,
            tid: value(Number::Tid) as u32,
            comm: tables::comm(&event.comm),
            call: event.call,
            is_late: event.undecided != 0,
            signal_failed: (event.failed != 0).then_some(event.failed.saturating_neg()),
            cpu_owner: (event.cpu_owner == tables::OWNER_NAMED)
                .then(|| tables::comm(&event.cpu_owner_comm)),
            is_owner_known: event.cpu_owner != tables::OWNER_UNNAMED,
            values: event.values,
            kernel_stack: event.kernel_stack,
            lock_flags: event.lock_flags,
            user_stack: event.user_stack,
        }
    }

    /// A number of the call's record, unsigned.
    pub fn value(&self, field: Number) -> u64 {
        match field {
            Number::Ret => self.ret() as u64,
            _ => self.values[field as usize],
        }
    }

    /// The kernel's return value.
    pub fn ret(&self) -> i64 {
        (self.values[Number::Ret as usize] ^ SIGN) as i64
    }

    /// The call as the input of its predicate, with the names of its sites as far as they are known.
    pub(super) fn as_ended<'a>(&'a self, sites: &'a [Option<Site<'a>>]) -> EndedCall<'a> {
        EndedCall {
            call: self.call,
            values: &self.values,
            comm: Some(&self.comm),
            cpu_owner: match &self.cpu_owner {
                Some(comm) => CpuOwner::Named(comm),
                None if self.is_owner_known => CpuOwner::Nobody,
                None => CpuOwner::Unknown,
            },
            sites,
        }
    }
}
