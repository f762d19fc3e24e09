// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicts how long an application takes on other machines (`hbench.prediction/1`).
//!
//! The form is relative: what each part of the application took where it ran, times how much more the other machine
//! takes for it. So an application whose calls are slower than the benchmarks' (colder caches, larger directories)
//! is predicted as slower, and on its own machine it is predicted to take what it took.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kit_stats::{deviation, trimmed_draws, trimmed_mean};
use serde::Serialize;

use crate::application::Application;
use crate::figures::TRIMMED;
use crate::machine::Machine;
use crate::mapping::MAPPING;
use crate::relation::{Relation, STANDARD};
use crate::work::{parts, Part};

/// Name and version.
pub const SCHEMA: &str = "hbench.prediction/1";

/// Fixed, for the same figures from the same files.
const SEED: u64 = 18;

/// Time that the application waited for a CPU, and what else its recording does not explain.
pub const READY: &str = "no CPU, and unexplained";

/// A part of the work, or of the waiting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PredictedPart {
    pub name: String,
    /// The largest transfer of its class in bytes; null if it transfers nothing.
    pub size: Option<u64>,
    pub count: u64,
    pub bytes: u64,
    pub measured_ns: f64,
    pub predicted_ns: f64,
    /// Benchmarks; null if it is kept as it was.
    pub scaled_by: Option<String>,
}

/// Other ways to predict the elapsed time, to compare with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Baselines {
    pub unchanged_ns: f64,
    pub user_ratio_ns: f64,
    pub mean_ratio_ns: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnMachine {
    pub name: String,
    pub elapsed_ns: f64,
    /// 95 %.
    pub elapsed_interval_ns: (f64, f64),
    /// Time of all processes together in which they compute or are in calls, without waiting.
    pub work_ns: f64,
    pub work_interval_ns: (f64, f64),
    /// The part of the work that no benchmark stands for.
    pub unmapped_share: f64,
    /// How many threads work at the same time.
    pub overlap: f64,
    /// They add up to `work_ns`.
    pub work: Vec<PredictedPart>,
    /// With `work_ns / overlap` they add up to `elapsed_ns`.
    pub waits: Vec<PredictedPart>,
    pub baselines: Baselines,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    pub schema: &'static str,
    pub command: Vec<String>,
    /// Where it ran: by its runs without recording, else as recorded.
    pub elapsed_ns: f64,
    pub work_ns: f64,
    pub runs: usize,
    /// What the parts add up to, by the recording. They are scaled to `work_ns`.
    pub recorded_work_ns: f64,
    pub lost: u64,
    /// The fastest first.
    pub machines: Vec<OnMachine>,
}

/// A figure of the runs, and its relative standard deviation.
fn figure(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let figure = trimmed_mean(&sorted, TRIMMED)?;
    let (_, error) = deviation(&trimmed_draws(values, TRIMMED, SEED));
    Some((figure, error / figure))
}

/// `here`: the machine on which the application ran, if its vector does not say.
///
/// # Errors
///
/// A vector lacks what everything depends on.
pub fn predict(
    application: &Application,
    machines: &[(String, Machine)],
    here: Option<&Machine>,
) -> Result<Prediction> {
    let here = here.or(application.machine.as_ref()).context(
        "the application's vector does not say what its machine costs: name the vector of the machine on which it \
         ran with --on, which must be measured there",
    )?;
    let of_runs = |value: fn(&crate::application::Run) -> u64| {
        let values: Vec<f64> = application
            .runs
            .iter()
            .map(|run| value(run) as f64)
            .collect();
        figure(&values)
    };
    let recording = &application.recording;
    let itself = Relation::new(here, here)?;
    let recorded: f64 = parts(application, &itself)
        .iter()
        .map(|part| part.here_ns)
        .sum();
    let elapsed = of_runs(|run| run.elapsed_ns).unwrap_or((recording.elapsed_ns as f64, 0.0));
    let work = of_runs(|run| run.cpu_ns).unwrap_or((recorded, 0.0));
    let measured = Measured {
        elapsed,
        work,
        scale: if recorded > 0.0 {
            work.0 / recorded
        } else {
            1.0
        },
    };
    let mut found = Vec::new();
    for (name, machine) in machines {
        let relation =
            Relation::new(here, machine).with_context(|| format!("cannot predict for {name}"))?;
        found.push(on_machine(name, application, &relation, &measured));
    }
    found.sort_by(|one, other| one.elapsed_ns.total_cmp(&other.elapsed_ns));
    Ok(Prediction {
        schema: SCHEMA,
        command: application.command.clone(),
        elapsed_ns: elapsed.0,
        work_ns: work.0,
        runs: application.runs.len(),
        recorded_work_ns: recorded,
        lost: recording.lost,
        machines: found,
    })
}

