//! `latlab sweep`: measures one server with several values of a parameter (2.6.3 and Table 2.9 of the
//! thesis), or with several limits (3.5.4: scaling with the processor's speed).

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, ensure, Context, Result};
use debox_history::History;
use kit_console::printable;
use latlab::run::Plan;
use latlab::servers;
use latlab::signals::{unless_interrupted, Interrupted};
use latlab::summary::Summary;
use latlab::units::{count, parse_size, time};
use serde::Serialize;

use crate::capacity::closed_loops;
use crate::options::{parse_cpus, Format, Sweep, Target, What};
use crate::output;
use crate::plan::{ns, of_what, open_loop, ready};
use crate::procedure::{columns, judge, run_whole, Figures, Spread};
use crate::progress::step;

/// Labels in a row of the table, at most.
const LABELS: usize = 3;

/// All runs with one value.
#[derive(Serialize)]
struct AtValue {
    value: String,
    /// With `--load`: the server's capacity with this value.
    capacity_rps: Option<Spread>,
    #[serde(flatten)]
    figures: Figures,
    /// With `--blocking`: one for each repeat.
    blocking: Vec<Blocking>,
    capacity_runs: Vec<Summary>,
    runs: Vec<Summary>,
}

/// What the server's threads slept for in a run, except waits for events and other idle waits.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Blocking {
    labels: BTreeMap<String, Slept>,
    /// Records that were lost.
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
    /// Whether it was interrupted before all repeats.
    interrupted: bool,
    /// Load relative to the capacity with each value.
    load: Option<f64>,
    values: Vec<AtValue>,
}

pub fn sweep(arguments: &Sweep) -> Result<u8> {
    let Target::Server(server) = &arguments.target else {
        anyhow::bail!(
            "only the parameters of a server that latlab starts can be changed (`latlab servers`)"
        );
    };
    let name = &arguments.vary.name;
    let mut values = Vec::new();
    for value in &arguments.vary.values {
        // An invalid value is reported before the first run.
        set(&mut arguments.what.clone(), name, value)?;
        values.push(AtValue {
            value: value.clone(),
            capacity_rps: None,
            figures: Figures::default(),
            blocking: Vec::new(),
            capacity_runs: Vec::new(),
            runs: Vec::new(),
        });
    }
    let directory = tempfile::Builder::new()
        .prefix(&servers::directory_prefix())
        .tempdir()?;
    let mut interrupted = false;
    'all: for repeat in 1..=arguments.repeats {
        for at in &mut values {
            let history = directory.path().join("server.parquet");
            let measured = measure(arguments, at, repeat, &history)
                .with_context(|| format!("with {name}={}", at.value));
            if unless_interrupted(measured)?.is_none() {
                interrupted = true;
                break 'all;
            }
        }
    }
    ensure!(values.iter().any(|at| !at.runs.is_empty()), Interrupted);
    for at in &mut values {
        at.figures = Figures::of(&at.runs);
        at.capacity_rps = Spread::of(at.capacity_runs.iter().map(|run| run.throughput_rps));
    }
    let swept = Swept {
        schema: "latlab.sweep/1",
        server: server.clone(),
        parameter: name.clone(),
        load: arguments.load,
        interrupted,
        values,
    };
    match arguments.format {
        Format::Json => output::json(&swept)?,
        Format::Text => output::text(|out| print(out, &swept))?,
    }
    let runs = swept
        .values
        .iter()
        .flat_map(|value| value.capacity_runs.iter().chain(&value.runs));
    Ok(judge(runs, swept.interrupted))
}

/// Sets what is varied: a limit of the server, or one of its parameters.
fn set(what: &mut What, name: &str, value: &str) -> Result<()> {
    let wrong = |why: String| anyhow!("{name}={value}: {why}");
    let conditions = &mut what.conditions;
    match name {
        "cpus" => conditions.cpus = Some(parse_cpus(value).map_err(wrong)?),
        "memory" => conditions.memory = Some(parse_size(value).map_err(wrong)?),
        _ => conditions.set.push((name.to_string(), value.to_string())),
    }
    Ok(())
}

