//! One run: starts the generator processes, merges their results, and decides whether they are
//! valid.

mod plan;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Sender};

use anyhow::{bail, ensure, Context, Result};
use serde_json::json;

use crate::load::{Config, Delays, Mode, Now, Outcome, SoFar, Step};
use crate::rows::{
    advice, process_file, Description, Meta, Next, ParquetFile, SpoolReader, Spools, SCHEMA,
};
use crate::servers::Watch;
use crate::signals;
use crate::summary::{Latencies, Summary, Taken};
use crate::sys;
use crate::tls::Tls;
use crate::worker::Said;
use crate::workload::{Shape, Spec, Workload};

pub use plan::{Plan, Url};

/// More than a generator process uses in addition to its connections.
const OTHER_DESCRIPTORS: u64 = 32;
/// Time for the processes to start.
const START_NS: i64 = 150_000_000;
/// Additional time for each byte of a long list that they have to read; it takes them a tenth of
/// that.
const TELL_NS_PER_BYTE: i64 = 50;
/// A generator that sleeps less than this share of the run has no CPU time to spare.
const IDLE_SHARE: f64 = 0.04;

impl Plan {
    /// Returns an error, before anything is started, if the run cannot work.
    fn check(&self) -> Result<()> {
        ensure!(
            self.connections >= u32::from(self.processes),
            "there are fewer connections ({}) than generator processes ({})",
            self.connections,
            self.processes
        );
        ensure!(
            self.warmup_ns < self.duration_ns,
            "the warm-up is as long as the run: nothing would be measured"
        );
        if let Some(tls) = self.tls() {
            tls.server_name()?;
            tls.client()?;
        }
        let each = u64::from(self.connections.div_ceil(u32::from(self.processes)));
        // Connections that are being closed exist in addition to those in use.
        let needed = each + each / 4 + OTHER_DESCRIPTORS;
        let allowed =
            sys::raise_descriptors().context("cannot ask for the number of descriptors")?;
        ensure!(
            needed <= allowed,
            "{} connections need {needed} descriptors in each generator process, and {allowed} are \
            allowed: raise the hard limit (ulimit -Hn), or share them among more --processes",
            self.connections
        );
        Ok(())
    }

    fn tls(&self) -> Option<Tls> {
        let its = || Tls::new(&self.url.host, self.trust.clone());
        self.url.tls.then(its)
    }

    fn config(&self, process: u16, address: SocketAddr, start_at_ns: i64, spool: &Path) -> Config {
        let share = |total: u64| {
            let (all, index) = (u64::from(self.processes), u64::from(process));
            total / all + u64::from(index < total % all)
        };
        Config {
            address,
            host: self.url.host.clone(),
            tls: self.tls(),
            spec: self.spec.clone(),
            shape: self.shape.clone(),
            seed: self.seed,
            checked_share: self.checked_share,
            process,
            processes: self.processes,
            connections: share(u64::from(self.connections)) as u32,
            mode: match &self.mode {
                // Distributed in turn, like the paths.
                Mode::Replay { starts } => Mode::Replay {
                    starts: starts
                        .iter()
                        .skip(usize::from(process))
                        .step_by(usize::from(self.processes))
                        .copied()
                        .collect(),
                },
                mode => mode.clone(),
            },
            requests_per_connection: self.requests_per_connection,
            timeout_ns: self.timeout_ns,
            duration_ns: self.duration_ns,
            warmup_ns: self.warmup_ns,
            start_at_ns,
            requests: self.requests.map(share),
            spool: process_file(spool, process),
            watched: self.watched,
        }
    }

    /// The steps of an open loop; empty for other modes.
    fn steps(&self) -> &[Step] {
        match &self.mode {
            Mode::Open { steps, .. } => steps,
            Mode::Closed { .. } | Mode::Paced { .. } | Mode::Replay { .. } => &[],
        }
    }

    fn offered_rps(&self) -> Option<f64> {
        match &self.mode {
            Mode::Closed { .. } | Mode::Paced { .. } => None,
            Mode::Replay { starts } => Some(starts.len() as f64 / (self.duration_ns as f64 / 1e9)),
            Mode::Open { steps, .. } => {
                let total: f64 = steps.iter().map(|step| step.rps * step.ns as f64).sum();
                Some(total / steps.iter().map(|step| step.ns).sum::<i64>() as f64)
            }
        }
    }
}

