// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine's characterization vector: what one operation of each primitive costs (`hbench.machine/1`).

use std::collections::BTreeMap;

use anyhow::{ensure, Result};
use serde::{Deserialize, Serialize};

use crate::environment::{Environment, Noise};
use crate::figures::{figures, without_values};
use crate::file::Recorded;
use crate::meta::{Declared, Sample};
use crate::quota::Quota;

/// Name and version.
pub const SCHEMA: &str = "hbench.machine/1";

/// What Linux has if nobody chooses another.
const PERIOD_NS: u64 = 100_000_000;
/// A second is the longest that Linux takes.
const PERIOD_NS_MAX: u64 = 1 << 40;

/// The suite has some hundred benchmarks.
const UNITS_MAX: usize = 10_000;

/// The cost of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    pub ns: f64,
    /// 95 %; null if there was one sample.
    pub interval_ns: Option<(f64, f64)>,
    /// Bytes that one operation transfers; null if it is no transfer.
    pub bytes: Option<u64>,
}

/// What has no cost here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unknown {
    pub benchmark: String,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub schema: String,
    pub version: String,
    /// RFC 3339: when it was measured.
    pub measured: String,
    pub rounds: u32,
    /// Processes that measured at the same time.
    pub instances: u32,
    /// The command under which it was measured.
    pub under: Option<String>,
    pub environment: Environment,
    pub noise: Noise,
    /// By benchmark, with its variant: `file.reread/4K`.
    pub units: BTreeMap<String, Unit>,
    pub unknown: Vec<Unknown>,
}

/// The samples without the time in which other programs had the CPU, as far as that is known: how much longer a sample
/// was ready and did not run, for each operation, than the one of its benchmark that did so least. The least remains,
/// because operations may have to wait for the CPU by themselves, as under a tracer.
///
/// A quota stops processes for a part of each period, whatever they do. It limits a program as a whole and is no cost of
/// an operation, so under a quota nothing remains. Samples of which it is not known are then left out.
fn without_waiting(recorded: &Recorded) -> Recorded {
    let mut recorded = recorded.clone();
    let has_quota = recorded.meta.environment.quota_cpus.is_some();
    let waited_ns =
        |sample: &Sample| Some(sample.runqueue_ns? as f64 / sample.iterations.max(1) as f64);
    let mut least: BTreeMap<String, f64> = BTreeMap::new();
    for sample in &recorded.samples {
        let waited_ns = match has_quota {
            true => 0.0,
            false => waited_ns(sample).unwrap_or(0.0),
        };
        let one = least.entry(sample.benchmark.clone()).or_insert(waited_ns);
        *one = one.min(waited_ns);
    }
    recorded.samples.retain_mut(|sample| {
        let waited_ns = waited_ns(sample);
        let least = least.get(&sample.benchmark).copied().unwrap_or(0.0);
        sample.operation_ns -= waited_ns.map_or(0.0, |waited_ns| waited_ns - least);
        waited_ns.is_some() || !has_quota
    });
    recorded
}

impl Machine {
    /// Whether the files that it was measured with are in memory alone.
    pub fn stores_nothing(&self) -> bool {
        let kind = self.environment.file_system.as_deref();
        matches!(kind, Some("tmpfs" | "ramfs"))
    }

    pub fn of(recorded: &Recorded) -> Machine {
        let meta = &recorded.meta;
        let recorded = &without_waiting(recorded);
        let mut units = BTreeMap::new();
        let unknown = |benchmark: &str, reason: &str| Unknown {
            benchmark: benchmark.to_string(),
            reason: reason.to_string(),
        };
        let left_out = without_values(meta);
        let left_out = left_out.iter();
        let mut unknowns: Vec<Unknown> = left_out
            .map(|one| unknown(&one.benchmark, &one.reason))
            .collect();
        let found = figures(recorded);
        let of_samples = |declared: &&Declared| {
            let is_unknown = unknowns.iter().any(|one| one.benchmark == declared.name);
            !is_unknown && !found.iter().any(|figure| figure.benchmark == declared.name)
        };
        let lost: Vec<Unknown> = meta
            .benchmarks
            .iter()
            .filter(of_samples)
            .map(|declared| {
                unknown(
                    &declared.name,
                    "it has no samples, or a quota stopped its processes meanwhile",
                )
            })
            .collect();
        unknowns.extend(lost);
        for figure in found {
            // With a baseline that was removed, noise may leave nothing.
            if figure.operation_ns > 0.0 {
                let unit = Unit {
                    ns: figure.operation_ns,
                    interval_ns: figure.interval_ns,
                    bytes: figure.bytes,
                };
                units.insert(figure.benchmark, unit);
            } else {
                unknowns.push(unknown(
                    &figure.benchmark,
                    "it took no longer than what it is compared with: the machine was disturbed",
                ));
            }
        }
        Machine {
            schema: SCHEMA.to_string(),
            version: meta.version.clone(),
            measured: meta.started.clone(),
            rounds: meta.rounds_done,
            instances: meta.instances,
            under: meta.under.clone(),
            environment: meta.environment.clone(),
            noise: meta.noise.clone(),
            units,
            unknown: unknowns,
        }
    }

