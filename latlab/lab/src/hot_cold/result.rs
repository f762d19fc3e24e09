//! The results (`latlab.hot-cold/1`).

use std::collections::BTreeMap;

use latlab::classes::caches::Hot;
use latlab::servers::Server;
use latlab::summary::{Summary, Taken};
use latlab::workload::Kind;
use latlab_analysis::bounded_percentiles;
use serde::Serialize;

use crate::procedure::Spread;
use crate::study::Machine;

/// `latlab.hot-cold/1`
#[derive(Serialize)]
pub struct Result {
    schema: &'static str,
    tool_version: &'static str,
    pub machine: Machine,
    pub terms: Terms,
    pub servers: Vec<Measured>,
    /// Servers that are not installed.
    pub absent: Vec<Absent>,
    /// Whether it was interrupted before all runs.
    pub interrupted: bool,
    /// Why some figures are not valid for the servers.
    pub caveats: Vec<String>,
}

#[derive(Serialize)]
pub struct Absent {
    pub name: String,
    pub why: String,
}

/// Conditions common to all servers.
#[derive(Serialize)]
pub struct Terms {
    pub hot_files: u32,
    pub hot_file_bytes: u64,
    pub cold_names: u32,
    pub cold_file_bytes: u64,
    /// The part of the cold names that do not exist.
    pub missing: f64,
    pub hot_rps: f64,
    pub service_us: u64,
    pub depth: u32,
    /// Median time of a cold `open`, and of a cold read of 4 KiB.
    pub cold_open_ns: u64,
    pub cold_read_ns: u64,
    /// What the disk can do with this many cold names asked for at once.
    pub outstanding: u32,
    pub disk_names_per_second: f64,
    pub disk_reads_per_second: f64,
    pub disk_reads_per_name: f64,
    pub connections: u32,
    pub repeats: u32,
    /// Length of each run, without its warm-up.
    pub seconds: f64,
}

/// One server.
#[derive(Serialize)]
pub struct Measured {
    pub name: String,
    pub about: String,
    pub levels: Vec<AtLevel>,
}

/// One rate of cold requests.
#[derive(Serialize)]
pub struct AtLevel {
    /// The part of what the disk can do.
    pub level: f64,
    pub cold_rps: f64,
    pub hot: Figures,
    pub cold: Figures,
    pub missing: Figures,
    pub cold_or_missing: Figures,
    /// Hot latencies relative to those of the same repeat without cold requests.
    pub hot_ratio: Ratios,
    /// Reads that the disk served for each cold name.
    pub disk_reads_per_name: Option<Spread>,
    pub runs: Vec<OneRun>,
}

/// Percentiles of a class over the repeats. `None`: in some repeat it is a failed request, or there was none.
#[derive(Default, Serialize)]
pub struct Figures {
    pub requests: u64,
    pub failed: u64,
    pub p50_ns: Option<Spread>,
    pub p99_ns: Option<Spread>,
    pub p999_ns: Option<Spread>,
}

#[derive(Default, Serialize)]
pub struct Ratios {
    pub p50: Option<Spread>,
    pub p99: Option<Spread>,
    pub p999: Option<Spread>,
}

/// A percentile, and its 95 % interval within the run. `None`: a failed request, or not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Bounded {
    pub value: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// The requests of one class in one run. Failed ones count as slower than any other.
#[derive(Debug, Default, Serialize)]
pub struct Class {
    pub requests: u64,
    pub failed: u64,
    pub p50_ns: Bounded,
    pub p99_ns: Bounded,
    pub p999_ns: Bounded,
    /// The slowest that did not fail.
    pub max_ns: Option<i64>,
}

impl Class {
    fn of(taken: &[Taken], kinds: &[Kind]) -> Class {
        let is_of_kind = |one: &&Taken| kinds.contains(&one.kind);
        let mut of_kind: Vec<&Taken> = taken.iter().filter(is_of_kind).collect();
        if of_kind.is_empty() {
            return Class::default();
        }
        of_kind.sort_by_key(|one| one.intended_ns);
        const FAILED: u64 = u64::MAX;
        let latency = |one: &&Taken| one.latency_ns.map_or(FAILED, |ns| ns.max(0) as u64);
        let latencies: Vec<u64> = of_kind.iter().map(latency).collect();
        let known = |ns: f64| (ns < FAILED as f64).then_some(ns);
        let [_, p50, _, p99, p999] =
            bounded_percentiles(&latencies).map(|(value, (low, high))| Bounded {
                value: known(value as f64),
                low: low.and_then(known),
                high: high.and_then(known),
            });
        Class {
            requests: of_kind.len() as u64,
            failed: latencies.iter().filter(|ns| **ns == FAILED).count() as u64,
            p50_ns: p50,
            p99_ns: p99,
            p999_ns: p999,
            max_ns: of_kind.iter().filter_map(|one| one.latency_ns).max(),
        }
    }
}

