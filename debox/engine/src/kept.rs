// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session's records as the probes send them (`debox/probe/history.h`).

use std::collections::HashMap;

use crate::tables::{self, types, OpenWait};

/// A message from the ring buffer of records.
pub(crate) enum Kept {
    Call(types::kept_call),
    Sleep(types::kept_sleep),
    Stamps(types::kept_stamps),
    Cpu(types::kept_cpu),
}

impl Kept {
    /// The thread that it is of.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn tid(&self) -> u32 {
        match self {
            Kept::Call(call) => call.tid,
            Kept::Sleep(sleep) => sleep.tid,
            Kept::Stamps(stamps) => stamps.tid,
            Kept::Cpu(cpu) => cpu.tid,
        }
    }

    /// `None` if this is not one of the probes' messages.
    pub fn read(bytes: &[u8]) -> Option<Kept> {
        match tables::read_value::<u32>(bytes)? {
            tables::KEPT_CALL => tables::read_value(bytes).map(Kept::Call),
            tables::KEPT_SLEEP => tables::read_value(bytes).map(Kept::Sleep),
            tables::KEPT_CPU => tables::read_value(bytes).map(Kept::Cpu),
            tables::KEPT_STAMPS => tables::read_value(bytes).map(Kept::Stamps),
            _ => None,
        }
    }
}

/// The calls that have not returned when the monitoring ends.
#[derive(Default)]
pub(crate) struct InFlight {
    pub stopped_ns: u64,
    /// The threads that are in calls.
    pub threads: Vec<types::thread>,
    /// By index in the table of threads, as are the next two: the calls shortly before the end.
    pub tasks: HashMap<u32, types::in_flight>,
    /// What they wait for.
    pub waits: HashMap<u32, OpenWait>,
    /// Names of their user stacks.
    pub user_stacks: HashMap<u32, u64>,
}