    /// CPUs that a program may use at the same time.
    pub fn cpus(&self) -> f64 {
        self.environment.cpus_allowed.len().max(1) as f64
    }

    /// What its control groups grant a program; `None`: no limit.
    pub fn quota(&self) -> Option<Quota> {
        Some(Quota {
            cpus: self.environment.quota_cpus?,
            period_ns: self.environment.quota_period_ns.unwrap_or(PERIOD_NS) as f64,
        })
    }

    /// # Errors
    ///
    /// It cannot be a machine's vector.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            self.units.len() <= UNITS_MAX,
            "it has {} units",
            self.units.len()
        );
        ensure!(self.instances > 0, "it was measured by no process");
        let quota = self.environment.quota_cpus.unwrap_or(1.0);
        ensure!(
            quota.is_finite() && quota > 0.0,
            "its quota is {quota} CPUs"
        );
        let period_ns = self.environment.quota_period_ns.unwrap_or(PERIOD_NS);
        ensure!(
            (1..PERIOD_NS_MAX).contains(&period_ns),
            "the period of its quota is {period_ns} ns"
        );
        for (name, unit) in &self.units {
            let is_time = |ns: f64| ns.is_finite() && ns < 1e15;
            ensure!(
                is_time(unit.ns) && unit.ns > 0.0,
                "its unit {name} costs {} ns",
                unit.ns
            );
            let around = |(low, high): (f64, f64)| {
                is_time(low) && is_time(high) && low <= unit.ns && unit.ns <= high
            };
            ensure!(
                unit.interval_ns.is_none_or(around),
                "the interval of its unit {name} does not contain its cost"
            );
            ensure!(unit.bytes != Some(0), "its unit {name} transfers no bytes");
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::file::tests::recorded;
    use crate::meta::LeftOut;

    /// A machine with these units, known to a part in a thousand.
    pub(crate) fn machine(units: &[(&str, f64, Option<u64>)]) -> Machine {
        let mut machine = Machine::of(&recorded(&[]));
        machine.environment.cpus_allowed = vec![0, 1];
        for (name, ns, bytes) in units {
            let unit = Unit {
                ns: *ns,
                interval_ns: Some((ns * 0.999, ns * 1.001)),
                bytes: *bytes,
            };
            machine.units.insert(name.to_string(), unit);
        }
        machine
    }

    #[test]
    fn a_result_becomes_a_vector() {
        let mut result = recorded(&[
            ("call.null", &[100.0, 101.0, 102.0]),
            ("context-switch/2-processes-0K", &[-5.0, -6.0]),
            ("memory.read/16K", &[500.0]),
        ]);
        result.meta.left_out.push(LeftOut {
            benchmark: "file.open/cold".to_string(),
            reason: "needs root".to_string(),
            round: None,
            is_wrong: false,
        });
        let machine = Machine::of(&result);
        assert_eq!(machine.units.len(), 2);
        assert_eq!(machine.units["call.null"].ns, 101.0);
        assert_eq!(machine.units["memory.read/16K"].bytes, Some(1000));
        assert_eq!(machine.units["memory.read/16K"].interval_ns, None);
        let unknown: Vec<&str> = machine
            .unknown
            .iter()
            .map(|one| one.benchmark.as_str())
            .collect();
        assert_eq!(unknown, ["file.open/cold", "context-switch/2-processes-0K"]);
        machine.check().expect("it is one");
    }

    #[test]
    fn a_quota_is_no_cost_of_an_operation() {
        let mut result = recorded(&[("call.null", &[300.0]), ("pipe.latency/one-cpu", &[900.0])]);
        result.meta.environment.quota_cpus = Some(0.5);
        // Ten operations, of which each waited for 180 ns.
        result.samples[0].runqueue_ns = Some(1800);
        result.samples[1].runqueue_ns = None;
        let machine = Machine::of(&result);
        assert_eq!(machine.units["call.null"].ns, 120.0);
        assert_eq!(machine.unknown[0].benchmark, "pipe.latency/one-cpu");
        let quota = machine.quota().expect("there is one");
        assert_eq!((quota.cpus, quota.period_ns), (0.5, 1e8));
    }

    #[test]
    fn what_other_programs_took_is_no_cost_either() {
        let mut result = recorded(&[("call.null", &[150.0, 310.0, 150.0])]);
        for (sample, waited) in result.samples.iter_mut().zip([500, 2100, 500]) {
            sample.runqueue_ns = Some(waited);
        }
        // 50 ns of waiting are in each operation.
        assert_eq!(Machine::of(&result).units["call.null"].ns, 150.0);
    }

    #[test]
    fn what_cannot_be_a_cost_is_refused() {
        for (ns, interval_ns) in [
            (0.0, None),
            (-1.0, None),
            (f64::NAN, None),
            (f64::INFINITY, None),
            (5.0, Some((6.0, 7.0))),
            (5.0, Some((f64::NAN, 7.0))),
        ] {
            let mut machine = machine(&[]);
            let unit = Unit {
                ns,
                interval_ns,
                bytes: None,
            };
            machine.units.insert("a".to_string(), unit);
            let error = machine.check().expect_err("no cost").to_string();
            assert!(error.contains("unit a"), "{error}");
        }
    }
}
