//! `latlab hot-cold`: how much do requests for files that the disk has to bring delay requests for files in memory?

mod result;
mod tables;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use kit_console::Allowed;
use latlab::classes::{caches, disk_rate, Rates, Schedule, Tree};
use latlab::confine::Limits;
use latlab::hdr::HdrFiles;
use latlab::load::Mode;
use latlab::run::{Plan, Url};
use latlab::servers::{self, Conditions, Server};
use latlab::signals::{self, unless_interrupted, Interrupted};
use latlab::sys;
use latlab::tls::Trust;
use latlab::workload::{Kind, Shape, Spec};

use crate::exit::NOT_VALID;
use crate::options::{Format, HotCold};
use crate::output;
use crate::plan::ns;
use crate::procedure::{new_directory, run_whole};
use crate::progress::{step, Progress};
use crate::study::{Machine, Place, Speed};
use result::{Absent, Measured, OneRun, Result as Found, Terms};

const SERVERS: [&str; 7] = [
    "flash",
    "nginx",
    "nginx-tuned",
    "apache-event",
    "lighttpd",
    "h2o",
    "caddy",
];
const TIMEOUT: Duration = Duration::from_secs(10);
/// For how long cold names are asked for to find out what the disk can do.
const DISK_TIME: Duration = Duration::from_secs(4);
/// Before each run the server gets this many requests for each hot file.
const FILLS: u64 = 8;
const FILL_CONNECTIONS: u32 = 64;
/// Cold files are at least as large: the check of the disk reads from the middle of such files.
const COLD_LEAST: u64 = 8192;

/// The options, with their defaults.
struct Settled<'a> {
    arguments: &'a HotCold,
    levels: Vec<f64>,
    repeats: u32,
    duration: Duration,
    tree: Tree,
}

impl Settled<'_> {
    fn of(arguments: &HotCold) -> Result<Settled<'_>> {
        let quick = arguments.quick;
        let mut levels = match (arguments.levels.as_slice(), quick) {
            ([], false) => vec![0.0, 0.25, 0.5, 0.75, 1.0],
            ([], true) => vec![0.0, 1.0],
            (levels, _) => levels.to_vec(),
        };
        levels.push(0.0);
        levels.sort_by(f64::total_cmp);
        levels.dedup();
        let duration =
            arguments
                .duration
                .unwrap_or(Duration::from_secs(if quick { 4 } else { 10 }));
        ensure!(
            arguments.warmup < duration,
            "the warm-up is as long as the run: nothing would be measured"
        );
        ensure!(
            arguments.cold_size >= COLD_LEAST,
            "cold files have to be of 8 KiB or more (--cold-size)"
        );
        ensure!(
            arguments.hot_size.max(arguments.cold_size) <= 64 << 20,
            "files of more than 64 MiB are not made"
        );
        let least = Duration::from_micros(10);
        ensure!(
            arguments.service >= least,
            "a disk that is not slow has no cold names (--service)"
        );
        // Each cold name takes the disk one read at least.
        let reads_per_second = f64::from(arguments.depth) / arguments.service.as_secs_f64();
        let level = levels.last().copied().unwrap_or(1.0).max(1.0);
        let seconds = duration.max(DISK_TIME).as_secs_f64();
        // Poisson arrivals vary; ten standard deviations are enough.
        let names = reads_per_second * level * seconds;
        let names = names + 10.0 * names.sqrt() + f64::from(arguments.outstanding) + 100.0;
        ensure!(
            names <= 200_000.0,
            "{names:.0} cold names would be needed: the disk is too fast, or the runs are too long"
        );
        Ok(Settled {
            arguments,
            levels,
            repeats: arguments.repeats.unwrap_or(if quick { 1 } else { 3 }),
            duration,
            tree: Tree {
                seed: 1999,
                hot: arguments.hot_files,
                cold: names as u32,
                hot_bytes: arguments.hot_size,
                cold_bytes: arguments.cold_size,
            },
        })
    }

    /// The servers to measure, and those that are not installed.
    fn servers(&self) -> Result<(Vec<Server>, Vec<Absent>)> {
        let known = servers::known(self.arguments.servers.as_deref())?;
        let find = |name: &str| known.iter().find(|server| server.name == name).cloned();
        if !self.arguments.names.is_empty() {
            let mut named = Vec::new();
            for name in &self.arguments.names {
                let server = find(name)
                    .with_context(|| format!("there is no server {name} (`latlab servers`)"))?;
                if let Some(why) = server.missing() {
                    anyhow::bail!("{why} (`latlab servers`)");
                }
                named.push(server);
            }
            return Ok((named, Vec::new()));
        }
        let (mut there, mut absent) = (Vec::new(), Vec::new());
        for server in SERVERS.into_iter().filter_map(find) {
            match server.missing() {
                None => there.push(server),
                Some(why) => absent.push(Absent {
                    name: server.name,
                    why,
                }),
            }
        }
        ensure!(
            !there.is_empty(),
            "none of the servers is installed (`latlab servers`)"
        );
        Ok((there, absent))
    }
}