/// What was in the kernel's caches, and how often the disk was read.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Caches {
    pub hot_before: Hot,
    pub hot_after: Hot,
    /// Cold names that the run asks for, those of its warm-up included.
    pub cold_names: u64,
    /// How many of them were cached before.
    pub cold_names_cached: u64,
    /// Reads that the disk served during the run.
    pub disk_reads: u64,
}

impl Caches {
    /// Why the classes were not what they should be.
    fn wrong(&self, answered: u64) -> Vec<String> {
        let mut wrong = Vec::new();
        for (when, hot) in [("before", self.hot_before), ("after", self.hot_after)] {
            if !hot.is_resident() {
                wrong.push(format!(
                    "{when} the run {} of {} pages of hot files, and {} of their names, were not in memory",
                    hot.pages_not_cached, hot.pages, hot.names_not_cached
                ));
            }
        }
        if self.cold_names_cached > 0 {
            wrong.push(format!(
                "{} of {} cold names were cached before the run",
                self.cold_names_cached, self.cold_names
            ));
        }
        if self.disk_reads < answered {
            wrong.push(format!(
                "the disk was read {} times for {answered} cold names that were answered: some were not cold",
                self.disk_reads
            ));
        }
        wrong
    }
}

#[derive(Serialize)]
pub struct OneRun {
    /// The file with its rows.
    pub file: String,
    pub hot: Class,
    pub cold: Class,
    pub missing: Class,
    /// All that is not hot.
    pub cold_or_missing: Class,
    pub caches: Caches,
    /// Why the classes were not what they should be; empty: they were.
    pub wrong: Vec<String>,
    pub summary: Summary,
}

impl OneRun {
    pub fn new(file: String, mut summary: Summary, caches: Caches) -> OneRun {
        let taken = std::mem::take(&mut summary.taken);
        let [hot, cold, missing] =
            [Kind::Hot, Kind::Cold, Kind::Missing].map(|kind| Class::of(&taken, &[kind]));
        let cold_or_missing = Class::of(&taken, &[Kind::Cold, Kind::Missing]);
        let answered = (cold.requests - cold.failed) + (missing.requests - missing.failed);
        OneRun {
            file,
            wrong: caches.wrong(answered),
            hot,
            cold,
            missing,
            cold_or_missing,
            caches,
            summary,
        }
    }

