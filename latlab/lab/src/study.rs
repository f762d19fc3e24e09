//! `latlab study`: reproduces the papers' finding on current servers. With more files than memory and a
//! slow disk, how do latency, fairness and burstiness grow with the load, and why?
//!
//! The study has no measurements of its own: it combines the file set, disk, capacity, loads, recording
//! and analysis of the other subcommands.

mod place;
mod result;
mod tables;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use debox_history::History;
use kit_console::{printable, Allowed};
use latlab::fileset::{self, files_of, FileSet};
use latlab::load::Mode;
use latlab::run::Plan;
use latlab::signals::{self, unless_interrupted, Interrupted};
use latlab::summary::Summary;
use latlab::{servers, sys};
use latlab_analysis::history::join;
use latlab_analysis::page;
use latlab_analysis::read::{read, Options};
use latlab_analysis::report::{measure, Report, RunReport, Settings};

use crate::capacity::measure_capacity;
use crate::exit::NOT_VALID;
use crate::options::{Conditions, Format, MixOption, Study, Target, What};
use crate::output;
use crate::plan::{self, ns, of_what, open_loop, Ready};
use crate::procedure::{measure_loads, new_directory, run_whole};
use crate::progress::step;
pub use place::{remove_left, Place, Speed, PLACE};
pub use result::Machine;
use result::{AtLoad, Result as Found, Studied, Terms};

/// How often each file is requested on average, to fill the cache before the measurements.
const FILLS: u64 = 15;
const FILL_TIME: Duration = Duration::from_secs(30);
/// Memory that a server may need in addition to its cache.
const OWN_MEMORY: u64 = 16 << 20;
/// Typical number of rates tried in the search for the capacity.
const RATES_TRIED: usize = 6;
/// Causes are analyzed for requests slower than this percentile, where the papers' figures end.
const SLOW_PERCENT: f64 = 95.0;

/// The options, with their defaults.
struct Settled<'a> {
    arguments: &'a Study,
    set: FileSet,
    memory: u64,
    loads: Vec<f64>,
    repeats: u32,
    duration: Duration,
    warmup: Duration,
}

impl Settled<'_> {
    fn of(arguments: &Study) -> Settled<'_> {
        let quick = arguments.quick;
        let seconds = |usual, short| Duration::from_secs(if quick { short } else { usual });
        let size = arguments
            .size
            .unwrap_or((if quick { 200 } else { 600 }) << 20);
        let loads = match (arguments.loads.as_slice(), quick) {
            ([], false) => &[0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.1],
            ([], true) => &[0.3, 0.9, 1.1][..],
            (loads, _) => loads,
        };
        let mut loads = loads.to_vec();
        loads.sort_by(f64::total_cmp);
        Settled {
            arguments,
            set: FileSet {
                seed: 1999,
                directories: fileset::directories_for(size),
            },
            memory: arguments.memory.unwrap_or(size / 4 + OWN_MEMORY),
            loads,
            repeats: arguments.repeats.unwrap_or(if quick { 1 } else { 3 }),
            duration: arguments.duration.unwrap_or(seconds(10, 3)),
            warmup: arguments.warmup.unwrap_or(seconds(2, 1)),
        }
    }

    /// The requests for servers that have these files, and the servers' memory limit.
    fn what(&self, files: &Path) -> What {
        let arguments = self.arguments;
        What {
            files: Some(files.to_path_buf()),
            directories: None,
            mix: MixOption::Static,
            dynamic_prefix: "/dynamic".to_string(),
            log: None,
            urls: None,
            sizes: None,
            size_path: String::new(),
            method: None,
            header: Vec::new(),
            body: None,
            insecure: false,
            cacert: None,
            seed: arguments.seed,
            verify: 0.01,
            per_connection: arguments.per_connection,
            timeout: Duration::from_secs(10),
            processes: 1,
            max_lateness: arguments.max_lateness,
            conditions: Conditions {
                servers: arguments.servers.clone(),
                cpus: None,
                memory: Some(self.memory),
                cold: false,
                set: Vec::new(),
            },
        }
    }

    fn file_count(&self) -> u64 {
        u64::from(self.set.directories) * files_of(0).count() as u64
    }

    /// Approximate duration of the whole study.
    fn minutes(&self) -> f64 {
        let runs = self.repeats as usize * (1 + self.loads.len());
        let runs = runs + RATES_TRIED + usize::from(!self.arguments.no_record);
        let each = runs as f64 * (self.duration.as_secs_f64() + 0.5) + 20.0;
        (each * self.arguments.names.len() as f64 + 15.0) / 60.0
    }
}