pub fn hot_cold(arguments: &HotCold) -> Result<u8> {
    ensure!(
        sys::is_root(),
        "a slow disk needs root: it is a mount and a loop device"
    );
    let settled = Settled::of(arguments)?;
    let (there, absent) = settled.servers()?;
    new_directory(&arguments.output)?;
    for one in &absent {
        say(&format!("{}: it is left out", one.why));
    }
    // From here on there is something to undo.
    signals::catch();
    let speed = Speed {
        service: arguments.service,
        // Each read counts the same, wherever the file system has put what belongs together.
        sequential: arguments.service,
        depth: arguments.depth,
    };
    let tree = settled.tree;
    let place = Place::with(&arguments.place, tree.bytes(), speed, |files| {
        let progress = Progress::bytes(tree.bytes());
        tree.create(files, |done| progress.set(done, ""))?;
        progress.end();
        Ok(())
    })?;
    let terms = conditions(&settled, &place)?;
    say(&format!(
        "the disk looks up and reads {:.0} cold names per second, with {} of them asked for at once",
        terms.disk_names_per_second, terms.outstanding
    ));
    let mut measured: Vec<Measured> = there
        .iter()
        .map(|server| Measured::new(server, &settled.levels, terms.disk_names_per_second))
        .collect();
    let mut interrupted = false;
    let all = settled.repeats as usize * settled.levels.len() * there.len();
    let mut number = 0;
    'all: for repeat in 1..=settled.repeats {
        for at in 0..settled.levels.len() {
            for turn in 0..there.len() {
                // Each server is the first in some of the rounds.
                let which = (turn + at + repeat as usize) % there.len();
                let server = &there[which];
                number += 1;
                let level = settled.levels[at];
                say(&format!(
                    "{}, cold requests at {:.0} % of what the disk can do: run {number} of {all}",
                    server.name,
                    100.0 * level
                ));
                step(&format!("{}, {:.0} %", server.name, 100.0 * level));
                let rates = Rates {
                    hot_rps: arguments.hot_rate,
                    cold_rps: level * terms.disk_names_per_second,
                    missing: arguments.missing,
                };
                let file = format!("{}-{level}-{repeat}.parquet", server.name);
                let run = one_run(&settled, &place, server, rates, repeat, &file)
                    .with_context(|| format!("{}, level {level}", server.name));
                let Some(run) = unless_interrupted(run)? else {
                    interrupted = true;
                    break 'all;
                };
                measured[which].levels[at].runs.push(run);
            }
        }
    }
    drop(place);
    ensure!(
        measured
            .iter()
            .any(|server| server.levels.iter().any(|level| !level.runs.is_empty())),
        Interrupted
    );
    let found = Found::new(Machine::this(), terms, measured, absent, interrupted);
    write(&found, arguments)
}

/// The conditions, and what the disk can do.
fn conditions(settled: &Settled, place: &Place) -> Result<Terms> {
    let arguments = settled.arguments;
    place.cool()?;
    let before = place.reads()?;
    let rate = disk_rate(
        &place.files(),
        &settled.tree,
        arguments.missing,
        arguments.outstanding,
        DISK_TIME,
    )?;
    let reads = (place.reads()? - before) as f64;
    Ok(Terms {
        hot_files: settled.tree.hot,
        hot_file_bytes: settled.tree.hot_bytes,
        cold_names: settled.tree.cold,
        cold_file_bytes: settled.tree.cold_bytes,
        missing: arguments.missing,
        hot_rps: arguments.hot_rate,
        service_us: place.service_us(),
        depth: arguments.depth,
        cold_open_ns: place.cold_open_ns,
        cold_read_ns: place.cold_read_ns,
        outstanding: arguments.outstanding,
        disk_names_per_second: rate.per_second(),
        disk_reads_per_second: reads / rate.seconds,
        disk_reads_per_name: reads / rate.names as f64,
        connections: arguments.connections,
        repeats: settled.repeats,
        seconds: (settled.duration - arguments.warmup).as_secs_f64(),
    })
}

