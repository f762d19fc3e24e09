// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vectors on a terminal. Every field that comes from a file is made printable.

use std::io::{self, Write};

use kit_console::printable;
use kit_units::counted;

use crate::application::Application;
use crate::machine::Machine;
use crate::mapping::MAPPING;
use crate::primitives::LARGER;
use crate::text::grid;
use crate::words::{percent, time};

/// Rows that are shown without being asked for.
pub(crate) const SHOWN: usize = 12;

pub(crate) fn command(words: &[String]) -> String {
    match words {
        [] => "The recorded processes".to_string(),
        words => printable(&words.join(" ")).into_owned(),
    }
}

/// What a vector of a machine has.
pub fn machine(out: &mut impl Write, machine: &Machine) -> io::Result<()> {
    let environment = &machine.environment;
    writeln!(
        out,
        "{} of {}, Linux {}; {} could not be measured.",
        counted(machine.units.len() as u64, "unit cost"),
        printable(
            environment
                .cpu_model
                .as_deref()
                .unwrap_or(&environment.architecture)
        ),
        printable(&environment.kernel),
        machine.unknown.len()
    )?;
    let shown = |name: &str| {
        machine
            .units
            .get(name)
            .map_or("?".to_string(), |unit| time(unit.ns))
    };
    writeln!(
        out,
        "Entering the kernel and leaving it: {}; a context switch: {}; a page fault: {}.",
        shown(&MAPPING.entry),
        shown(&MAPPING.switch),
        shown(&MAPPING.fault)
    )
}

/// What a vector of an application has.
pub fn application(
    out: &mut impl Write,
    made: &Application,
    all: bool,
    width: usize,
) -> io::Result<()> {
    let recording = &made.recording;
    let cpu = (recording.user_cpu_ns + recording.kernel_cpu_ns) as f64;
    writeln!(
        out,
        "{}: {} in {} and {}; {} of CPU time, {} of it in user mode.",
        command(&made.command),
        counted(recording.calls, "call"),
        match recording.processes {
            1 => "one process".to_string(),
            processes => format!("{} processes", kit_units::count(processes)),
        },
        counted(recording.threads, "thread"),
        time(cpu),
        percent(recording.user_cpu_ns as f64 / cpu.max(1.0))
    )?;
    if let Some(last) = made.runs.last() {
        let mut elapsed: Vec<u64> = made.runs.iter().map(|run| run.elapsed_ns).collect();
        elapsed.sort_unstable();
        writeln!(
            out,
            "Without recording, {}: {} elapsed, at least {}; {} page faults in the last one.",
            counted(made.runs.len() as u64, "run"),
            time(elapsed[elapsed.len() / 2] as f64),
            time(elapsed[0] as f64),
            kit_units::count(last.faults_minor),
        )?;
    }
    let mut components: Vec<_> = made.components.iter().collect();
    components.sort_by_key(|one| std::cmp::Reverse(one.cpu_ns));
    let shown = if all {
        components.len()
    } else {
        SHOWN.min(components.len())
    };
    let mut table = grid(
        &[
            "primitive",
            ">up to",
            ">calls",
            ">bytes",
            ">sleeps",
            ">CPU in calls",
            "",
        ],
        width,
    );
    for one in &components[..shown] {
        table.row([
            printable(&one.primitive).into_owned(),
            size(one.size),
            kit_units::count(one.calls),
            if one.size.is_some() {
                kit_units::bytes(one.bytes)
            } else {
                String::new()
            },
            kit_units::count(one.sleeps),
            time(one.cpu_ns as f64),
            String::new(),
        ]);
    }
    writeln!(out)?;
    table.print(out)?;
    if shown < components.len() {
        let left_out = &components[shown..];
        let cpu: u64 = left_out.iter().map(|one| one.cpu_ns).sum();
        writeln!(
            out,
            "  and {} more, {} together (--all)",
            left_out.len(),
            time(cpu as f64)
        )?;
    }
    for wait in &made.waits {
        writeln!(
            out,
            "All threads waited, {}: {} in {}",
            printable(&wait.kind),
            time(wait.ns as f64),
            counted(wait.count, "wait")
        )?;
    }
    caveats(out, made.runs.len(), recording.lost)
}

fn size(size: Option<u64>) -> String {
    match size {
        None => String::new(),
        Some(LARGER) => "more".to_string(),
        Some(size) => kit_units::bytes(size),
    }
}

pub(crate) fn caveats(out: &mut impl Write, runs: usize, lost: u64) -> io::Result<()> {
    if runs == 0 {
        writeln!(
            out,
            "The times include what recording took: `hbench vector -- COMMAND` also measures runs without it."
        )?;
    }
    if lost > 0 {
        writeln!(
            out,
            "The recording lacks records, sleeps or threads ({} in all): counts and times are too low.",
            kit_units::count(lost)
        )?;
    }
    Ok(())
}