/// Runs the plan. `progress` is called regularly. If an output is given, the rows are in a file
/// afterwards, whatever went wrong.
pub fn run(plan: &Plan, mut progress: impl FnMut(Now)) -> Result<Summary> {
    signals::check()?;
    plan.check()?;
    let address = plan.url.address()?;
    if let Some(output) = &plan.output {
        ParquetFile::check(output)?;
    }
    plan.hdr.check()?;
    let body = plan.shape.body.as_ref().map_or(0, Vec::len);
    let told = serde_json::to_vec(&plan.spec)?.len() + body;
    let told = told as i64 * (1 + i64::from(plan.processes));
    let from_now_ns = START_NS + TELL_NS_PER_BYTE * told;
    let start_at_ns = sys::now_ns() + from_now_ns;
    let started_realtime_ns = sys::realtime_ns() + from_now_ns;
    let meta = meta(plan, started_realtime_ns);
    let description = Description::new(meta.clone(), plan.spec.clone(), plan.seed, plan.processes);
    let spools = Spools::create(plan.output.as_deref(), &description)?;
    let outcomes = generate(
        plan,
        |process| plan.config(process, address, start_at_ns, spools.path()),
        &mut progress,
    )?;
    let summary = merge(plan, &outcomes, spools.path(), meta);
    if summary.is_err() && plan.output.is_some() {
        let kept = spools.keep();
        let advice = advice(&kept);
        return summary.with_context(|| {
            format!("what was measured is left in {} ({advice})", kept.display())
        });
    }
    summary
}

/// Metadata that is known when a run begins.
fn meta(plan: &Plan, started_realtime_ns: i64) -> Meta {
    Meta {
        schema: SCHEMA.to_string(),
        tool_version: env!("CARGO_PKG_VERSION").to_string(),
        host: host_name(),
        started_realtime_ns,
        mode: match plan.mode {
            Mode::Closed { .. } | Mode::Paced { .. } => latlab_analysis::Mode::Closed,
            Mode::Open { .. } | Mode::Replay { .. } => latlab_analysis::Mode::Open,
        },
        offered_rps: plan.offered_rps(),
        connections: Some(u64::from(plan.connections)),
        seed: Some(plan.seed),
        fileset: describe(&plan.spec, &plan.shape),
        server: Some(plan.server.clone().into()),
        load: plan.load,
        steps: steps_of(plan),
        lateness: None,
        reply_lateness: None,
        generator_cpu: None,
        in_flight: None,
        warmup_ns: Some(plan.warmup_ns),
        duration_ns: Some(plan.duration_ns),
        refused: None,
    }
}

/// When the steps begin and end, if there are several rates.
fn steps_of(plan: &Plan) -> Option<Vec<latlab_analysis::rows::Step>> {
    let mut end_ns = 0;
    let steps = plan.steps().iter().map(|step| {
        let begin_ns = end_ns;
        end_ns += step.ns;
        latlab_analysis::rows::Step {
            offered_rps: step.rps,
            begin_ns,
            end_ns,
        }
    });
    (plan.steps().len() > 1).then(|| steps.collect())
}

type Outcomes = Vec<Result<Outcome, String>>;

/// Starts the processes and waits for them.
fn generate(
    plan: &Plan,
    config: impl Fn(u16) -> Config,
    progress: &mut impl FnMut(Now),
) -> Result<Outcomes> {
    let mut children = Vec::new();
    let (sender, said) = channel();
    for process in 0..plan.processes {
        let started = start(&plan.program, &config(process), process, &sender);
        match started {
            Ok(child) => children.push(child),
            Err(error) => {
                for child in &children {
                    sys::signal(child.id(), libc::SIGTERM);
                }
                children.iter_mut().for_each(|child| drop(child.wait()));
                return Err(error);
            }
        }
    }
    drop(sender);
    let pids: Vec<u32> = children.iter().map(Child::id).collect();
    signals::catch();
    signals::forward_to(&pids);
    let mut outcomes: Outcomes = (0..plan.processes)
        .map(|_| Err("a generator process was killed".to_string()))
        .collect();
    let mut so_far = vec![SoFar::default(); usize::from(plan.processes)];
    for (process, said) in said {
        let process = usize::from(process);
        match said {
            Said::Progress(its) => {
                so_far[process] = its;
                progress(Now::of(&so_far));
            }
            Said::Done(outcome) => outcomes[process] = Ok(*outcome),
            Said::Failed(why) => outcomes[process] = Err(why),
        }
    }
    for mut child in children {
        child
            .wait()
            .context("cannot wait for a generator process")?;
    }
    signals::forward_to(&[]);
    Ok(outcomes)
}