/// Where the application ran. Of each figure, the relative standard deviation.
struct Measured {
    elapsed: (f64, f64),
    work: (f64, f64),
    /// What the recording's times are multiplied with.
    scale: f64,
}

fn on_machine(
    name: &str,
    application: &Application,
    relation: &Relation,
    measured: &Measured,
) -> OnMachine {
    let scaled = |mut part: Part| {
        part.here_ns *= measured.scale;
        part
    };
    let parts: Vec<Part> = parts(application, relation)
        .into_iter()
        .map(scaled)
        .collect();
    let work_ns: f64 = parts.iter().map(Part::there_ns).sum();
    let of_ratios = variance(&parts);
    let (here_cpus, there_cpus) = relation.cpus();
    let (elapsed_here, work_here) = (measured.elapsed.0, measured.work.0);
    // Threads that wait for a CPU are not asleep; no more work at the same time than there are CPUs.
    let recorded = application.recording.overlap.min(here_cpus).max(1.0);
    let overlap_here = recorded.max(work_here / elapsed_here);
    let overlap = overlap_here.min(there_cpus);
    let waits = waits(
        application,
        relation,
        elapsed_here - work_here / overlap_here,
    );
    let of_waits = variance(&waits);
    let waited_ns: f64 = waits.iter().map(Part::there_ns).sum();
    let elapsed_ns = work_ns / overlap + waited_ns;
    let of_elapsed = of_ratios / (overlap * overlap) + of_waits;
    let unmapped: f64 = parts
        .iter()
        .filter(|part| part.scaled_by.is_none())
        .map(Part::there_ns)
        .sum();
    OnMachine {
        name: name.to_string(),
        elapsed_ns,
        elapsed_interval_ns: interval(elapsed_ns, of_elapsed, measured.elapsed.1),
        work_ns,
        work_interval_ns: interval(work_ns, of_ratios, measured.work.1),
        unmapped_share: if work_ns > 0.0 {
            unmapped / work_ns
        } else {
            0.0
        },
        overlap,
        work: parts.iter().map(predicted).collect(),
        waits: waits.iter().map(predicted).collect(),
        baselines: Baselines {
            unchanged_ns: elapsed_here,
            user_ratio_ns: elapsed_here * relation.user.value,
            mean_ratio_ns: elapsed_here * relation.mean(),
        },
    }
}

/// Waits, and the rest of the time that the work does not explain. All together they last `left_ns`.
fn waits(application: &Application, relation: &Relation, left_ns: f64) -> Vec<Part> {
    let left_ns = left_ns.max(0.0);
    let known: f64 = application.waits.iter().map(|wait| wait.ns as f64).sum();
    let scale = if known > left_ns {
        left_ns / known
    } else {
        1.0
    };
    let unscaled = crate::relation::Ratio {
        value: 1.0,
        deviation: 0.0,
    };
    let of = |wait: &crate::application::Wait| {
        let benchmark = MAPPING.of_wait(&wait.kind);
        let ratio = benchmark.and_then(|benchmark| relation.benchmark(benchmark));
        Part {
            name: format!("waiting: {}", wait.kind),
            size: None,
            count: wait.count,
            bytes: 0,
            here_ns: wait.ns as f64 * scale,
            ratio: ratio.unwrap_or(unscaled),
            scaled_by: benchmark.filter(|_| ratio.is_some()).map(str::to_string),
        }
    };
    let mut waits: Vec<Part> = application.waits.iter().map(of).collect();
    waits.push(Part {
        name: format!("waiting: {READY}"),
        size: None,
        count: 0,
        bytes: 0,
        here_ns: (left_ns - known * scale).max(0.0),
        ratio: unscaled,
        scaled_by: None,
    });
    waits.retain(|wait| wait.here_ns > 0.0);
    waits
}

