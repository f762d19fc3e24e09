//! What a study has found (`latlab.study/1`).

use std::path::Path;

use anyhow::Result as Done;
use latlab::units::time;
use latlab_analysis::read::{read, Options};
use latlab_analysis::report::{measure, Report, RunReport, Settings};
use serde::Serialize;

use crate::procedure::{self, CapacityResult, Spread};

/// `latlab.study/1`
#[derive(Serialize)]
pub struct Result {
    schema: &'static str,
    tool_version: &'static str,
    pub findings: Vec<Finding>,
    pub machine: Machine,
    pub terms: Terms,
    pub servers: Vec<Studied>,
    /// Whether somebody ended it before all runs of all servers.
    pub interrupted: bool,
    /// Why some of the figures are not the servers', or what is missing.
    pub caveats: Vec<String>,
}

/// A sentence, and the section of the page that shows it.
#[derive(Serialize)]
pub struct Finding {
    pub text: String,
    pub evidence: &'static str,
}

#[derive(Serialize)]
pub struct Machine {
    pub cpus: usize,
    pub kernel: String,
    pub memory_bytes: u64,
}

impl Machine {
    pub fn this() -> Machine {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let memory = text("/proc/meminfo");
        // What is behind the version is its builder's.
        let kernel = text("/proc/sys/kernel/osrelease");
        let kib = memory.split_whitespace().nth(1).unwrap_or("0");
        Machine {
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: kernel.split('-').next().unwrap_or("").trim().to_string(),
            memory_bytes: kib.parse::<u64>().unwrap_or(0) * 1024,
        }
    }
}

/// Under which all servers were measured.
#[derive(Serialize)]
pub struct Terms {
    pub file_set_bytes: u64,
    pub memory_bytes: u64,
    pub service_us: u64,
    pub depth: u32,
    /// What a cold `open` and a cold read of 4 KiB took, half of them at most.
    pub cold_open_ns: u64,
    pub cold_read_ns: u64,
    pub connections: u32,
    pub most_connections: u32,
    pub repeats: u32,
    /// Of each run, without its warm-up.
    pub seconds: f64,
}

/// One server.
#[derive(Serialize)]
pub struct Studied {
    pub name: String,
    pub about: String,
    pub capacity: CapacityResult,
    /// Of capacity and loads together.
    pub disk_reads_per_1000: f64,
    pub loads: Vec<AtLoad>,
    /// Of each load the run whose median latency is the middle one of all repeats.
    pub analysis: Report,
    /// The run that DeBox recorded, with burstiness and causes.
    pub recorded: Option<Report>,
    pub no_reasons: Option<String>,
}

/// One load: figures of all repeats.
#[derive(Serialize)]
pub struct AtLoad {
    #[serde(flatten)]
    pub at: procedure::AtLoad,
    pub inversion: Option<Spread>,
    /// Of the ideal server with the same sizes and arrivals.
    pub ideal_inversion: Option<Spread>,
}

impl AtLoad {
    /// Its figures, and the report of the repeat in the middle; none if no request was answered.
    pub fn of(at: procedure::AtLoad, directory: &Path) -> Done<(AtLoad, Option<RunReport>)> {
        let mut reports = Vec::new();
        for (file, run) in at.files.iter().zip(&at.runs) {
            if run.ok > 0 {
                let run = read(&directory.join(file), &Options::default())?;
                reports.push(measure(&run, &Settings::default())?.report);
            }
        }
        let inversion = Spread::of(reports.iter().filter_map(|run| run.service_inversion));
        let ideal = |run: &RunReport| Some(run.inversion.as_ref()?.corrected.as_ref()?.ideal);
        let ideal_inversion = Spread::of(reports.iter().filter_map(ideal));
        reports.sort_by(|a, b| a.percentiles.p50.0.total_cmp(&b.percentiles.p50.0));
        let middle = (!reports.is_empty()).then(|| reports.swap_remove((reports.len() - 1) / 2));
        let load = AtLoad {
            at,
            inversion,
            ideal_inversion,
        };
        Ok((load, middle))
    }

    /// Median, mean and 95th percentile, medians of the repeats.
    fn latencies(&self) -> Option<[f64; 3]> {
        let figures = &self.at.figures;
        Some([
            figures.p50_ns?.median,
            figures.mean_ns?.median,
            figures.p95_ns?.median,
        ])
    }
}

impl Studied {
    /// The lowest load and the highest that the server can serve.
    pub fn ends(&self) -> Option<(&AtLoad, &AtLoad)> {
        let served = || self.loads.iter().filter(|load| load.at.load < 1.0);
        let (first, last) = (served().next()?, served().next_back()?);
        (first.at.load < last.at.load).then_some((first, last))
    }

    pub fn recorded_run(&self) -> Option<&RunReport> {
        self.recorded.as_ref()?.all().next()
    }

