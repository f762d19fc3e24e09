// SPDX-License-Identifier: MIT OR Apache-2.0
//! `hbench run`, and `hbench compare --live`.

use std::path::Path;

use anyhow::{bail, ensure, Context, Result};
use hbench::benchmark::Case;
use hbench::benchmarks::cases;
use hbench::runner::{Plan, Run, Told};
use hbench::signals::{catch, interrupted};
use hbench_results::file::{self, Recorded};
use hbench_results::meta::State;
use kit_console::say;
use kit_files::output;

use crate::options::{self, Measuring};
use crate::progress::Progress;

/// The benchmarks that are named, or whose name begins so. If none is named, the usual ones.
///
/// # Errors
///
/// A name means none.
pub fn select(names: &[String]) -> Result<Vec<Case>> {
    let all = cases();
    for name in names {
        ensure!(
            all.iter()
                .any(|case| case.name().starts_with(name.as_str())),
            "no benchmark's name begins with {name}: see `hbench list`"
        );
    }
    let is_selected = |case: &Case| match names {
        [] => case.is_usual,
        names => {
            let mut names = names.iter();
            names.any(|name| case.name().starts_with(name.as_str()))
        }
    };
    Ok(all.into_iter().filter(is_selected).collect())
}

fn plan(cases: Vec<Case>, measuring: &Measuring, under: Option<&str>) -> Plan {
    let directory = measuring.directory.clone();
    Plan {
        cases,
        rounds: measuring.rounds,
        sample: measuring.sample,
        is_parallel: measuring.parallel,
        under: under.map(str::to_string),
        directory: directory.unwrap_or_else(std::env::temp_dir),
        may_drop_caches: measuring.cold,
    }
}

/// What was measured, and whether the file has it: figures that took minutes are shown whatever becomes of the file.
pub fn run(arguments: &options::Run) -> Result<(Recorded, Result<()>)> {
    if let Some(path) = &arguments.output {
        output::check(path)?;
    }
    let selected = match arguments.all {
        true => cases(),
        false => select(&arguments.names)?,
    };
    let plan = plan(selected, &arguments.measuring, arguments.under.as_deref());
    catch();
    let mut runs = [Run::prepare(plan)?];
    // After each round the file is whole, whatever ends this process.
    let keep = |run: &Run| match &arguments.output {
        Some(path) if is_replaceable(path) => file::write(path, &run.recorded),
        _ => Ok(()),
    };
    rounds(&mut runs, keep)?;
    let [run] = runs;
    let written = match &arguments.output {
        Some(path) => file::write(path, &run.recorded),
        None => Ok(()),
    };
    Ok((run.recorded, written))
}

/// Both commands' results.
pub fn live(arguments: &options::Compare) -> Result<[Recorded; 2]> {
    let selected = select(&arguments.names)?;
    let plan = |under: &str| plan(selected.clone(), &arguments.measuring, Some(under));
    catch();
    let mut runs = [
        Run::prepare(plan(&arguments.a))?,
        Run::prepare(plan(&arguments.b))?,
    ];
    rounds(&mut runs, |_| Ok(()))?;
    for (run, command) in runs.iter().zip([&arguments.a, &arguments.b]) {
        if let (true, Some(first)) = (
            run.recorded.samples.is_empty(),
            run.recorded.meta.left_out.first(),
        ) {
            bail!(
                "under `{command}` nothing could be measured: {}: {}",
                first.benchmark,
                first.reason
            );
        }
    }
    Ok(runs.map(|run| run.recorded))
}

/// Takes all samples, those of one round and benchmark one run after the other.
fn rounds(runs: &mut [Run], mut keep: impl FnMut(&Run) -> Result<()>) -> Result<()> {
    let cases = runs.first().map_or(Vec::new(), |run| run.cases().to_vec());
    let rounds = runs.first().map_or(0, |run| run.recorded.meta.rounds);
    let progress = Progress::new(cases.len() * runs.len() * rounds as usize, rounds);
    let mut is_kept = true;
    'rounds: for round in 0..rounds {
        for (number, case) in cases.iter().enumerate() {
            for at in 0..runs.len() {
                // What the first leaves behind (caches, a journal, the frequency) is the other's one time, and its own
                // the next.
                let at = match (round as usize + number) % 2 {
                    0 => at,
                    _ => runs.len() - 1 - at,
                };
                let told = runs[at].sample(case, round);
                progress.sample(&case.name(), told.as_ref());
                if told == Some(Told::Interrupted) || interrupted() {
                    break 'rounds;
                }
            }
        }
        for run in &mut *runs {
            run.end_round(round);
            if let Err(error) = keep(run).filter_first(&mut is_kept) {
                say!("hbench: {error:#}; the run goes on, and writes again after the next round");
            }
        }
        progress.round(round);
    }
    progress.end();
    let state = if interrupted() {
        State::Interrupted
    } else {
        State::Complete
    };
    runs.iter_mut().for_each(|run| run.end(state));
    Ok(())
}

/// A pipe or a device takes the result once, at the end.
pub fn is_replaceable(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |found| found.is_file())
}

/// Of errors that would repeat, only the first is of interest.
trait FilterFirst {
    fn filter_first(self, is_well: &mut bool) -> Self;
}

impl FilterFirst for Result<()> {
    fn filter_first(self, is_well: &mut bool) -> Self {
        match self {
            Err(error) if *is_well => {
                *is_well = false;
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

/// Keeps the benchmarks that are named, or whose name begins so.
///
/// # Errors
///
/// A name means none of the file's.
pub fn narrow(recorded: &mut Recorded, names: &[String], path: &Path) -> Result<()> {
    for name in names {
        let known = recorded.meta.benchmarks.iter();
        known
            .clone()
            .find(|known| known.name.starts_with(name.as_str()))
            .with_context(|| {
                format!(
                    "{} has no benchmark whose name begins with {name}",
                    path.display()
                )
            })?;
    }
    if !names.is_empty() {
        let is_named = |own: &str| names.iter().any(|name| own.starts_with(name.as_str()));
        recorded
            .meta
            .benchmarks
            .retain(|known| is_named(&known.name));
        recorded
            .meta
            .left_out
            .retain(|left_out| is_named(&left_out.benchmark));
    }
    Ok(())
}
