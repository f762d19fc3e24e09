//! The results of a study (`latlab.study/1`).

use std::path::Path;

use anyhow::Result as Done;
use latlab::summary::Summary;
use latlab::units::{count, time};
use latlab_analysis::read::{read, Options};
use latlab_analysis::report::{measure, Report, RunReport, Settings};
use serde::Serialize;

use crate::capacity::{is_served, kept_up, CapacityResult};
use crate::procedure::{self, Spread};

/// `latlab.study/1`
#[derive(Serialize)]
pub struct Result {
    schema: &'static str,
    tool_version: &'static str,
    pub findings: Vec<Finding>,
    pub machine: Machine,
    pub terms: Terms,
    pub servers: Vec<Studied>,
    /// Whether it was interrupted before all runs of all servers.
    pub interrupted: bool,
    /// Why some figures are not valid for the servers, or what is missing.
    pub caveats: Vec<String>,
}

/// A sentence, and the section of the page that shows it.
#[derive(Serialize)]
pub struct Finding {
    pub text: String,
    pub evidence: &'static str,
    /// How many of the runs behind it are not valid.
    pub not_valid: usize,
}

/// The number of these runs that are not valid.
pub fn not_valid<'a>(runs: impl IntoIterator<Item = &'a Summary>) -> usize {
    let runs = runs.into_iter();
    runs.filter(|run| run.refused.is_some()).count()
}

/// The beginning of a sentence about runs: the server, and how many of them are not valid.
fn about<'a>(name: &str, runs: impl IntoIterator<Item = &'a Summary>) -> (String, usize) {
    let runs: Vec<&Summary> = runs.into_iter().collect();
    let not_valid = not_valid(runs.iter().copied());
    let text = match not_valid {
        0 => name.to_string(),
        some => format!("{name} (NOT VALID: {some} of {} runs)", runs.len()),
    };
    (text, not_valid)
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
        // The rest of the version line is about the build.
        let kernel = text("/proc/sys/kernel/osrelease");
        let kib = memory.split_whitespace().nth(1).unwrap_or("0");
        Machine {
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: kernel.split('-').next().unwrap_or("").trim().to_string(),
            memory_bytes: kib.parse::<u64>().unwrap_or(0) * 1024,
        }
    }
}

/// Conditions common to all servers.
#[derive(Serialize)]
pub struct Terms {
    pub file_set_bytes: u64,
    pub memory_bytes: u64,
    pub service_us: u64,
    pub depth: u32,
    /// Median time of a cold `open`, and of a cold read of 4 KiB.
    pub cold_open_ns: u64,
    pub cold_read_ns: u64,
    pub connections: u32,
    pub most_connections: u32,
    pub repeats: u32,
    /// Length of each run, without its warm-up.
    pub seconds: f64,
}

/// One server.
#[derive(Serialize)]
pub struct Studied {
    pub name: String,
    pub about: String,
    pub capacity: CapacityResult,
    /// Over the runs for capacity and loads together.
    pub disk_reads_per_1000: f64,
    pub loads: Vec<AtLoad>,
    /// For each load, the run whose median latency is the median of all repeats.
    pub analysis: Report,
    /// The run that DeBox recorded, with burstiness and causes.
    pub recorded: Option<Report>,
    /// latlab's own summary of the recorded run.
    pub recording: Option<Summary>,
    pub no_reasons: Option<String>,
}

/// One load, with the figures of all repeats.
#[derive(Serialize)]
pub struct AtLoad {
    #[serde(flatten)]
    pub at: procedure::AtLoad,
    pub inversion: Option<Spread>,
    /// Inversion of the ideal server with the same sizes and arrivals.
    pub ideal_inversion: Option<Spread>,
}

impl AtLoad {
    /// The figures, and the report of the middle repeat; `None` if no request was answered.
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

    /// Median, mean and 95th percentile: medians over the repeats.
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
    pub fn all_runs(&self) -> impl Iterator<Item = &Summary> {
        let of_loads = self.loads.iter().flat_map(|load| &load.at.runs);
        let all = self.capacity.all_runs().chain(of_loads);
        all.chain(&self.recording)
    }

    /// The lowest load, and the highest one that the server can serve.
    pub fn ends(&self) -> Option<(&AtLoad, &AtLoad)> {
        let served = || self.loads.iter().filter(|load| load.at.load < 1.0);
        let (first, last) = (served().next()?, served().next_back()?);
        (first.at.load < last.at.load).then_some((first, last))
    }

    pub fn recorded_run(&self) -> Option<&RunReport> {
        self.recorded.as_ref()?.all().next()
    }

