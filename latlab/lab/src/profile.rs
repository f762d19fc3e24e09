// SPDX-License-Identifier: MIT OR Apache-2.0
//! `latlab profile`: a server at shares of its capacity.

use std::io::{self, Write};

use anyhow::{Context, Result};
use kit_console::{printable, Allowed};
use latlab::units::count;
use serde::Serialize;

use crate::capacity::{measure_capacity, CapacityResult};
use crate::options::{Format, Profile};
use crate::output;
use crate::plan::{of_what, ready};
use crate::procedure::{columns, judge, measure_loads, new_directory, AtLoad, Figures};

/// `latlab.profile/1`
#[derive(Serialize)]
struct ProfileResult {
    schema: &'static str,
    url: String,
    server: String,
    capacity_rps: f64,
    /// `None` if the capacity was given.
    capacity: Option<CapacityResult>,
    /// Whether it was interrupted before all repeats.
    interrupted: bool,
    loads: Vec<AtLoad>,
}

pub fn profile(arguments: &Profile) -> Result<u8> {
    let directory = &arguments.output;
    new_directory(directory)?;
    let ready = ready(&arguments.target, &arguments.what, None)?;
    let plan = of_what(
        &ready,
        &arguments.what,
        arguments.times.duration,
        arguments.times.warmup,
        arguments.connections,
    )?;
    let capacity = match arguments.capacity {
        Some(_) => None,
        None => Some(measure_capacity(
            &plan,
            arguments.repeats,
            arguments.connections,
        )?),
    };
    let measured = capacity.as_ref().map(CapacityResult::reference_rps);
    let capacity_rps = arguments
        .capacity
        .or(measured)
        .context("there is no capacity")?;
    // If the capacity was interrupted, the first of these is, too, before it begins.
    let (loads, interrupted) = measure_loads(
        &plan,
        capacity_rps,
        &arguments.loads,
        arguments.repeats,
        directory,
    )?;
    let result = ProfileResult {
        schema: "latlab.profile/1",
        url: plan.url.text(),
        server: plan.server.clone(),
        capacity_rps,
        capacity,
        interrupted,
        loads,
    };
    let text = serde_json::to_string_pretty(&result)?;
    let summary = directory.join("summary.json");
    kit_files::output::replace(&summary, text.as_bytes())?;
    match arguments.format {
        Format::Json => kit_console::print(Allowed::Json, |out| writeln!(out, "{text}"))?,
        Format::Text => output::text(|out| print_profile(out, &result))?,
    }
    let of_capacity = result.capacity.iter().flat_map(CapacityResult::all_runs);
    let of_loads = result.loads.iter().flat_map(|load| &load.runs);
    Ok(judge(of_capacity.chain(of_loads), result.interrupted))
}

fn print_profile(out: &mut impl Write, result: &ProfileResult) -> io::Result<()> {
    let found = result.capacity.as_ref().map(|capacity| {
        let (words, closed) = (capacity.describe(), capacity.describe_closed());
        format!(" ({words}; closed loops get {closed})")
    });
    writeln!(
        out,
        "{}: capacity {} requests/s{}",
        printable(&result.url),
        count(result.capacity_rps.round() as u64),
        found.unwrap_or_default()
    )?;
    writeln!(out, "\nFrom the intended start; medians over the repeats")?;
    writeln!(
        out,
        "{:>6} {:>9}{}",
        "load",
        "offered",
        columns(&Figures::HEADING)
    )?;
    for load in &result.loads {
        writeln!(
            out,
            "{:>6.3} {:>9}{}",
            load.load,
            count(load.offered_rps.round() as u64),
            columns(&load.figures.row())
        )?;
    }
    Ok(())
}