pub fn study(arguments: &Study) -> Result<u8> {
    ensure!(
        sys::is_root(),
        "a slow disk and confined servers need root: they are mounts, loop devices and control groups"
    );
    let settled = Settled::of(arguments);
    ensure!(
        settled.warmup < settled.duration,
        "the warm-up is as long as the run: nothing would be measured"
    );
    ensure!(
        settled.memory < settled.set.bytes(),
        "--memory is more than the file set has: all of it would be cached, and the disk never read"
    );
    let known = servers::known(arguments.servers.as_deref())?;
    let mut about = Vec::new();
    for name in &arguments.names {
        let server = known
            .iter()
            .find(|server| server.name == *name)
            .with_context(|| format!("there is no server {name} (`latlab servers`)"))?;
        server
            .program()
            .with_context(|| format!("{name} is not installed (`latlab servers`)"))?;
        about.push(server.about.clone());
    }
    new_directory(&arguments.output)?;
    say(&format!(
        "{} servers, some {:.0} minutes",
        about.len(),
        settled.minutes().max(1.0)
    ));
    // From here on there is something to undo.
    signals::catch();
    let place = Place::make(
        &arguments.place,
        settled.set,
        arguments.service,
        arguments.depth,
    )?;
    let mut studied = Vec::new();
    let mut interrupted = false;
    for (name, about) in arguments.names.iter().zip(about) {
        let directory = arguments.output.join(name);
        new_directory(&directory)?;
        let server = one_server(&settled, &place, name, about, &directory).with_context(|| {
            format!(
                "{name}; what was measured is in {}",
                arguments.output.display()
            )
        });
        let Some((server, ended)) = unless_interrupted(server)? else {
            interrupted = true;
            break;
        };
        studied.push(server);
        if ended {
            interrupted = true;
            break;
        }
    }
    // Without a complete run at some load there is nothing to show.
    ensure!(!studied.is_empty(), Interrupted);
    let found = Found::new(
        Machine::this(),
        Terms {
            file_set_bytes: settled.set.bytes(),
            memory_bytes: settled.memory,
            service_us: place.service_us(),
            depth: arguments.depth,
            cold_open_ns: place.cold_open_ns,
            cold_read_ns: place.cold_read_ns,
            connections: arguments.connections,
            most_connections: arguments.most,
            repeats: settled.repeats,
            seconds: (settled.duration - settled.warmup).as_secs_f64(),
        },
        studied,
        interrupted,
    );
    drop(place);
    write(&found, arguments)
}

/// Writes the page, the JSON and the tables. The tables are also printed.
fn write(found: &Found, arguments: &Study) -> Result<u8> {
    let keep = |name: &str, text: &str| {
        let path = arguments.output.join(name);
        kit_files::output::replace(&path, text.as_bytes())
    };
    let json = serde_json::to_string_pretty(found)?;
    keep("study.json", &json)?;
    keep("study.md", &tables::markdown(found))?;
    match page::missing() {
        None => keep("study.html", &page::study(found)?)?,
        Some(why) => say(&format!("no HTML page was written: {why}")),
    }
    match arguments.format {
        Format::Json => kit_console::print(Allowed::Json, |out| writeln!(out, "{json}"))?,
        Format::Text => {
            let width = output::terminal_width().unwrap_or(110);
            let page = arguments.output.join("study.html").display().to_string();
            output::text(|out| {
                tables::text(out, found, width)?;
                writeln!(out, "\nPage: {}", printable(&page))
            })?;
        }
    }
    let runs = found.servers.iter().flat_map(Studied::all_runs);
    // The reasons are in the caveats.
    let refused = runs.filter(|run| run.refused.is_some()).count();
    if refused > 0 {
        say(&format!(
            "{refused} runs are NOT VALID: see what is missing or uncertain"
        ));
    }
    if found.interrupted {
        say("NOT VALID: interrupted: it is of the runs until then");
    }
    Ok(match refused > 0 || found.interrupted {
        true => NOT_VALID,
        false => 0,
    })
}

fn say(text: &str) {
    kit_console::say!("latlab: {text}");
}

