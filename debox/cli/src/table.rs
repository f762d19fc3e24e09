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
mod layout;
mod owners;
pub(crate) mod processes;
pub(crate) mod samples;
mod sleeps;
pub(crate) mod spins;
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

use debox::report::Report;

pub use layout::TableOptions;
pub(crate) use layout::{heading, line, shown};
use layout::{kernel_frame, label_and_class, stack};

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
