//! Checks the machine's properties that affect measurements.

use std::fs;
use std::io;
use std::time::Duration;

use libbpf_rs::query::ProgInfoIter;

use super::finding::{Finding, NEEDS_ROOT};
use crate::clock::monotonic_ns;
use crate::kernel;

/// A clock slower than this is not read from the processor: then each stamp costs a device access.
const SLOW_CLOCK_NS: u64 = 250;

/// Every stamp reads the clock, so its cost is part of every measurement.
pub(super) fn clock() -> Finding {
    let need = "clock of the stamps";
    let name =
        fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .unwrap_or_default();
    let name = if name.trim().is_empty() {
        "of unknown source"
    } else {
        name.trim()
    };
    let reading = reading_ns();
    let found = format!("{name}, {reading} ns for a reading");
    if reading < SLOW_CLOCK_NS {
        return Finding::met(need, found);
    }
    Finding::limits(need, found)
        .cost("each call is slowed by several readings, and so is what is measured")
        .remedy("see /sys/devices/system/clocksource/clocksource0/available_clocksource for tsc")
}

/// The fastest of several batches, so that an interruption has no effect.
fn reading_ns() -> u64 {
    const BATCHES: u64 = 20;
    const READINGS: u64 = 500;
    let batch = || {
        let began = monotonic_ns();
        for _ in 0..READINGS {
            std::hint::black_box(monotonic_ns());
        }
        (monotonic_ns() - began) / READINGS
    };
    (0..BATCHES).map(|_| batch()).min().unwrap_or(0)
}

/// Time that the hypervisor takes looks like CPU time of the program unless the kernel reports it.
pub(super) fn steal() -> Finding {
    let need = "hypervisor steal";
    if !kernel::has_hypervisor() {
        return Finding::met(need, "no hypervisor");
    }
    match kernel::steal_ns() {
        Some(0) => Finding::unchecked(
            need,
            "none since boot: either none was taken, or the hypervisor does not report it",
        ),
        Some(ns) => {
            let seconds = Duration::from_nanos(ns).as_secs_f64();
            Finding::met(
                need,
                format!("told: {seconds:.1} s since boot, all CPUs together"),
            )
        }
        None => Finding::limits(need, "not reported by this kernel")
            .cost("time that the hypervisor takes is inside the CPU times, unseen"),
    }
}

/// Looks for sessions of other processes, recognised by a probe's name.
pub(super) fn other_sessions(bpf: &io::Result<()>) -> Finding {
    let need = "no other session";
    if bpf.is_err() {
        return Finding::unchecked(need, NEEDS_ROOT);
    }
    // Each session has one program of the first name, which may be held by the gate only; all
    // sessions share one of the second.
    let ids_of = |name: &str| -> Vec<u32> {
        let programs = ProgInfoIter::default().filter(|program| program.name == name);
        programs.map(|program| program.id).collect()
    };
    let sessions = ids_of("on_switch");
    if sessions.is_empty() {
        return Finding::met(need, "none runs");
    }
    let ids = [&sessions[..], &ids_of("gate_switch")].concat();
    let holders: Vec<String> = holders_of(&ids).iter().map(u32::to_string).collect();
    let found = match holders.as_slice() {
        [] => format!(
            "{} at work, of a process that cannot be seen from here",
            sessions.len()
        ),
        [pid] => format!("process {pid} runs one"),
        pids => format!("processes {} run some", pids.join(", ")),
    };
    Finding::limits(need, found)
        .cost("every call and switch of every process takes longer, as with one session of its own")
        .remedy("measure when it has ended")
}

/// The processes that hold any of these programs.
fn holders_of(ids: &[u32]) -> Vec<u32> {
    let holds = |pid: u32| {
        let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"))
            .into_iter()
            .flatten()
            .flatten();
        entries
            .filter_map(|entry| fs::read_to_string(entry.path()).ok())
            .any(|text| {
                let id = text.lines().find_map(|line| line.strip_prefix("prog_id:"));
                id.and_then(|id| id.trim().parse().ok())
                    .is_some_and(|id| ids.contains(&id))
            })
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| holds(*pid)).collect()
}