fn measure(arguments: &Sweep, at: &mut AtValue, repeat: u32, history: &Path) -> Result<()> {
    let mut what = arguments.what.clone();
    set(&mut what, &arguments.vary.name, &at.value)?;
    let record = arguments.blocking.then_some(history);
    let ready = ready(&arguments.target, &what, record)?;
    let (duration, warmup) = (arguments.times.duration, arguments.times.warmup);
    let plan = of_what(&ready, &what, duration, warmup, arguments.connections)?;
    let plan = Plan {
        // All values get the same requests.
        seed: plan.seed + u64::from(repeat),
        ..plan
    };
    let rate = match arguments.load {
        None => arguments.rate,
        Some(load) => {
            let capacity = closed_loops(&plan, 1)?;
            at.capacity_runs.extend(capacity.runs);
            Some(load * capacity.rps.median)
        }
    };
    let plan = Plan {
        mode: match rate {
            Some(rate) => open_loop(&[rate], ns(duration), true),
            None => plan.mode,
        },
        load: arguments.load,
        ..plan
    };
    let (name, value) = (&arguments.vary.name, &at.value);
    step(&format!(
        "{name}={value}, repeat {repeat} of {}",
        arguments.repeats
    ));
    let begin = now_ns() + plan.warmup_ns;
    let run = run_whole(&plan)?;
    let end = now_ns();
    // The recording is complete when the server has ended.
    drop(ready);
    at.runs.push(run);
    if record.is_some() {
        let blocking = blocking(history, begin..end)
            .context("what the server blocked on cannot be read (see `debox doctor`)")?;
        std::fs::remove_file(history)?;
        at.blocking.push(blocking);
    }
    Ok(())
}

/// Nanoseconds since 1970.
fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}

/// Adds up a recording's sleeps that began in a time range (since 1970).
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
        .map(|file| file.meta.lost.records + file.meta.lost.unwritten)
        .sum();
    Ok(blocking)
}

impl AtValue {
    /// The labels of all repeats.
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

fn print(out: &mut impl Write, swept: &Swept) -> io::Result<()> {
    writeln!(
        out,
        "{}, medians over the repeats; latency from the intended start{}",
        printable(&swept.server),
        swept.load.map_or(String::new(), |load| format!(
            ", at {load} of each capacity"
        ))
    )?;
    let blocks = swept.values.iter().any(|value| !value.blocking.is_empty());
    let slept_for = "  slept for each 1,000 requests";
    let capacity = |text: String| match swept.load {
        Some(_) => format!(" {text:>9}"),
        None => String::new(),
    };
    writeln!(
        out,
        "{:>12}{}{}{}",
        printable(&swept.parameter),
        capacity("capacity".to_string()),
        columns(&Figures::HEADING),
        if blocks { slept_for } else { "" }
    )?;
    for value in &swept.values {
        let rps = value.capacity_rps.map_or(0.0, |rps| rps.median);
        writeln!(
            out,
            "{:>12}{}{}{}",
            printable(&value.value),
            capacity(count(rps.round() as u64)),
            columns(&value.figures.row()),
            printable(&slept(value))
        )?;
    }
    if let Some(sentence) = scaling(swept) {
        writeln!(out, "{}", printable(&sentence))?;
    }
    let lost: u64 = swept
        .values
        .iter()
        .flat_map(|value| &value.blocking)
        .map(|one| one.lost)
        .sum();
    if lost > 0 {
        writeln!(
            out,
            "The recordings lack {} records: more was slept than they show.",
            count(lost)
        )?;
    }
    Ok(())
}

/// With capacities: how much capacity and latency change from the first value to the last.
fn scaling(swept: &Swept) -> Option<String> {
    let (first, last) = (swept.values.first()?, swept.values.last()?);
    let times = |from: Option<Spread>, to: Option<Spread>| {
        let (from, to) = (from?.median, to?.median);
        (from > 0.0).then(|| format!("{:.2}", to / from))
    };
    Some(format!(
        "From {}={} to {}: capacity times {}, median latency times {}, mean {}, 95th percentile {}.",
        swept.parameter,
        first.value,
        last.value,
        times(first.capacity_rps, last.capacity_rps)?,
        times(first.figures.p50_ns, last.figures.p50_ns)?,
        times(first.figures.mean_ns, last.figures.mean_ns)?,
        times(first.figures.p95_ns, last.figures.p95_ns)?,
    ))
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
