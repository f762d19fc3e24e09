//! What a reader must know about what the history lacks.

use crate::aggregate::Aggregate;
use crate::report::{Recording, Report};
use kit_units::{bytes, count, counted, time, were};

impl Recording {
    /// Says which processes have no names of their own, if there was no room for some.
    pub fn says_who_is_unnamed(&self) -> Option<String> {
        let left_out = self.processes_left_out;
        (left_out > 0).then(|| {
            format!(
                "The recording had no room for the names of {}, the last that began. Their processes are called as \
                 their threads are, and their units and containers are not known.",
                counted(left_out, "program")
            )
        })
    }
}

/// What was lost, is missing, or is unknown. Caveats are never hidden.
pub fn caveats(report: &Report, sums: &Aggregate) -> Vec<String> {
    let recording = &report.recording;
    let lost = &recording.lost;
    let mut said = Vec::new();
    if !recording.complete {
        said.push(
            "The recording has no end: the recorder was killed, or writes on. What came last may be \
             missing."
                .to_string(),
        );
    }
    if recording.cut_off_bytes > 0 {
        said.push(format!(
            "{} at the end of a file could not be read: the recorder was stopped while it wrote them \
             (`debox repair` makes the file whole without them).",
            bytes(recording.cut_off_bytes)
        ));
    }
    if lost.records > 0 {
        let all = lost.records.saturating_add(recording.rows);
        said.push(format!(
            "{} {} lost, {:.1} % of all: all counts and sums are too low by that (a larger --buffer loses \
             fewer).",
            counted(lost.records, "record"),
            were(lost.records),
            100.0 * lost.records as f64 / all.max(1) as f64
        ));
    }
    for (number, what, happened) in [
        (
            lost.unwritten,
            "record",
            "not written, as the disk was full: all counts and sums are too low by that.",
        ),
        (
            lost.sleeps,
            "sleep",
            "lost of calls that are there: the time is in the budgets, but under no label.",
        ),
        (
            lost.stacks,
            "stack",
            "not available: the calls and sleeps have none.",
        ),
        (
            lost.threads,
            "thread",
            "not monitored, and missing here (--max-threads).",
        ),
        (
            lost.probe_misses,
            "event",
            "not shown by the kernel: some times may be too long or too short.",
        ),
    ] {
        if number > 0 {
            said.push(format!(
                "{} {} {happened}",
                counted(number, what),
                were(number)
            ));
        }
    }
    if recording.filtered_out > 0 || recording.filter.is_some() {
        said.push(format!(
            "Only records with `{}` were kept; {} {} not, and no figure here counts what was left out.",
            recording.filter.as_deref().unwrap_or("a filter"),
            counted(recording.filtered_out, "other"),
            were(recording.filtered_out)
        ));
    }
    let of_calls = |of: fn(&crate::report::Call) -> u64| -> u64 {
        report
            .calls
            .iter()
            .chain(&report.between_calls)
            .map(of)
            .sum()
    };
    let partial = of_calls(|call| call.partial);
    if partial > 0 {
        said.push(format!(
            "{} {} not seen from begin to end: the times are bounds.",
            counted(partial, "call"),
            were(partial)
        ));
    }
    let in_flight = of_calls(|call| call.in_flight);
    if in_flight > 0 {
        said.push(format!(
            "{} had not returned when the recording ended: what was taken until then is in the sums, \
             and not in counts and distributions.",
            counted(in_flight, "call")
        ));
    }
    let left_out = of_calls(|call| call.sleeps_left_out);
    if left_out > 0 {
        said.push(format!(
            "{} {} left out, because a call had too many: the time is `not listed`.",
            counted(left_out, "sleep"),
            were(left_out)
        ));
    }
    said.extend(recording.not_recorded.iter().cloned());
    said.extend(recording.says_who_is_unnamed());
    if recording.stacks_from_ns > 0 && recording.calls > 0 {
        said.push(format!(
            "Calls shorter than {} have no stack and no caller (--stacks-from of the recording).",
            time(recording.stacks_from_ns)
        ));
    }
    let folded = [
        (sums.waits_folded, "wait"),
        (sums.stacks.folded, "sleep stack"),
        (sums.threads.left_out, "calling thread"),
    ];
    for (number, what) in folded {
        if number > 0 {
            said.push(format!(
                "{} {} counted under (other): the tables had no room for more kinds.",
                counted(number, what),
                were(number)
            ));
        }
    }
    if !sums.has_irq && recording.calls > 0 {
        said.push(
            "Interrupts were not measured apart: they are inside CPU time (--detail irq of the \
             recording)."
                .to_string(),
        );
    }
    said.push(match &report.user_level {
        None => "All times are from inside the kernel, from the entry of a call to its exit. What the \
                 program would have measured around its calls was not recorded (--user-level of the \
                 recording)."
            .to_string(),
        Some(level) if level.count == 0 => {
            "The program's own times were asked for (--user-level), and there are none: nothing that ran \
             made its calls through glibc's functions."
                .to_string()
        }
        Some(level) => format!(
            "Of {} the program's own time is known; of {} it is not, because they were not made through \
             glibc's functions for them (stdio, the loader and locks make calls inside of glibc), or their \
             thread made no call after them. What the recording's probes take at both ends of a call is in \
             the program's time, and not in the kernel's.",
            counted(level.count, "call"),
            count(level.not_measured)
        ),
    });
    said
}
