//! A call for which a trigger fired.

use crate::predicate::{CpuOwner, Fields, Number, Site};
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

/// The bit by which the probes invert the sign of `ret`.
pub(crate) const SIGN: u64 = 1 << 63;

impl Fired {
    pub(super) fn new(event: &types::trigger_fired) -> Fired {
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
}

/// A fired call as the input of a predicate, with the names of the sites as far as they are known.
pub(super) struct Decided<'a> {
    pub fired: &'a Fired,
    pub sites: Vec<Option<(String, String)>>,
}

impl Fields for Decided<'_> {
    fn call(&self) -> u32 {
        self.fired.call
    }

    fn number(&self, field: Number) -> Option<i128> {
        Some(match field {
            Number::Ret => i128::from(self.fired.ret()),
            _ => i128::from(self.fired.value(field)),
        })
    }

    /// The probes leave such pieces out.
    fn is_restarted(&self) -> bool {
        false
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.fired.comm)
    }

    fn cpu_owner(&self) -> CpuOwner<'_> {
        match &self.fired.cpu_owner {
            Some(comm) => CpuOwner::Named(comm),
            None if self.fired.is_owner_known => CpuOwner::Nobody,
            None => CpuOwner::Unknown,
        }
    }

    fn sites(&self) -> impl Iterator<Item = Option<Site<'_>>> {
        self.sites.iter().map(|site| {
            let (label, class) = site.as_ref()?;
            Some(Site { label, class })
        })
    }
}
