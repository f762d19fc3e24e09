//! `latlab conform`: how many simultaneous connections a server serves well.

use std::time::Duration;

use anyhow::{ensure, Context, Result};
use latlab::fileset::{self, FileSet};
use latlab::load::Mode;
use latlab::run::Plan;
use latlab::signals::{unless_interrupted, Interrupted};
use latlab::summary::{Summary, PACE_BITS};
use latlab::units::count;
use serde::Serialize;

use crate::options::{Conform, Format};
use crate::output;
use crate::plan::{of_what, ready};
use crate::procedure::{judge, run_whole, status};
use crate::progress::{step, Progress};

/// The part of the connections that have to conform.
const CONFORMING: f64 = 0.95;
/// Less than this part of the requests may fail.
const FAILING: f64 = 0.01;
/// The search ends when the bounds are this close to each other.
const NEAR: f64 = 0.03;
/// The largest of SPECweb99's files: 900 KiB.
const LARGEST_BYTES: f64 = 921_600.0;

#[derive(Serialize)]
struct Tried {
    connections: u32,
    file_set_bytes: u64,
    conforming: f64,
    failing: f64,
    well: bool,
    run: Summary,
}

/// `latlab.conform/1`
#[derive(Serialize)]
struct Conformance {
    schema: &'static str,
    server: String,
    /// The largest number of connections that was served well; 0 if there is none.
    score: u32,
    /// Whether larger numbers were not tried.
    at_least: bool,
    /// Whether the search was interrupted, or the server ended, before the number was found. The number is
    /// then between the score and the smallest number that was not served well.
    interrupted: bool,
    /// The reason if the runs are too short for a reliable result.
    too_short: Option<String>,
    tried: Vec<Tried>,
}

pub fn conform(arguments: &Conform) -> Result<u8> {
    ensure!(
        arguments.least <= arguments.most,
        "--least is more than --most"
    );
    ensure!(
        arguments.what.files.is_some(),
        "SPECweb99's connections ask for a file set: name it with --files"
    );
    let mut result = Conformance {
        schema: "latlab.conform/1",
        server: String::new(),
        score: 0,
        at_least: false,
        interrupted: false,
        too_short: too_short(arguments.duration.saturating_sub(arguments.warmup)),
        tried: Vec::new(),
    };
    // `well` connections are served well, `too_many` are not.
    let (mut well, mut too_many) = (0, None);
    let mut next = arguments.least;
    loop {
        let tried = attempt(arguments, next, &mut result.server);
        let Some(tried) = unless_interrupted(tried)? else {
            result.interrupted = true;
            break;
        };
        if tried.run.server_ended.is_some() {
            // This does not depend on the number of connections.
            result.interrupted = true;
            result.tried.push(tried);
            break;
        }
        if arguments.format == Format::Text {
            output::line(&format!(
                "{:>7} connections: {:.1} % conform, {:.2} % of {} requests failed",
                count(u64::from(next)),
                100.0 * tried.conforming,
                100.0 * tried.failing,
                count(tried.run.requests)
            ))?;
        }
        match tried.well {
            true => well = next,
            false => too_many = Some(next),
        }
        result.tried.push(tried);
        let step = f64::from(next) * NEAR;
        next = match too_many {
            None if next >= arguments.most => break,
            None => next.saturating_mul(2).min(arguments.most),
            Some(bound) if f64::from(bound - well) <= step.max(1.0) => break,
            Some(bound) => well + (bound - well) / 2,
        };
    }
    ensure!(!result.tried.is_empty(), Interrupted);
    result.score = well;
    result.at_least = too_many.is_none();
    match arguments.format {
        Format::Json => output::json(&result)?,
        Format::Text => output::line(&format!(
            "{}: {}{} simultaneous connections",
            result.server,
            if result.at_least { "at least " } else { "" },
            count(u64::from(result.score))
        ))?,
    }
    let runs = result.tried.iter().map(|tried| &tried.run);
    let judged = judge(runs, result.interrupted);
    Ok(match &result.too_short {
        Some(why) => status(std::slice::from_ref(why)),
        None => judged,
    })
}

/// At SPECweb99's pace, one large file keeps a connection busy for longer than a short run.
fn too_short(measured: Duration) -> Option<String> {
    let pace_bytes = PACE_BITS as f64 / 8.0;
    let longest = LARGEST_BYTES / pace_bytes;
    (measured.as_secs_f64() < longest).then(|| {
        format!(
            "each number of connections was measured for {:.1} s, too short to be believed: at the pace of {} bits/s \
            the largest file alone takes a connection {longest:.1} s (--duration)",
            measured.as_secs_f64(),
            count(PACE_BITS)
        )
    })
}

fn attempt(arguments: &Conform, connections: u32, server: &mut String) -> Result<Tried> {
    let mut what = arguments.what.clone();
    let files = what.files.clone().context("there is no file set")?;
    let mut set = fileset::load(&files)?;
    if !arguments.fixed_set {
        let bytes = fileset::bytes_for_connections(u64::from(connections));
        let wanted = FileSet {
            directories: fileset::directories_for(bytes),
            ..set
        };
        if wanted.directories > set.directories {
            let progress = Progress::bytes(wanted.bytes());
            fileset::create(&files, wanted, |done| progress.set(done, ""))?;
            progress.end();
        }
        what.directories = Some(wanted.directories);
        set = wanted;
    }
    let ready = ready(&arguments.target, &what, None)?;
    let plan = of_what(
        &ready,
        &what,
        arguments.duration,
        arguments.warmup,
        connections,
    )?;
    let plan = Plan {
        mode: Mode::Paced {
            bits_per_second: PACE_BITS,
        },
        ..plan
    };
    step(&format!("{connections} connections"));
    let run = run_whole(&plan)?;
    server.clone_from(&ready.name);
    let failed: u64 = run.errors.values().sum();
    let failing = failed as f64 / run.requests.max(1) as f64;
    let conforming = run.conforming.unwrap_or(0.0);
    Ok(Tried {
        connections,
        file_set_bytes: set.bytes(),
        conforming,
        failing,
        well: conforming >= CONFORMING && failing < FAILING,
        run,
    })
}