/// Starts one process, and a thread that reads its output.
fn start(
    program: &Path,
    config: &Config,
    process: u16,
    sender: &Sender<(u16, Said)>,
) -> Result<Child> {
    let mut child = Command::new(program)
        .arg("worker")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        bail!("a generator process has no standard input");
    };
    stdin
        .write_all(&serde_json::to_vec(config)?)
        .context("a generator process ended at once")?;
    drop(stdin);
    let sender = sender.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Ok(said) = serde_json::from_str(&line) {
                drop(sender.send((process, said)));
            }
        }
    });
    Ok(child)
}

/// Makes one file and one summary from all processes.
fn merge(plan: &Plan, outcomes: &Outcomes, spools: &Path, meta: Meta) -> Result<Summary> {
    let workload = Workload::new(&plan.spec, plan.seed, 0.0, 0, 1)?;
    let mut file = plan
        .output
        .as_deref()
        .map(ParquetFile::create)
        .transpose()?;
    let mut latencies = Latencies::new(plan.warmup_ns, plan.duration_ns, plan.steps());
    let mut taken = Vec::new();
    let has_classes = matches!(plan.spec, Spec::Classes { .. });
    let mut over_time = plan.hdr.over_time(plan.warmup_ns, plan.duration_ns);
    for process in 0..plan.processes {
        let spool = process_file(spools, process);
        if !spool.exists() {
            continue;
        }
        let cannot = || format!("cannot read {}", spool.display());
        let mut reader = SpoolReader::open(&spool).with_context(cannot)?;
        loop {
            match reader.read_next().with_context(cannot)? {
                Next::Row(row) => {
                    latencies.add(&row);
                    if has_classes && row.intended_ns >= plan.warmup_ns {
                        taken.push(Taken::of(&row));
                    }
                    if let Some(over_time) = &mut over_time {
                        over_time.add(&row);
                    }
                    if let Some(file) = &mut file {
                        file.push(&row, &workload)?;
                    }
                }
                // A killed generator may leave a partial row.
                Next::End { .. } => break,
                Next::Damaged => bail!("{} is damaged", spool.display()),
            }
        }
    }
    let (mut lateness, mut reply_lateness) = (Delays::default(), Delays::default());
    let mut total = Outcome::default();
    let mut counted = Vec::new();
    // The busiest process limits the load.
    let (mut cpu, mut busy): (f64, f64) = (0.0, 0.0);
    let mut troubles = Vec::new();
    for outcome in outcomes {
        match outcome {
            Err(why) => troubles.push(why.clone()),
            Ok(outcome) => {
                lateness.add(&outcome.lateness);
                reply_lateness.add(&outcome.reply_lateness);
                let wall = outcome.wall_ns.max(1) as f64;
                cpu = cpu.max(outcome.cpu_ns as f64 / wall);
                busy = busy.max((outcome.cpu_ns + outcome.runqueue_ns) as f64 / wall);
                total.opened += outcome.opened;
                total.retried += outcome.retried;
                total.retried_after_reset += outcome.retried_after_reset;
                total.unsolicited += outcome.unsolicited;
                total.clients.extend_from_slice(&outcome.clients);
                for (status, times) in &outcome.redirects {
                    *total.redirects.entry(*status).or_default() += times;
                }
                keep_first(&mut total.location, &outcome.location);
                keep_first(&mut total.tls, &outcome.tls);
                keep_first(&mut total.tls_error, &outcome.tls_error);
                counted.push(outcome.in_flight.clone());
                total.interrupted |= outcome.interrupted;
                if let Some(error) = &outcome.spool_error {
                    troubles.push(format!("what was measured could not be written: {error}"));
                }
            }
        }
    }
    // A generator that is terminated before it begins reports nothing.
    total.interrupted |= signals::check().is_err();
    if total.interrupted {
        troubles.push("the run was interrupted".to_string());
    }
    let ended_early = !troubles.is_empty();
    let late = lateness
        .lateness()
        .p99_ns
        .max(reply_lateness.lateness().p99_ns);
    if late > plan.max_lateness_ns {
        troubles.push(format!(
            "the generator was late by {} at the 99th percentile (--max-lateness {}): it was the bottleneck",
            crate::units::time(late),
            crate::units::time(plan.max_lateness_ns)
        ));
    }
    if busy > 1.0 - IDLE_SHARE {
        troubles.push(format!(
            "the generator had work or waited for a CPU {:.0} % of the time: it was the bottleneck; \
            try more --processes, or another machine",
            busy * 100.0
        ));
    }
    let server_ended = plan.watch.as_ref().and_then(Watch::ended);
    let killed = plan.watch.as_ref().and_then(Watch::killed_for_memory);
    // That the server ended explains more than other reasons, so it comes first.
    troubles.extend(
        latencies
            .nothing(total.tls_error.as_deref())
            .filter(|_| !ended_early && server_ended.is_none()),
    );
    troubles.extend(server_ended.iter().cloned());
    troubles.extend(killed);
    let meta = Meta {
        lateness: Some(lateness.lateness()),
        reply_lateness: Some(reply_lateness.lateness()),
        generator_cpu: Some(cpu.min(1.0)),
        in_flight: latencies.in_flight(&counted),
        refused: (!troubles.is_empty()).then(|| troubles.join("; ")),
        ..meta
    };
    if let Some(file) = file {
        file.finish(&meta)?;
    }
    if let Some(path) = &plan.hdr.percentiles {
        latencies.write_percentiles(path)?;
    }
    if let (Some(path), Some(over_time)) = (&plan.hdr.log, over_time) {
        over_time.write(path, &meta)?;
    }
    let summary = latencies.summary(plan, &meta, &total, ended_early);
    Ok(Summary {
        server_ended,
        taken,
        ..summary
    })
}