/// The server's figures, and whether it was interrupted before all of its runs.
fn one_server(
    settled: &Settled,
    place: &Place,
    name: &str,
    about: String,
    directory: &Path,
) -> Result<(Studied, bool)> {
    let (ready, plan) = started(settled, place, name, None)?;
    say(&format!("{name}: capacity"));
    let before = place.reads()?;
    let most = settled.arguments.most;
    let capacity = measure_capacity(&plan, settled.repeats, most)?;
    let rps = capacity.reference_rps();
    say(&format!("{name}: {}", capacity.describe()));
    say(&format!(
        "{name}: {} loads of {rps:.0} requests/s",
        settled.loads.len()
    ));
    let plan = Plan {
        connections: most,
        ..plan
    };
    let (mut loads, mut interrupted) =
        measure_loads(&plan, rps, &settled.loads, settled.repeats, directory)?;
    if interrupted {
        loads.retain(|load| !load.runs.is_empty());
    }
    // The capacity alone says nothing about latency.
    ensure!(
        loads.iter().any(|load| load.figures.p50_ns.is_some()) || !interrupted,
        Interrupted
    );
    let of_loads = loads.iter().flat_map(|load| &load.runs);
    let requests: u64 = of_loads
        .chain(capacity.all_runs())
        .map(|run| run.requests + run.in_warmup)
        .sum();
    let disk_reads_per_1000 = (place.reads()? - before) as f64 * 1000.0 / requests.max(1) as f64;
    drop(ready);
    let mut no_reasons = None;
    let mut recorded = None;
    let mut recording = None;
    if interrupted {
        no_reasons = Some(Interrupted.to_string());
    } else if !settled.arguments.no_record {
        // If the recording fails, the figures are still useful.
        match record(settled, place, name, rps, directory) {
            Ok((summary, report)) => {
                recording = Some(summary);
                recorded = Some(Report::new(vec![report]));
            }
            Err(why) => no_reasons = Some(format!("{why:#}")),
        }
        interrupted = signals::check().is_err();
    }
    say(&format!("{name}: analysis"));
    let mut analyzed = Vec::new();
    let mut at_loads = Vec::new();
    for at in loads {
        let (load, report) = AtLoad::of(at, directory)?;
        at_loads.push(load);
        analyzed.extend(report);
    }
    let studied = Studied {
        name: name.to_string(),
        about,
        capacity,
        disk_reads_per_1000,
        loads: at_loads,
        analysis: Report::new(analyzed),
        recorded,
        recording,
        no_reasons,
    };
    Ok((studied, interrupted))
}

/// Starts a server on the disk, and fills its cache as far as its memory allows.
fn started(
    settled: &Settled,
    place: &Place,
    name: &str,
    history: Option<&Path>,
) -> Result<(Ready, Plan)> {
    say(&format!("{name}: filling its cache"));
    // Pages that another server has cached would not be charged to this one's memory.
    place.cool()?;
    let what = settled.what(&place.files());
    let ready = plan::ready(&Target::Server(name.to_string()), &what, history)?;
    let (duration, warmup) = (settled.duration, settled.warmup);
    let plan = of_what(
        &ready,
        &what,
        duration,
        warmup,
        settled.arguments.connections,
    )?;
    let fill = Plan {
        mode: Mode::Closed { think_ns: 0 },
        duration_ns: ns(FILL_TIME),
        warmup_ns: 0,
        requests: Some(settled.file_count() * FILLS),
        max_lateness_ns: i64::MAX,
        ..plan.clone()
    };
    step("filling the cache");
    place.at_full_speed(|| run_whole(&fill))?;
    Ok((ready, plan))
}

/// One more run to find the causes. It is separate, because recording costs the server time.
fn record(
    settled: &Settled,
    place: &Place,
    name: &str,
    rps: f64,
    directory: &Path,
) -> Result<(Summary, RunReport)> {
    let history = directory.join("history.parquet");
    let rows = directory.join("recorded.parquet");
    let (ready, plan) = started(settled, place, name, Some(&history))?;
    let load = settled.arguments.recorded_load;
    say(&format!("{name}: recorded by DeBox at load {load}"));
    let plan = Plan {
        seed: plan.seed + 1,
        connections: settled.arguments.most,
        mode: open_loop(&[load * rps], plan.duration_ns, true),
        load: Some(load),
        output: Some(rows.clone()),
        ..plan
    };
    step("recorded");
    let summary = run_whole(&plan)?;
    // The recording is complete when the server has ended.
    drop(ready);
    let run = read(&rows, &Options::default())?;
    let mut report = measure(&run, &Settings::default())?.report;
    let history = History::open(&[&history]).context("the recording cannot be read")?;
    report.server = Some(join(&run, &history, SLOW_PERCENT)?);
    Ok((summary, report))
}