    /// Why its figures are not valid for the server.
    pub fn troubles(&self) -> Option<String> {
        let all: Vec<&str> = self
            .summary
            .refused
            .iter()
            .chain(&self.wrong)
            .map(String::as_str)
            .collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl Measured {
    pub fn new(server: &Server, levels: &[f64], disk_names_per_second: f64) -> Measured {
        let level = |level: &f64| AtLevel {
            level: *level,
            cold_rps: level * disk_names_per_second,
            hot: Figures::default(),
            cold: Figures::default(),
            missing: Figures::default(),
            cold_or_missing: Figures::default(),
            hot_ratio: Ratios::default(),
            disk_reads_per_name: None,
            runs: Vec::new(),
        };
        Measured {
            name: server.name.clone(),
            about: server.about.clone(),
            levels: levels.iter().map(level).collect(),
        }
    }

    /// Computes the figures over the repeats.
    fn settle(&mut self) {
        let Some((first, _)) = self.levels.split_first() else {
            return;
        };
        let own = |of: fn(&Class) -> Bounded| -> Vec<Option<f64>> {
            first.runs.iter().map(|run| of(&run.hot).value).collect()
        };
        let own: [Vec<Option<f64>>; 3] = [own(|c| c.p50_ns), own(|c| c.p99_ns), own(|c| c.p999_ns)];
        for level in &mut self.levels {
            level.hot = figures(&level.runs, |run| &run.hot);
            level.cold = figures(&level.runs, |run| &run.cold);
            level.missing = figures(&level.runs, |run| &run.missing);
            level.cold_or_missing = figures(&level.runs, |run| &run.cold_or_missing);
            let ratio = |of: fn(&Class) -> Bounded, own: &[Option<f64>]| {
                let pairs = level.runs.iter().zip(own);
                all(pairs.map(|(run, own)| Some(of(&run.hot).value? / (*own)?.max(1.0))))
            };
            level.hot_ratio = Ratios {
                p50: ratio(|c| c.p50_ns, &own[0]),
                p99: ratio(|c| c.p99_ns, &own[1]),
                p999: ratio(|c| c.p999_ns, &own[2]),
            };
            let with_names = level.runs.iter().filter(|run| run.caches.cold_names > 0);
            level.disk_reads_per_name = Spread::of(
                with_names.map(|run| run.caches.disk_reads as f64 / run.caches.cold_names as f64),
            );
        }
    }

    fn runs(&self) -> impl Iterator<Item = (f64, &OneRun)> {
        let levels = self.levels.iter();
        levels.flat_map(|level| level.runs.iter().map(move |run| (level.level, run)))
    }
}

/// `None` if one of the values is.
fn all(values: impl Iterator<Item = Option<f64>>) -> Option<Spread> {
    Spread::of(values.collect::<Option<Vec<f64>>>()?)
}

fn figures(runs: &[OneRun], class: fn(&OneRun) -> &Class) -> Figures {
    let spread = |of: fn(&Class) -> Bounded| all(runs.iter().map(|run| of(class(run)).value));
    Figures {
        requests: runs.iter().map(|run| class(run).requests).sum(),
        failed: runs.iter().map(|run| class(run).failed).sum(),
        p50_ns: spread(|class| class.p50_ns),
        p99_ns: spread(|class| class.p99_ns),
        p999_ns: spread(|class| class.p999_ns),
    }
}

impl Result {
    pub fn new(
        machine: Machine,
        terms: Terms,
        mut servers: Vec<Measured>,
        absent: Vec<Absent>,
        interrupted: bool,
    ) -> Result {
        servers.iter_mut().for_each(Measured::settle);
        let mut caveats = Vec::new();
        if interrupted {
            caveats.push("It was interrupted: it is of the runs until then.".to_string());
        }
        for server in &servers {
            let mut whys: BTreeMap<String, (usize, f64)> = BTreeMap::new();
            let mut bad = 0;
            for (level, run) in server.runs() {
                if let Some(why) = run.troubles() {
                    bad += 1;
                    whys.entry(why).or_insert((bad, level));
                }
            }
            let first = whys.iter().min_by_key(|(_, (number, _))| *number);
            if let Some((why, (_, level))) = first {
                let all = server.runs().count();
                caveats.push(format!(
                    "{}: {bad} of {all} runs are NOT VALID; the first is with cold requests at {:.0} %: {why}.",
                    server.name,
                    100.0 * level
                ));
            }
        }
        caveats.extend(
            absent
                .iter()
                .map(|one| format!("{}; it was left out.", one.why)),
        );
        Result {
            schema: "latlab.hot-cold/1",
            tool_version: env!("CARGO_PKG_VERSION"),
            machine,
            terms,
            servers,
            absent,
            interrupted,
            caveats,
        }
    }

    /// The number of runs whose figures are not valid.
    pub fn not_valid(&self) -> usize {
        let runs = self.servers.iter().flat_map(Measured::runs);
        runs.filter(|(_, run)| run.troubles().is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(kind: Kind, latencies: impl IntoIterator<Item = Option<i64>>) -> Vec<Taken> {
        let taken = latencies
            .into_iter()
            .enumerate()
            .map(|(at, latency_ns)| Taken {
                kind,
                intended_ns: at as i64,
                latency_ns,
            });
        taken.collect()
    }

    #[test]
    fn each_class_has_its_own_percentiles() {
        let mut all = taken(Kind::Hot, (1..=1000).map(Some));
        all.extend(taken(Kind::Cold, [Some(7_000_000)]));
        let hot = Class::of(&all, &[Kind::Hot]);
        assert_eq!(
            (hot.requests, hot.failed, hot.max_ns),
            (1000, 0, Some(1000))
        );
        assert_eq!(hot.p50_ns.value, Some(500.0));
        assert_eq!(hot.p99_ns.value, Some(990.0));
        assert_eq!(hot.p999_ns.value, Some(999.0));
        assert!(hot.p99_ns.low < hot.p99_ns.value && hot.p99_ns.value < hot.p99_ns.high);
        assert_eq!(Class::of(&all, &[Kind::Cold]).p50_ns.value, Some(7e6));
        assert_eq!(Class::of(&all, &[Kind::Missing]).p50_ns, Bounded::default());
    }

    #[test]
    fn failed_requests_are_slower_than_any_other() {
        let all = taken(Kind::Cold, (0..100).map(|at| (at >= 40).then_some(5)));
        let cold = Class::of(&all, &[Kind::Cold]);
        assert_eq!((cold.requests, cold.failed), (100, 40));
        assert_eq!((cold.p50_ns.value, cold.p99_ns.value), (Some(5.0), None));
    }

    #[test]
    fn classes_that_are_not_what_they_should_be_are_reported() {
        let good = Hot {
            names_not_cached: 0,
            pages: 8,
            pages_not_cached: 0,
        };
        let caches = Caches {
            hot_before: good,
            hot_after: good,
            cold_names: 10,
            cold_names_cached: 0,
            disk_reads: 20,
        };
        assert_eq!(caches.wrong(10), Vec::<String>::new());
        let evicted = Hot {
            pages_not_cached: 3,
            ..good
        };
        let wrong = Caches {
            hot_after: evicted,
            cold_names_cached: 2,
            disk_reads: 9,
            ..caches
        };
        let wrong = wrong.wrong(10);
        assert!(
            wrong[0].starts_with("after the run 3 of 8 pages"),
            "{wrong:?}"
        );
        assert!(wrong[1].starts_with("2 of 10 cold names"), "{wrong:?}");
        assert!(wrong[2].contains("read 9 times for 10"), "{wrong:?}");
    }
}