    /// The wait that explains slow requests, or else the one that holds up all of them.
    pub fn reason(&self) -> Option<String> {
        let causes = self.recorded_run()?.server.as_ref()?.causes.as_ref()?;
        // That threads wait for a CPU is the machine's doing, unless nothing else is found.
        let explaining = causes.explaining().filter(|cause| cause.class != "cpu");
        let most = explaining.max_by(|a, b| a.excess_ns.total_cmp(&b.excess_ns));
        let most = most.or_else(|| causes.most_excess());
        let (cause, beside) = match (most, causes.of_all()) {
            (Some(cause), _) => (cause, ""),
            (None, Some(cause)) => (cause, ", in all requests"),
            (None, None) => return None,
        };
        Some(format!("{} in {}{beside}", cause.label, cause.call))
    }
}

impl Result {
    pub fn new(machine: Machine, terms: Terms, servers: Vec<Studied>, interrupted: bool) -> Result {
        let mut findings = Vec::new();
        let mut caveats = Vec::new();
        if interrupted {
            caveats.push("The study was interrupted: it is of the runs until then.".to_string());
        }
        for server in &servers {
            grows(server, &mut findings);
            beyond(server, &mut findings);
            let found = server.recorded.iter().flat_map(|report| &report.findings);
            let shown = ["causes", "burstiness"];
            for one in found.filter(|one| shown.contains(&one.evidence)) {
                findings.push(Finding {
                    text: format!("{}, recorded: {}", server.name, one.text),
                    evidence: one.evidence,
                });
            }
            uncertain(server, &mut caveats);
        }
        Result {
            schema: "latlab.study/1",
            tool_version: env!("CARGO_PKG_VERSION"),
            findings,
            machine,
            terms,
            servers,
            interrupted,
            caveats,
        }
    }
}

/// The papers' question: does the median grow with the load, or the mean only?
fn grows(server: &Studied, findings: &mut Vec<Finding>) {
    let Some((first, last)) = server.ends() else {
        return;
    };
    let (Some(before), Some(after)) = (first.latencies(), last.latencies()) else {
        return;
    };
    let change = |name: &str, at: usize| {
        format!(
            "the {name} goes from {} to {} ({:.1} times)",
            time(before[at] as i64),
            time(after[at] as i64),
            after[at] / before[at].max(1.0)
        )
    };
    let mut text = format!(
        "{}, from load {} to {}: {}, {} and {}",
        server.name,
        first.at.load,
        last.at.load,
        change("median", 0),
        change("mean", 1),
        change("95th percentile", 2)
    );
    if let (Some(before), Some(after)) = (first.inversion, last.inversion) {
        text.push_str(&format!(
            "; service inversion from {:.2} to {:.2}",
            before.median, after.median
        ));
        if let Some(ideal) = last.ideal_inversion {
            text.push_str(&format!(" (an ideal server: {:.2})", ideal.median));
        }
    }
    text.push('.');
    findings.push(Finding {
        text,
        evidence: "loads",
    });
}

fn beyond(server: &Studied, findings: &mut Vec<Finding>) {
    let Some(load) = server.loads.iter().rfind(|load| load.at.load > 1.0) else {
        return;
    };
    let figures = &load.at.figures;
    let (Some(served), Some(median)) = (figures.throughput_rps, figures.p50_ns) else {
        return;
    };
    findings.push(Finding {
        text: format!(
            "{}, beyond its capacity, at load {}: it serves {:.0} of {:.0} requests/s, and half of them take {} \
             or more.",
            server.name,
            load.at.load,
            served.median,
            load.at.offered_rps,
            time(median.median as i64)
        ),
        evidence: "loads",
    });
}

fn uncertain(server: &Studied, caveats: &mut Vec<String>) {
    let name = &server.name;
    if let Some(why) = &server.no_reasons {
        caveats.push(format!(
            "{name}: no reasons, because it could not be recorded: {why}"
        ));
    }
    let refused: Vec<String> = server
        .capacity
        .runs
        .iter()
        .chain(server.loads.iter().flat_map(|load| &load.at.runs))
        .filter_map(|run| Some(format!("{}: {}", run.label(), run.refused.as_ref()?)))
        .collect();
    if let Some(first) = refused.first() {
        caveats.push(format!(
            "{name}: {} runs are NOT VALID; the first is {first}",
            refused.len()
        ));
    }
    if server.disk_reads_per_1000 < 1.0 {
        caveats.push(format!(
            "{name}: the disk was hardly read ({:.1} times for each 1,000 requests): nearly all was in memory; \
             make --memory smaller, or --size larger",
            server.disk_reads_per_1000
        ));
    }
    let recorded = server.recorded_run();
    for text in recorded.iter().flat_map(|run| {
        let server = run.server.iter().flat_map(|server| &server.caveats);
        run.caveats.iter().chain(server)
    }) {
        caveats.push(format!("{name}, recorded: {text}"));
    }
}