    /// The wait that explains slow requests, or else the one that delays all of them.
    pub fn reason(&self) -> Option<String> {
        let causes = self.recorded_run()?.server.as_ref()?.causes.as_ref()?;
        // Waits for a CPU are due to the machine, and count only if no other wait explains it.
        let explaining = causes.explaining().filter(|cause| !cause.waits_for_cpu());
        let most = explaining.max_by(|a, b| a.excess_ns.total_cmp(&b.excess_ns));
        let most = most.or_else(|| causes.most_excess());
        let (cause, beside) = match (most, causes.of_all()) {
            (Some(cause), _) => (cause, ""),
            (None, Some(cause)) => (cause, ", in all requests"),
            (None, None) => return None,
        };
        // Without this, the explanation may be taken for more than it is.
        let explains = match beside {
            "" => format!(", explains {:.0} %", 100.0 * cause.explains),
            _ => String::new(),
        };
        let place = match cause.call.as_str() {
            "(user)" => "between calls".to_string(),
            call => format!("in {call}"),
        };
        Some(format!("{} {place}{beside}{explains}", cause.label))
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
            contradictions(server, &mut findings);
            grows(server, &mut findings);
            beyond(server, &mut findings);
            let found = server.recorded.iter().flat_map(|report| &report.findings);
            let shown = ["causes", "burstiness"];
            let (about, not_valid) = about(&server.name, &server.recording);
            for one in found.filter(|one| shown.contains(&one.evidence)) {
                findings.push(Finding {
                    text: format!("{about}, recorded: {}", one.text),
                    evidence: one.evidence,
                    not_valid,
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

/// The papers' question: does the median grow with the load, or only the mean?
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
    let (about, not_valid) = about(&server.name, first.at.runs.iter().chain(&last.at.runs));
    let mut text = format!(
        "{about}, from load {} to {}: {}, {} and {}",
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
        not_valid,
    });
}

/// Compares the capacity with the runs at each load: both have to agree on which loads are served.
fn contradictions(server: &Studied, findings: &mut Vec<Finding>) {
    let interval = server.capacity.interval;
    for load in &server.loads {
        let runs: Vec<&Summary> = load.at.runs.iter().collect();
        if runs.is_empty() {
            continue;
        }
        let offered = load.at.offered_rps;
        let served = runs.iter().filter(|run| is_served(run)).count();
        let too_much = interval.not_served_rps.is_some_and(|not| offered >= not);
        let little = interval.served_rps.is_some_and(|served| offered <= served);
        let why = match (too_much, little) {
            (true, _) if 2 * served > runs.len() => "it kept up",
            (_, true) if 2 * served < runs.len() => "it did not keep up",
            _ => continue,
        };
        let rate = |rps: f64| count(rps.round() as u64);
        let part = Spread::of(runs.iter().map(|run| kept_up(run)));
        let (name, not_valid) = about(&server.name, runs);
        findings.push(Finding {
            text: format!(
                "{name}: its capacity and its load {} contradict each other: when the capacity was measured {}, \
                 and with {} offered {why} ({:.0} % were answered in the same time). What its loads are parts of is \
                 uncertain: measure for longer (--duration), or more often (--repeats).",
                load.at.load,
                server.capacity.describe(),
                rate(offered),
                100.0 * part.map_or(0.0, |part| part.median)
            ),
            evidence: "loads",
            not_valid,
        });
    }
}

fn beyond(server: &Studied, findings: &mut Vec<Finding>) {
    let Some(load) = server.loads.iter().rfind(|load| load.at.load > 1.0) else {
        return;
    };
    let figures = &load.at.figures;
    let (Some(served), Some(median)) = (figures.throughput_rps, figures.p50_ns) else {
        return;
    };
    // A server that keeps up is not overloaded: that is a different finding.
    if 2 * load.at.runs.iter().filter(|run| is_served(run)).count() > load.at.runs.len() {
        return;
    }
    let (about, not_valid) = about(&server.name, &load.at.runs);
    findings.push(Finding {
        text: format!(
            "{about}, beyond its capacity, at load {}: it serves {:.0} of {:.0} requests/s, and half of them take \
             {} or more.",
            load.at.load,
            served.median,
            load.at.offered_rps,
            time(median.median as i64)
        ),
        evidence: "loads",
        not_valid,
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
        .all_runs()
        .filter_map(|run| Some(format!("{}: {}", run.label(), run.refused.as_ref()?)))
        .collect();
    if let Some(first) = refused.first() {
        caveats.push(format!(
            "{name}: {} of {} runs are NOT VALID; the first is {first}",
            refused.len(),
            server.all_runs().count()
        ));
    }
    if server.capacity.interval.not_served_rps.is_none()
        || server.capacity.interval.served_rps.is_none()
    {
        caveats.push(format!(
            "{name}: its capacity has no interval: {}; loads are parts of {:.0} requests/s",
            server.capacity.describe(),
            server.capacity.reference_rps()
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use latlab::rows::Lateness;
    use latlab_analysis::Mode;

    use super::*;
    use crate::capacity::Interval;
    use crate::study::tables;

    /// A run of one second, with this many requests, and this many replies that ended in it.
    fn run(requests: u64, ended: u64, refused: Option<&str>) -> Summary {
        Summary {
            schema: "latlab.run/1",
            url: "http://a/".to_string(),
            server: "nginx".to_string(),
            load: None,
            mode: Mode::Open,
            offered_rps: Some(requests as f64),
            connections: 1,
            seconds: 1.0,
            steps: None,
            requests,
            ok: requests,
            in_warmup: 0,
            errors: BTreeMap::new(),
            statuses: BTreeMap::new(),
            throughput_rps: ended as f64,
            bytes_per_second: 1.0,
            latency_from_intended: None,
            latency_from_start: None,
            first_byte: None,
            connecting: None,
            tls_handshake: None,
            tls: None,
            tls_error: None,
            redirects: BTreeMap::new(),
            location: None,
            latency_with_failures: None,
            lateness: Lateness::default(),
            reply_lateness: Lateness::default(),
            generator_cpu: 0.1,
            connections_opened: 1,
            retried: 0,
            retried_after_reset: 0,
            unsolicited: 0,
            in_flight: None,
            conforming: None,
            interrupted: false,
            server_ended: None,
            taken: Vec::new(),
            refused: refused.map(str::to_string),
        }
    }

    fn at_load(load: f64, runs: Vec<Summary>) -> AtLoad {
        let spread = Spread::of([1e6]);
        AtLoad {
            at: procedure::AtLoad {
                load,
                offered_rps: 1000.0 * load,
                files: Vec::new(),
                figures: procedure::Figures {
                    mean_ns: spread,
                    p5_ns: spread,
                    p50_ns: spread,
                    p95_ns: spread,
                    p99_ns: spread,
                    throughput_rps: Spread::of(runs.iter().map(|run| run.throughput_rps)),
                    errors: 0,
                },
                runs,
            },
            inversion: None,
            ideal_inversion: None,
        }
    }

    /// 1,000 requests per second are served, 1,050 are not.
    fn studied(loads: Vec<AtLoad>, recording: Option<Summary>) -> Result {
        let interval = Interval {
            served_rps: Some(1000.0),
            not_served_rps: Some(1050.0),
        };
        let server = Studied {
            name: "nginx".to_string(),
            about: String::new(),
            capacity: CapacityResult::assumed(interval, vec![run(1000, 1000, None)], Vec::new()),
            disk_reads_per_1000: 10.0,
            loads,
            analysis: Report::new(Vec::new()),
            recorded: None,
            recording,
            no_reasons: None,
        };
        let terms = Terms {
            file_set_bytes: 1,
            memory_bytes: 1,
            service_us: 1,
            depth: 1,
            cold_open_ns: 1,
            cold_read_ns: 1,
            connections: 1,
            most_connections: 1,
            repeats: 1,
            seconds: 1.0,
        };
        Result::new(Machine::this(), terms, vec![server], false)
    }

    fn texts(found: &Result) -> String {
        let texts = found.findings.iter().map(|finding| finding.text.as_str());
        texts.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_load_that_contradicts_the_capacity_is_a_finding() {
        let low = || at_load(0.3, vec![run(300, 300, None)]);
        let beyond = |ended| at_load(1.1, vec![run(1100, ended, None)]);
        let agreeing = texts(&studied(vec![low(), beyond(1020)], None));
        assert!(!agreeing.contains("contradict"), "{agreeing}");
        assert!(agreeing.contains("beyond its capacity"), "{agreeing}");
        let served = texts(&studied(vec![low(), beyond(1100)], None));
        assert!(
            served.starts_with("nginx: its capacity and its load 1.1 contradict each other: when the capacity was \
                measured 1,000 requests/s are served, 1,050 are not, and with 1,100 offered it kept up (100 % were"),
            "{served}"
        );
        assert!(!served.contains("beyond its capacity"), "{served}");
        let weak = at_load(
            0.9,
            vec![
                run(900, 800, None),
                run(900, 890, None),
                run(900, 700, None),
            ],
        );
        let weak = texts(&studied(vec![weak], None));
        assert!(
            weak.contains("load 0.9 contradict") && weak.contains("it did not keep up"),
            "{weak}"
        );
    }

    #[test]
    fn runs_that_are_not_valid_are_marked_and_counted() {
        let late = Some("the generator was late");
        let loads = vec![
            at_load(0.3, vec![run(300, 300, late), run(300, 300, None)]),
            at_load(0.9, vec![run(900, 900, None)]),
        ];
        let found = studied(loads, Some(run(900, 900, late)));
        let finding = &found.findings[0];
        assert!(
            finding
                .text
                .starts_with("nginx (NOT VALID: 1 of 3 runs), from load 0.3 to 0.9:"),
            "{}",
            finding.text
        );
        assert_eq!(finding.not_valid, 1);
        let caveat = "nginx: 2 of 5 runs are NOT VALID; the first is";
        assert!(
            found.caveats.iter().any(|text| text.starts_with(caveat)),
            "{:?}",
            found.caveats
        );
        let tables = tables::markdown(&found);
        assert!(
            tables.contains("| nginx | 1,000 to 1,050 | 0.3 to 0.9 (!) |"),
            "{tables}"
        );
    }
}
