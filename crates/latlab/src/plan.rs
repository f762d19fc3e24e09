//! From options to plans.

use std::time::Duration;

use anyhow::{ensure, Context, Result};
use latlab::fileset;
use latlab::load::{Mode, Step};
use latlab::run::Plan;
use latlab::units::count;
use latlab::workload::{read_access_log, read_sizes, read_urls, Mix, Spec};

use crate::options::{Gaps, MixOption, Run, What};

pub fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// A plan without its load, for a closed loop that does not think.
pub fn of_what(
    what: &What,
    duration: Duration,
    warmup: Duration,
    connections: u32,
) -> Result<Plan> {
    Ok(Plan {
        url: what.url.clone(),
        spec: spec(what)?,
        seed: what.seed,
        checked_share: what.verify,
        connections,
        processes: what.processes,
        mode: Mode::Closed { think_ns: 0 },
        requests_per_connection: what.per_connection,
        timeout_ns: ns(what.timeout),
        duration_ns: ns(duration),
        warmup_ns: ns(warmup),
        requests: None,
        max_lateness_ns: ns(what.max_lateness),
        load: None,
        server: what.server.clone(),
        output: None,
        program: std::env::current_exe().context("cannot find latlab's own program")?,
    })
}

pub fn of_run(arguments: &Run) -> Result<Plan> {
    let open = !arguments.rate.is_empty();
    let connections = arguments
        .connections
        .unwrap_or(if open { 1024 } else { 64 });
    let mut plan = of_what(
        &arguments.what,
        arguments.duration,
        arguments.warmup,
        connections,
    )?;
    let connections = plan.connections;
    ensure!(
        arguments.requests != Some(0) && plan.duration_ns > 0,
        "there is nothing to do in a run of no time or no requests"
    );
    plan.mode = match open {
        true => open_loop(
            &arguments.rate,
            plan.duration_ns,
            arguments.gaps == Gaps::Poisson,
        ),
        false => Mode::Closed {
            think_ns: ns(arguments.think),
        },
    };
    plan.connections = connections;
    plan.requests = arguments.requests;
    plan.output = arguments.output.clone();
    Ok(plan)
}

/// Steps of equal length.
pub fn open_loop(rates: &[f64], duration_ns: i64, poisson: bool) -> Mode {
    let each = duration_ns / rates.len().max(1) as i64;
    let steps = rates.iter().map(|rps| Step {
        rps: *rps,
        ns: each,
    });
    Mode::Open {
        steps: steps.collect(),
        poisson,
    }
}

fn spec(what: &What) -> Result<Spec> {
    if let Some(files) = &what.files {
        let mut set = fileset::load(files)?;
        if let Some(directories) = what.directories {
            ensure!(
                (1..=set.directories).contains(&directories),
                "{} has {} directories",
                files.display(),
                count(u64::from(set.directories))
            );
            set.directories = directories;
        }
        return Ok(Spec::Specweb {
            set,
            mix: match what.mix {
                MixOption::Static => Mix::Static,
                MixOption::Full => Mix::Full,
            },
            prefix: what.url.path.clone(),
            dynamic_prefix: what.dynamic_prefix.clone(),
        });
    }
    ensure!(
        what.mix == MixOption::Static,
        "--mix full needs the file set that it asks for: name it with --files"
    );
    if let Some(log) = &what.log {
        let (paths, skipped) = read_access_log(log)?;
        if skipped != Default::default() {
            eprintln!(
                "latlab: {}: {} requests; left out: {} that are not GET, {} that were not answered \
                with the content, {} that cannot be read",
                log.display(),
                count(paths.len() as u64),
                count(skipped.methods),
                count(skipped.statuses),
                count(skipped.unreadable)
            );
        }
        return Ok(Spec::List { paths, log: true });
    }
    if let Some(urls) = &what.urls {
        return Ok(Spec::List {
            paths: read_urls(urls)?,
            log: false,
        });
    }
    if let Some(sizes) = &what.sizes {
        return Ok(Spec::Sizes {
            sizes: read_sizes(sizes)?,
            template: what.size_path.clone(),
        });
    }
    Ok(Spec::List {
        paths: vec![what.url.path.clone()],
        log: false,
    })
}