/// Mounts the disk again, starts the server, brings the hot files into memory, and measures.
fn one_run(
    settled: &Settled,
    place: &Place,
    server: &Server,
    rates: Rates,
    repeat: u32,
    file: &str,
) -> Result<OneRun> {
    let arguments = settled.arguments;
    let (root, tree) = (place.files(), &settled.tree);
    place.cool()?;
    let running = server.start(&Conditions {
        files: root.clone(),
        limits: Limits::default(),
        dynamic: None,
        parameters: Default::default(),
        recorder: None,
    })?;
    let duration_ns = ns(settled.duration);
    // The same requests for all servers.
    let seed = arguments.seed + u64::from(repeat);
    let schedule = Schedule::new(tree, rates, duration_ns, seed)?;
    let cold: Vec<u32> = schedule
        .names
        .iter()
        .copied()
        .filter(|name| tree.kind(*name) != Kind::Hot)
        .collect();
    let plan = Plan {
        url: Url {
            tls: false,
            host: format!("127.0.0.1:{}", running.port),
            path: "/".to_string(),
        },
        trust: Trust::System,
        spec: Spec::Classes {
            tree: *tree,
            names: schedule.names,
        },
        shape: Shape::default(),
        seed,
        checked_share: 0.01,
        connections: arguments.connections,
        processes: 1,
        mode: Mode::Replay {
            starts: schedule.starts,
        },
        requests_per_connection: None,
        timeout_ns: ns(TIMEOUT),
        duration_ns,
        warmup_ns: ns(arguments.warmup),
        requests: None,
        max_lateness_ns: ns(arguments.max_lateness),
        load: None,
        server: server.name.clone(),
        output: Some(arguments.output.join(file)),
        hdr: HdrFiles::default(),
        watch: running.watch(&server.name),
        watched: kit_console::error_is_read(),
        program: std::env::current_exe().context("cannot find latlab's own program")?,
    };
    let fill = Plan {
        spec: Spec::Classes {
            tree: *tree,
            names: (0..tree.hot).collect(),
        },
        mode: Mode::Closed { think_ns: 0 },
        connections: FILL_CONNECTIONS.min(arguments.connections),
        requests: Some(u64::from(tree.hot) * FILLS),
        duration_ns: ns(TIMEOUT),
        warmup_ns: 0,
        max_lateness_ns: i64::MAX,
        output: None,
        ..plan.clone()
    };
    let held = place.at_full_speed(|| {
        caches::warm(&root, tree)?;
        run_whole(&fill)?;
        // What the kernel has reclaimed since.
        caches::warm(&root, tree)?;
        caches::hold(&root, tree)
    })?;
    let before = caches::hot(&root, tree)?;
    let cold_names_cached = caches::cached_names(&root, tree, &cold)?;
    let reads = place.reads()?;
    let summary = run_whole(&plan)?;
    let reads = place.reads()? - reads;
    let after = caches::hot(&root, tree)?;
    drop(held);
    // Requests that still wait for the disk must not delay the end.
    place.at_full_speed(|| {
        drop(running);
        Ok(())
    })?;
    let caches = result::Caches {
        hot_before: before,
        hot_after: after,
        cold_names: cold.len() as u64,
        cold_names_cached,
        disk_reads: reads,
    };
    Ok(OneRun::new(file.to_string(), summary, caches))
}

/// Writes the JSON and the tables. The tables are also printed.
fn write(found: &Found, arguments: &HotCold) -> Result<u8> {
    let keep = |name: &str, text: &[u8]| {
        let path: &Path = &arguments.output.join(name);
        kit_files::output::replace(path, text)
    };
    let json = serde_json::to_string_pretty(found)?;
    keep("hot-cold.json", json.as_bytes())?;
    let mut text = Vec::new();
    tables::text(&mut text, found, 110)?;
    keep("hot-cold.txt", &text)?;
    match arguments.format {
        Format::Json => kit_console::print(Allowed::Json, |out| writeln!(out, "{json}"))?,
        Format::Text => {
            let width = output::terminal_width().unwrap_or(110);
            output::text(|out| tables::text(out, found, width))?;
        }
    }
    let not_valid = found.not_valid();
    if not_valid > 0 {
        say(&format!(
            "{not_valid} runs are NOT VALID: see what is missing or uncertain"
        ));
    }
    if found.interrupted {
        say("NOT VALID: interrupted: it is of the runs until then");
    }
    Ok(match not_valid > 0 || found.interrupted {
        true => NOT_VALID,
        false => 0,
    })
}

fn say(text: &str) {
    kit_console::say!("latlab: {text}");
}
