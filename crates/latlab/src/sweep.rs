//! `latlab sweep`: one server with several values of a parameter (2.6.3 and Table 2.9 of the thesis).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{ensure, Context, Result};
use debox_history::History;
use latlab::run::Plan;
use latlab::signals::{unless_interrupted, Interrupted};
use latlab::summary::Summary;
use latlab::units::{count, time};
use serde::Serialize;

use crate::options::{Format, Sweep, Target};
use crate::plan::{ns, of_what, open_loop, ready};
use crate::procedure::{columns, judge, run_whole, Figures};

/// Labels in a row of the table.
const LABELS: usize = 3;

/// All runs with one value.
#[derive(Serialize)]
struct AtValue {
    value: String,
    #[serde(flatten)]
    figures: Figures,
    /// With `--blocking`: of each repeat.
    blocking: Vec<Blocking>,
    runs: Vec<Summary>,
}

/// What the server's threads slept for in a run, waits for events and other idle ones left out.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Blocking {
    labels: BTreeMap<String, Slept>,
    /// Records that the recording lacks.
    lost: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
struct Slept {
    count: u64,
    blocked_ns: u64,
}

/// `latlab.sweep/1`
#[derive(Serialize)]
struct Swept {
    schema: &'static str,
    server: String,
    parameter: String,
    /// Whether somebody ended it before all repeats.
    interrupted: bool,
    values: Vec<AtValue>,
}

pub fn sweep(arguments: &Sweep) -> Result<u8> {
    let Target::Server(server) = &arguments.target else {
        anyhow::bail!(
            "only the parameters of a server that latlab starts can be changed (`latlab servers`)"
        );
    };
    let mut values: Vec<AtValue> = arguments
        .vary
        .values
        .iter()
        .map(|value| AtValue {
            value: value.clone(),
            figures: Figures::default(),
            blocking: Vec::new(),
            runs: Vec::new(),
        })
        .collect();
    let directory = tempfile::tempdir()?;
    let mut interrupted = false;
    'all: for repeat in 1..=arguments.repeats {
        for at in &mut values {
            let history = directory.path().join("server.parquet");
            let measured = measure(arguments, &at.value, repeat, &history)
                .with_context(|| format!("with {}={}", arguments.vary.name, at.value));
            let Some((run, blocking)) = unless_interrupted(measured)? else {
                interrupted = true;
                break 'all;
            };
            at.runs.push(run);
            at.blocking.extend(blocking);
        }
    }
    ensure!(values.iter().any(|at| !at.runs.is_empty()), Interrupted);
    for at in &mut values {
        at.figures = Figures::of(&at.runs);
    }
    let swept = Swept {
        schema: "latlab.sweep/1",
        server: server.clone(),
        parameter: arguments.vary.name.clone(),
        interrupted,
        values,
    };
    match arguments.format {
        Format::Json => println!("{}", serde_json::to_string_pretty(&swept)?),
        Format::Text => print(&swept),
    }
    let runs = swept.values.iter().flat_map(|value| &value.runs);
    Ok(judge(runs, swept.interrupted))
}

fn measure(
    arguments: &Sweep,
    value: &str,
    repeat: u32,
    history: &Path,
) -> Result<(Summary, Option<Blocking>)> {
    let mut what = arguments.what.clone();
    let name = arguments.vary.name.clone();
    what.conditions.set.push((name, value.to_string()));
    let record = arguments.blocking.then_some(history);
    let ready = ready(&arguments.target, &what, record)?;
    let (duration, warmup) = (arguments.times.duration, arguments.times.warmup);
    let plan = of_what(&ready, &what, duration, warmup, arguments.connections)?;
    let plan = Plan {
        // All values get the same requests.
        seed: plan.seed + u64::from(repeat),
        mode: match arguments.rate {
            Some(rate) => open_loop(&[rate], ns(duration), true),
            None => plan.mode,
        },
        ..plan
    };
    let begin = now_ns() + plan.warmup_ns;
    let run = run_whole(&plan)?;
    let end = now_ns();
    // The recording is whole when the server has ended.
    drop(ready);
    let blocking = match record {
        None => None,
        Some(history) => {
            let blocking = blocking(history, begin..end)
                .context("what the server blocked on cannot be read (see `debox doctor`)")?;
            std::fs::remove_file(history)?;
            Some(blocking)
        }
    };
    Ok((run, blocking))
}

/// Nanoseconds since 1970.
fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}

/// Adds up the sleeps of a recording that began in a time (since 1970).
fn blocking(history: &Path, within: std::ops::Range<i64>) -> Result<Blocking> {
    let history = History::open(&[history])?;
    let mut blocking = Blocking::default();
    for call in history.calls() {
        let (file, call) = call?;
        for sleep in &call.sleeps {
            let begin = i64::try_from(sleep.begin_ns)? + file.meta.realtime_offset_ns;
            if &*sleep.class == "idle" || !within.contains(&begin) {
                continue;
            }
            let slept = blocking.labels.entry(sleep.label.to_string()).or_default();
            slept.count += 1;
            slept.blocked_ns += sleep.blocked_ns;
        }
    }
    blocking.lost = history
        .files
        .iter()
        .map(|file| file.meta.lost.records)
        .sum();
    Ok(blocking)
}

impl AtValue {
    /// Of all repeats.
    fn labels(&self) -> Vec<(&str, Slept)> {
        let mut sums: BTreeMap<&str, Slept> = BTreeMap::new();
        for (label, slept) in self.blocking.iter().flat_map(|one| &one.labels) {
            let sum = sums.entry(label).or_default();
            sum.count += slept.count;
            sum.blocked_ns += slept.blocked_ns;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(label, slept)| (std::cmp::Reverse(slept.blocked_ns), *label));
        sums
    }
}

fn print(swept: &Swept) {
    println!(
        "{}, medians over the repeats; latency from the intended start",
        swept.server
    );
    let blocks = swept.values.iter().any(|value| !value.blocking.is_empty());
    let slept_for = "  slept for each 1,000 requests";
    println!(
        "{:>12}{}{}",
        swept.parameter,
        columns(&Figures::HEADING),
        if blocks { slept_for } else { "" }
    );
    for value in &swept.values {
        println!(
            "{:>12}{}{}",
            value.value,
            columns(&value.figures.row()),
            slept(value)
        );
    }
    let lost: u64 = swept
        .values
        .iter()
        .flat_map(|value| &value.blocking)
        .map(|one| one.lost)
        .sum();
    if lost > 0 {
        println!(
            "The recordings lack {} records: more was slept than they show.",
            count(lost)
        );
    }
}

fn slept(value: &AtValue) -> String {
    if value.blocking.is_empty() {
        return String::new();
    }
    let requests: u64 = value.runs.iter().map(|run| run.ok).sum();
    let thousands = (requests as f64 / 1000.0).max(0.001);
    let words: Vec<String> = value
        .labels()
        .into_iter()
        .take(LABELS)
        .map(|(label, slept)| {
            format!(
                "{label} {:.1} times, {}",
                slept.count as f64 / thousands,
                time((slept.blocked_ns as f64 / thousands) as i64)
            )
        })
        .collect();
    match words.is_empty() {
        true => "  not once".to_string(),
        false => format!("  {}", words.join("; ")),
    }
}
