//! The user stacks of sleeping tasks, read from outside.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::process::Processes;
use crate::tables::{self, types};

/// How much of a user stack is read: as much as the probes send (`STACK_ASK_BYTES`).
const STACK_BYTES: usize = 16384;

/// The user stack of a task that sleeps in a call, without the probes. `/proc` shows only two of its registers,
/// which are enough to unwind the C library's functions. Their callers may need others; then the stack ends there.
pub(crate) fn of_sleeper(
    pid: u32,
    tid: u32,
    name: u64,
    processes: &mut Processes,
) -> Option<Vec<u8>> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/syscall")).ok()?;
    let mut words = text.split_whitespace().rev();
    let mut register = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (ip, sp) = (register()?, register()?);
    let task = types::in_flight {
        ask: types::stack_ask {
            ip,
            sp,
            tgid: pid,
            ..types::stack_ask::default()
        },
        ..types::in_flight::default()
    };
    of_task(&task, name, processes)
}

/// A task's user stack in the format in which the probes send those of running tasks, with the process's mapping
/// there. The task may continue meanwhile: then the words do not match the registers, but the stack is not used,
/// because the call has changed.
pub(crate) fn of_task(
    task: &types::in_flight,
    name: u64,
    processes: &mut Processes,
) -> Option<Vec<u8>> {
    let at_ip = processes.mapped_at(task.ask.tgid, task.ask.ip)?;
    let memory = File::open(format!("/proc/{}/mem", task.ask.tgid)).ok()?;
    let mut words = vec![0u8; STACK_BYTES];
    let mut read = 0;
    while read < words.len() {
        // The stack ends with its mapping.
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