fn predicted(part: &Part) -> PredictedPart {
    PredictedPart {
        name: part.name.clone(),
        size: part.size,
        count: part.count,
        bytes: part.bytes,
        measured_ns: part.here_ns,
        predicted_ns: part.there_ns(),
        scaled_by: part.scaled_by.clone(),
    }
}

/// Of a sum of parts. Sizes of one primitive are scaled by the same benchmarks, and what is kept may all be wrong in the
/// same direction: these errors add up; all others are independent.
fn variance(parts: &[Part]) -> f64 {
    let mut errors: BTreeMap<&str, f64> = BTreeMap::new();
    for part in parts {
        let source = match part.scaled_by {
            Some(_) => part.name.as_str(),
            None => "",
        };
        *errors.entry(source).or_default() += part.there_ns() * part.ratio.deviation;
    }
    errors.values().map(|error| error * error).sum()
}

/// `of_runs`: relative standard deviation of what was measured. An interval of ratios: it never reaches zero.
fn interval(value: f64, variance: f64, of_runs: f64) -> (f64, f64) {
    let relative = if value > 0.0 {
        variance.sqrt() / value
    } else {
        0.0
    };
    let reach = (STANDARD * relative.hypot(of_runs)).min(14.0).exp();
    (value / reach, value * reach)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::application::{Component, Recording, Run, Tap, Wait, SCHEMA as APPLICATION};
    use crate::machine::tests::machine;

    /// 1,000 openings, 500 reads of 4 KiB, 10 calls that no primitive stands for, and 10 ms in user mode.
    pub(crate) fn some_application(machine: Option<Machine>) -> Application {
        let component = |primitive: &str, size, calls, bytes, each_ns: u64| Component {
            primitive: primitive.to_string(),
            size,
            calls,
            bytes,
            cpu_ns: calls * each_ns,
            sleeps: 0,
        };
        Application {
            schema: APPLICATION.to_string(),
            version: "0.1.0".to_string(),
            command: vec!["a".to_string(), "program".to_string()],
            recording: Recording {
                kernel: "6.18".to_string(),
                cpus: 2,
                elapsed_ns: 20_000_000,
                processes: 1,
                threads: 1,
                calls: 1510,
                user_cpu_ns: 10_000_000 + 1510 * 300,
                kernel_cpu_ns: 1,
                faults_in_calls: 0,
                overlap: 1.0,
                lost: 0,
            },
            components: vec![
                component("file.open", None, 1000, 0, 2070),
                component("file.read", Some(4096), 500, 500 * 4096, 570),
                component("other.ioctl", None, 10, 0, 10_070),
            ],
            waits: vec![Wait {
                kind: "timer".to_string(),
                ns: 5_000_000,
                count: 1,
            }],
            // 10 ms of user mode, 1,510 entries, and what is left of the calls.
            runs: [-1i64, 0, 1]
                .map(|off| Run {
                    elapsed_ns: (17_501_000 + off) as u64,
                    cpu_ns: (10_000_000 + 151_000 + 2_000_000 + 250_000 + 100_000 + off) as u64,
                    faults_minor: 0,
                    faults_major: 0,
                })
                .to_vec(),
            tap: Some(Tap {
                inside_ns: 70.0,
                between_ns: 300.0,
            }),
            machine,
        }
    }

    /// `entry`: ns of a null call; `own`: factor of everything else.
    fn with(entry: f64, own: f64) -> Machine {
        let user: Vec<_> = MAPPING
            .user
            .iter()
            .map(|name| (name.as_str(), own, None))
            .collect();
        let units = [
            ("call.null", entry, None),
            ("file.open/hot", 2.0 * entry + 1000.0 * own, None),
            ("file.reread/4K", entry + 300.0 * own, Some(4096)),
        ];
        machine(&[&user[..], &units].concat())
    }

    fn of(prediction: &Prediction, name: &str) -> OnMachine {
        let found = prediction.machines.iter().find(|one| one.name == name);
        found.expect("it was asked for").clone()
    }

    #[test]
    fn on_its_own_machine_it_takes_what_it_took() {
        let here = with(100.0, 1.0);
        let application = some_application(Some(here.clone()));
        let found = predict(&application, &[("here".to_string(), here)], None).expect("whole");
        let one = &found.machines[0];
        assert!(
            (found.recorded_work_ns - 12_501_000.0).abs() < 1.0,
            "{found:?}"
        );
        assert!((one.elapsed_ns - 17_501_000.0).abs() < 1.0, "{one:?}");
        assert!((one.work_ns - 12_501_000.0).abs() < 1.0, "{one:?}");
        let (low, high) = one.elapsed_interval_ns;
        assert!(low < one.elapsed_ns && one.elapsed_ns < high && high < 1.01 * low);
    }

    #[test]
    fn each_part_is_scaled_by_its_own_ratio() {
        let here = with(100.0, 1.0);
        let application = some_application(Some(here.clone()));
        let machines = [
            ("traced".to_string(), with(10_100.0, 1.0)),
            ("half as fast".to_string(), with(200.0, 2.0)),
            ("here".to_string(), here),
        ];
        let found = predict(&application, &machines, None).expect("whole");
        let order: Vec<&str> = found.machines.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(order, ["here", "half as fast", "traced"]);
        // 10 us more for each entry, and nothing else.
        let traced = of(&found, "traced");
        assert!(
            (traced.work_ns - (12_501_000.0 + 1510.0 * 10_000.0)).abs() < 50_000.0,
            "{traced:?}"
        );
        assert!((traced.elapsed_ns - traced.work_ns - 5_000_000.0).abs() < 1.0);
        // The timer waits as long, and no benchmark stands for ioctl.
        let half = of(&found, "half as fast");
        let kept = 100_000.0;
        let wanted = 2.0 * (12_501_000.0 - kept) + kept + 5_000_000.0;
        assert!(
            (half.elapsed_ns - wanted).abs() < 30_000.0,
            "{} {wanted}",
            half.elapsed_ns
        );
        assert!((half.unmapped_share - kept / half.work_ns).abs() < 1e-6);
        let (low, high) = half.elapsed_interval_ns;
        assert!(low <= wanted && wanted <= high);
        assert!((half.baselines.user_ratio_ns - 2.0 * 17_501_000.0).abs() < 1000.0);
        let sum: f64 = half.work.iter().map(|part| part.predicted_ns).sum();
        assert!((sum - half.work_ns).abs() < 1.0);
    }

    #[test]
    fn threads_overlap_as_far_as_there_are_cpus() {
        let here = with(100.0, 1.0);
        let mut application = some_application(Some(here.clone()));
        application.recording.overlap = 2.0;
        application.waits.clear();
        for run in &mut application.runs {
            run.elapsed_ns = 7_000_000;
        }
        let mut alone = here.clone();
        alone.environment.cpus_allowed = vec![0];
        let machines = [("two".to_string(), here), ("one".to_string(), alone)];
        let found = predict(&application, &machines, None).expect("whole");
        let (one, two) = (of(&found, "one"), of(&found, "two"));
        assert!((two.elapsed_ns - 7_000_000.0).abs() < 1.0, "{two:?}");
        assert!(
            (one.elapsed_ns - two.elapsed_ns - 12_501_000.0 / 2.0).abs() < 1.0,
            "{one:?}"
        );
        assert_eq!(one.work_ns, two.work_ns);
    }

    #[test]
    fn without_its_machine_it_says_what_to_do() {
        let error = predict(&some_application(None), &[], None).expect_err("no machine");
        assert!(error.to_string().contains("--on"), "{error}");
    }
}
