// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predictions and differences on a terminal. Every field that comes from a file is made printable.

use std::collections::BTreeMap;
use std::io::{self, Write};

use kit_console::printable;
use kit_units::counted;

use crate::calibrate::Calibrated;
use crate::contrast::{Contrast, Contrasted};
use crate::predict::{OnMachine, PredictedPart, Prediction, READY};
use crate::text::grid;
use crate::vector_text::{caveats, command, SHOWN};
use crate::words::{percent, time};

/// The part of the elapsed time that may be unexplained.
const DISTURBED: f64 = 0.2;

fn interval((low, high): (f64, f64)) -> String {
    format!("{} to {}", time(low), time(high))
}

/// The ranking, what was not mapped, and with `all` every part.
pub fn prediction(
    out: &mut impl Write,
    found: &Prediction,
    all: bool,
    width: usize,
) -> io::Result<()> {
    writeln!(
        out,
        "{} took {}, of which {} was work on a CPU{}.",
        command(&found.command),
        time(found.elapsed_ns),
        time(found.work_ns),
        match found.runs {
            0 => ", while it was recorded".to_string(),
            runs => format!(" (mean of {})", counted(runs as u64, "run")),
        }
    )?;
    let head = [
        "machine",
        ">elapsed",
        ">95 %",
        ">times",
        ">work",
        ">not mapped",
        "",
    ];
    let mut table = grid(&head, width);
    for one in &found.machines {
        table.row([
            printable(&one.name).into_owned(),
            time(one.elapsed_ns),
            interval(one.elapsed_interval_ns),
            format!("{:.2}", one.elapsed_ns / found.elapsed_ns),
            time(one.work_ns),
            percent(one.unmapped_share),
            String::new(),
        ]);
    }
    writeln!(out)?;
    table.print(out)?;
    writeln!(
        out,
        "\nEach part of what it took is scaled by the ratio of both machines' costs. Its parts by the recording are {} \
         without what recording takes, which is scaled to the {} of work.",
        time(found.recorded_work_ns),
        time(found.work_ns)
    )?;
    if let Some(first) = found.machines.first() {
        not_mapped(out, found, first)?;
    }
    if all {
        for one in &found.machines {
            parts(out, one, width)?;
        }
    }
    let ready_ns = found.machines.first().map_or(0.0, ready_ns);
    if ready_ns > DISTURBED * found.elapsed_ns {
        writeln!(
            out,
            "Work and waits do not explain {} of the elapsed time: other programs had the CPU. Repeat it when the machine \
             does nothing else; what is predicted of the work is better than what is predicted of the elapsed time.",
            percent(ready_ns / found.elapsed_ns)
        )?;
    }
    caveats(out, found.runs, found.lost)
}

/// The time, where the application ran, that neither its work nor its waits explain.
fn ready_ns(one: &OnMachine) -> f64 {
    let ready = one.waits.iter().filter(|part| part.name == READY);
    ready.map(|part| part.measured_ns).sum()
}

/// The parts of a name together.
fn by_name(parts: &[PredictedPart]) -> BTreeMap<&str, PredictedPart> {
    let mut found: BTreeMap<&str, PredictedPart> = BTreeMap::new();
    for part in parts {
        match found.get_mut(part.name.as_str()) {
            None => drop(found.insert(&part.name, part.clone())),
            Some(sum) => {
                sum.count += part.count;
                sum.bytes = sum.bytes.saturating_add(part.bytes);
                sum.measured_ns += part.measured_ns;
                sum.predicted_ns += part.predicted_ns;
            }
        }
    }
    found
}

/// What is kept as it was, with its weight, and what could not be measured on some machine.
fn not_mapped(out: &mut impl Write, found: &Prediction, first: &OnMachine) -> io::Result<()> {
    let parts = by_name(&first.work);
    let mut kept: Vec<_> = parts
        .values()
        .filter(|part| part.scaled_by.is_none())
        .collect();
    kept.sort_by(|one, other| other.measured_ns.total_cmp(&one.measured_ns));
    if kept.is_empty() {
        writeln!(out, "All of the work is mapped to benchmarks.")?;
    } else {
        let sum: f64 = kept.iter().map(|part| part.measured_ns).sum();
        let names = kept.iter().take(SHOWN).map(|part| {
            let share = percent(part.measured_ns / found.work_ns.max(1.0));
            format!(
                "{} ({}, {share})",
                printable(&part.name),
                counted(part.count, "call")
            )
        });
        writeln!(
            out,
            "No benchmark stands for {} of the work, which is kept as it was: {}{}",
            percent(sum / found.work_ns.max(1.0)),
            names.collect::<Vec<_>>().join(", "),
            if kept.len() > SHOWN {
                ", and others"
            } else {
                ""
            }
        )?;
    }
    for part in &first.waits {
        writeln!(
            out,
            "{}: {}, {}",
            printable(&part.name),
            time(part.measured_ns),
            match &part.scaled_by {
                Some(benchmarks) => format!("scaled by {}", printable(benchmarks)),
                None => "taken to last as long everywhere".to_string(),
            }
        )?;
    }
    Ok(())
}

