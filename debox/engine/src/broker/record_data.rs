// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records and calls for which triggers fired, as they are sent to the client that they belong to: field by field, as
//! in `probe_data.rs`.

use serde::{Deserialize, Serialize};

use super::probe_data::fields_of;
use super::wire::rows::{Named, Owner};
use crate::kept::Kept;
use crate::tables::{self, types};

fields_of! {
    CallFields of kept_call {
        tid: u32,
        tgid: u32,
        call: u32,
        flags: u32,
        faults_minor: u32,
        faults_major: u32,
        ordinal: u64,
        begin_ns: u64,
        wall_ns: u64,
        ret: i64,
        args: [u64; 3],
        user_stack: u64,
        parts: [u64; tables::PARTS],
        spin_ns: u64,
        read_bytes: u64,
        write_bytes: u64,
        comm: [i8; 16],
    }
}

fields_of! {
    SleepFields of kept_sleep {
        tid: u32,
        call: u32,
        lock_flags: u32,
        ordinal: u64,
        begin_ns: u64,
        blocked_ns: u64,
        runqueue_ns: u64,
        stack: u64,
        ownable: u32,
        waker_kind: u32,
        waker_tid: u32,
        waiters_scope: u32,
        waiters_entry: u32,
        waiters_exit: u32,
        waker_comm: [i8; 16],
    }
}

fields_of! {
    CpuFields of kept_cpu {
        tid: u32,
        call: u32,
        ordinal: u64,
        throttled_ns: u64,
    }
}

fields_of! {
    /// Who had the CPU. Of other users' tasks the probes say only that there was one.
    CpuOwner of cpu_owner {
        kind: u32,
        tgid: u32,
        ns: u64,
        comm: [i8; 16],
    }
}

/// A record, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordPart {
    Call(CallFields, Named),
    Sleep(SleepFields, Named, Owner),
    Cpu(CpuFields, CpuOwner),
}

impl RecordPart {
    /// `None` for what no client gets.
    pub fn of(kept: &Kept) -> Option<RecordPart> {
        Some(match kept {
            Kept::Call(call) => RecordPart::Call(call.into(), Named::of(call.polled)),
            Kept::Sleep(sleep) => {
                let mut sleep = *sleep;
                // These may be any user's.
                if sleep.waiters_scope == tables::WAITERS_ALL {
                    (sleep.waiters_scope, sleep.waiters_entry, sleep.waiters_exit) = (0, 0, 0);
                }
                let resource = Named::of(sleep.resource);
                RecordPart::Sleep((&sleep).into(), resource, (&sleep.owner).into())
            }
            Kept::Cpu(cpu) => RecordPart::Cpu(cpu.into(), (&cpu.owner).into()),
            Kept::Stamps(_) => return None,
        })
    }

    /// The record as the probes send it.
    pub fn kept(&self) -> Kept {
        match self {
            RecordPart::Call(fields, polled) => Kept::Call(types::kept_call {
                kind: tables::KEPT_CALL,
                polled: polled.into(),
                ..fields.into()
            }),
            RecordPart::Sleep(fields, resource, owner) => Kept::Sleep(types::kept_sleep {
                kind: tables::KEPT_SLEEP,
                resource: resource.into(),
                owner: owner.into(),
                ..fields.into()
            }),
            RecordPart::Cpu(fields, owner) => Kept::Cpu(types::kept_cpu {
                kind: tables::KEPT_CPU,
                owner: owner.into(),
                ..fields.into()
            }),
        }
    }
}

fields_of! {
    /// A call for which a trigger fired. Where it slept has been decided upon, and is not sent.
    FiredCall of trigger_fired {
        trigger: u32,
        undecided: u32,
        failed: i32,
        call: u32,
        lock_flags: u32,
        at_ns: u64,
        begin_ns: u64,
        kernel_stack: u64,
        user_stack: u64,
        values: [u64; 32],
        comm: [i8; 16],
        cpu_owner: u32,
        cpu_owner_comm: [i8; 16],
    }
}

fields_of! {
    /// A call that has not returned: what is known of it beside its thread.
    OpenCall of in_flight {
        call: u32,
        ordinal: u64,
        args: [u64; 3],
        faults_minor: u32,
        faults_major: u32,
    }
}
