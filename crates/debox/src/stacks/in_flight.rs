//! The user stacks of tasks that sleep, taken from outside.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::process::Processes;
use crate::tables::{self, types};

/// Of a user stack, as much as the probes send (`STACK_ASK_BYTES`).
const STACK_BYTES: usize = 16384;

/// A task's user stack as the probes send those of tasks that run, with what the process has mapped
/// there. The task may go on meanwhile: then the words are not those of the registers, and the stack
/// is not used, because the call is another.
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