fn parts(out: &mut impl Write, one: &OnMachine, width: usize) -> io::Result<()> {
    writeln!(
        out,
        "\n{}: {:.2} threads work at the same time",
        printable(&one.name),
        one.overlap
    )?;
    let mut table = grid(
        &[
            "part",
            ">count",
            ">measured",
            ">predicted",
            ">times",
            "scaled by",
        ],
        width,
    );
    let all = by_name(&one.work);
    let waits = by_name(&one.waits);
    let mut rows: Vec<&PredictedPart> = all.values().chain(waits.values()).collect();
    rows.sort_by(|one, other| other.predicted_ns.total_cmp(&one.predicted_ns));
    for part in rows {
        table.row([
            printable(&part.name).into_owned(),
            kit_units::count(part.count),
            time(part.measured_ns),
            time(part.predicted_ns),
            match part.measured_ns > 0.0 {
                true => format!("{:.2}", part.predicted_ns / part.measured_ns),
                false => String::new(),
            },
            printable(part.scaled_by.as_deref().unwrap_or("nothing")).into_owned(),
        ]);
    }
    table.print(out)?;
    if one.throttled_ns > 0.0 {
        writeln!(out, "  A quota stops it for {}.", time(one.throttled_ns))?;
    }
    Ok(())
}

/// The factors, and how well they fit. `names`: of the applications.
pub fn calibrated(out: &mut impl Write, found: &Calibrated, names: &[String]) -> io::Result<()> {
    let [user, entry, rest] = found.factors;
    writeln!(
        out,
        "User mode takes {user:.2} times as long, entering the kernel {entry:.2} times, the rest of the kernel {rest:.2} \
         times."
    )?;
    for (name, error) in names.iter().zip(&found.errors) {
        writeln!(out, "  {}: {} off", printable(name), percent(*error))?;
    }
    if names.len() == found.factors.len() {
        writeln!(
            out,
            "As many applications as factors fit in any case: name more to see how well."
        )?;
    }
    Ok(())
}

/// The parts that differ most.
pub fn contrast(out: &mut impl Write, found: &Contrast, all: bool, width: usize) -> io::Result<()> {
    let difference = found.b_elapsed_ns - found.a_elapsed_ns;
    writeln!(
        out,
        "{}: {} on {}, {} on {}: {} {}.",
        command(&found.command),
        time(found.a_elapsed_ns),
        printable(&found.a_name),
        time(found.b_elapsed_ns),
        printable(&found.b_name),
        time(difference.abs()),
        if difference < 0.0 { "less" } else { "more" }
    )?;
    let shown = if all {
        found.parts.len()
    } else {
        SHOWN.min(found.parts.len())
    };
    let head = [
        "part",
        ">count",
        ">A",
        ">B",
        ">difference",
        ">of all",
        "scaled by",
    ];
    let mut table = grid(&head, width);
    for part in &found.parts[..shown] {
        table.row([
            printable(&part.name).into_owned(),
            kit_units::count(part.count),
            time(part.a_ns),
            time(part.b_ns),
            time(part.difference_ns()),
            match difference.abs() > 0.0 {
                true => percent(part.difference_ns() / difference),
                false => String::new(),
            },
            printable(part.scaled_by.as_deref().unwrap_or("nothing")).into_owned(),
        ]);
    }
    writeln!(out)?;
    table.print(out)?;
    if shown < found.parts.len() {
        let left_out = &found.parts[shown..];
        let differences = left_out.iter().map(Contrasted::difference_ns);
        writeln!(
            out,
            "  and {} more, {} together (--all)",
            left_out.len(),
            time(differences.sum())
        )?;
    }
    Ok(())
}
