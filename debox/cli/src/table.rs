//! The report for people: the tables that `debox run` and `debox attach` print on a terminal.
//!
//! The order follows a reader's questions: how long did it run and where did the time go (summary), in which calls,
//! why did they sleep, what did they do inside the kernel, in which thread, from where in the program, what still
//! runs, and what could not be seen. Each section is a file, and prints nothing if it has no content.

mod calls;
pub mod cpu_waits;
pub(crate) mod deadlocks;
pub mod doctor;
pub(crate) mod grid;
mod owners;
pub(crate) mod processes;
pub(crate) mod samples;
mod sleeps;
mod spins;
mod summary;
mod threads;
mod trace;
mod triggers;
mod unseen;

#[cfg(test)]
mod any_report;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use anstyle::Style;
use debox::report::Report;

/// How to print a report.
#[derive(Debug, Clone, Copy)]
pub struct TableOptions {
    /// Whether to use colours.
    pub color: bool,
    /// Width of the terminal in columns.
    pub width: usize,
    /// Print every row; otherwise each section has only its longest rows.
    pub all: bool,
}

/// Prints the whole report.
pub fn print(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    deadlocks::print(out, &report.deadlocks, options)?;
    summary::print(out, report, options)?;
    // A user who attaches wants to know first what the process is doing now.
    let attached = report.command.is_empty();
    if attached {
        threads::print_in_flight(out, report, options)?;
    }
    if let Some(samples) = &report.samples {
        samples::print(out, samples, options)?;
    }
    calls::print(out, report, options)?;
    sleeps::print_labels(out, report, options)?;
    sleeps::print_sites(out, report, options)?;
    triggers::print(out, report, options)?;
    owners::print(out, report, options)?;
    owners::print_chains(out, report, options)?;
    cpu_waits::print(out, report, options)?;
    spins::print(out, report, options)?;
    trace::print(out, report, options)?;
    threads::print(out, report, options)?;
    sleeps::print_call_sites(out, report, options)?;
    calls::print_call_sites(out, report, options)?;
    if !attached {
        threads::print_in_flight(out, report, options)?;
    }
    unseen::print_untapped(out, report, options)?;
    unseen::print(out, report, options)?;
    unseen::print_hints(out, report, options)?;
    unseen::print_conditions(out, report, options)
}

/// Prints a section's title after an empty line.
pub(crate) fn heading(out: &mut impl Write, text: &str, options: &TableOptions) -> io::Result<()> {
    writeln!(out)?;
    line(out, text, Style::new().bold(), options)
}

/// Prints a line of prose, styled if colours are on.
pub(crate) fn line(
    out: &mut impl Write,
    text: &str,
    style: Style,
    options: &TableOptions,
) -> io::Result<()> {
    let text = kit_console::printable(text);
    if options.color {
        writeln!(out, "{style}{text}{style:#}")
    } else {
        writeln!(out, "{text}")
    }
}

/// How many of `rows` to show: all, or `limit`. A single further row is shown instead of being mentioned.
pub(crate) fn shown(rows: usize, limit: usize, options: &TableOptions) -> usize {
    if options.all || rows <= limit + 1 {
        rows
    } else {
        limit
    }
}

/// `label (class)`.
fn label_and_class(label: &str, class: &str) -> String {
    if class.is_empty() {
        label.to_string()
    } else {
        format!("{label} ({class})")
    }
}

/// A kernel function. Its offset does not help people, so only the full report has it.
fn kernel_frame(frame: &str, options: &TableOptions) -> String {
    match frame.split_once("+0x") {
        Some((function, offset)) if !options.all => {
            let place = offset.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
            format!("{function}{place}")
        }
        _ => frame.to_string(),
    }
}

/// The innermost frames of a stack in one line, callee first. It starts at the program's own frame, because the call's
/// name implies the wrappers below.
fn stack(frames: &[String], caller: Option<&String>, options: &TableOptions) -> String {
    /// Enough to tell most call sites apart.
    const FRAMES: usize = 3;
    if frames.is_empty() {
        return "unknown".to_string();
    }
    let own = caller.and_then(|caller| frames.iter().position(|frame| frame == caller));
    let frames = &frames[own.filter(|_| !options.all).unwrap_or(0)..];
    let shown = shown(frames.len(), FRAMES, options);
    let mut text = frames[..shown].join(" < ");
    if shown < frames.len() {
        text.push_str(" < …");
    }
    text
}