/// The value of any process is sufficient.
fn keep_first(first: &mut Option<String>, other: &Option<String>) {
    if first.is_none() {
        first.clone_from(other);
    }
}

fn host_name() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    text.trim().to_string()
}

/// What was requested, in short, and how if that is not the default. Headers are left out, because
/// they may contain secrets.
fn describe(spec: &Spec, shape: &Shape) -> serde_json::Value {
    let mut described = describe_source(spec);
    if *shape != Shape::default() {
        let names: Vec<&str> = shape.headers.iter().map(|its| its.name.as_str()).collect();
        described["method"] = json!(shape.method());
        described["header_names"] = json!(names);
        described["body_bytes"] = json!(shape.body.as_ref().map_or(0, Vec::len));
    }
    described
}

fn describe_source(spec: &Spec) -> serde_json::Value {
    match spec {
        Spec::Specweb { set, mix, .. } => json!({
            "source": "specweb",
            "seed": set.seed,
            "directories": set.directories,
            "bytes": set.bytes(),
            "mix": mix,
        }),
        Spec::List { paths, log } => {
            json!({"source": if *log { "log" } else { "list" }, "paths": paths.len()})
        }
        Spec::Sizes { sizes, template } => {
            json!({"source": "sizes", "sizes": sizes.len(), "template": template})
        }
        Spec::Classes { tree, names } => {
            json!({"source": "classes", "tree": tree, "requests": names.len()})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let url = Url::parse("http://[::1]:8080/files").unwrap();
        assert_eq!(
            (url.host.as_str(), url.path.as_str()),
            ("[::1]:8080", "/files")
        );
        assert_eq!(url.address().unwrap().port(), 8080);
        assert_eq!(
            Url::parse("127.0.0.1").unwrap().address().unwrap().port(),
            80
        );
        assert_eq!(
            Url::parse("http://[::1]/")
                .unwrap()
                .address()
                .unwrap()
                .port(),
            80
        );
        let secure = Url::parse("https://127.0.0.1/a").unwrap();
        assert_eq!(secure.address().unwrap().port(), 443);
        assert_eq!(secure.text(), "https://127.0.0.1/a");
        assert!(Url::parse("ftp://a/").is_err() && Url::parse("http:///x").is_err());
        assert!(Url::parse("http://a b/").is_err());
    }
}
