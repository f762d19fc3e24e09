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

use crate::application::{Application, Run, Wait};
use crate::figures::TRIMMED;
use crate::machine::Machine;
use crate::mapping::MAPPING;
use crate::overlap::{WAKING, WAKING_BY_DEVICE};
use crate::relation::{Ratio, Relation, STANDARD};
use crate::work::{parts, Part, ENTRY};

/// Name and version.
pub const SCHEMA: &str = "hbench.prediction/1";

/// Fixed, for the same figures from the same files.
const SEED: u64 = 18;

/// Standard deviations of a prediction's logarithm that no vector shows, from the test in `docs/predictions.md`: a machine differs from
/// itself an hour later, and the model errs by a part of what it says will change.
const LATER: f64 = 0.1;
const OF_CHANGE: f64 = 0.3;

/// Elapsed time that neither work nor sleeps explain: mostly, other programs had the CPU. It grows with the work.
pub const READY: &str = "waiting: a CPU, and unexplained";

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
    /// With `work_ns / overlap` and `throttled_ns` they add up to `elapsed_ns`.
    pub waits: Vec<PredictedPart>,
    /// Time in which a quota stops it.
    pub throttled_ns: f64,
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
    let of_runs = |value: fn(&Run) -> u64| {
        let values: Vec<f64> = application
            .runs
            .iter()
            .map(|run| value(run) as f64)
            .collect();
        figure(&values)
    };
    let recording = &application.recording;
    let share = recording.calls_after_work as f64 / recording.calls.max(1) as f64;
    let itself = Relation::new(here, here)?.after_work(share);
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
        let relation = relation.after_work(share);
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
    let (here_cpus, there_cpus) = relation.cpus();
    let (elapsed_here, work_here) = (measured.elapsed.0, measured.work.0);
    let overlap_here = overlap_here(application, here_cpus, work_here, elapsed_here);
    let overlap = overlap_here.min(there_cpus);
    let together = |of: &[String; 2]| relation.together(of, overlap_here, overlap);
    let of_user = together(&MAPPING.together.user);
    let scaled = |mut part: Part| {
        part.here_ns *= measured.scale;
        part.ratio.value *= of_user;
        part
    };
    let parts: Vec<Part> = parts(application, relation)
        .into_iter()
        .map(scaled)
        .collect();
    let work_ns: f64 = parts.iter().map(Part::there_ns).sum();
    let of_ratios = variance(&parts);
    let busy_here = (work_here / overlap_here).max(1.0);
    let busy = work_ns / overlap;
    let entries = parts.iter().filter(|part| part.name == ENTRY);
    let queued = (together(&MAPPING.together.entry) / of_user - 1.0).max(0.0);
    let queued_ns = queued * entries.map(Part::there_ns).sum::<f64>() / overlap;
    let left_ns = (elapsed_here - busy_here).max(0.0);
    let mut waits = waits(application, relation, left_ns);
    let known: f64 = waits.iter().map(|wait| wait.here_ns).sum();
    let unexplained_ns = lengthen(&mut waits, busy_here, (left_ns - known).max(0.0));
    let ready = Part {
        name: READY.to_string(),
        size: None,
        count: 0,
        bytes: 0,
        here_ns: unexplained_ns,
        // It may as well last as long as it did.
        ratio: Ratio {
            value: busy / busy_here,
            deviation: (busy / busy_here).max(1e-6).ln().abs() / STANDARD,
        },
        scaled_by: Some("all of the work".to_string()),
    };
    // It has the error of the work, too.
    let stretch = 1.0 + ready.here_ns / busy_here;
    waits.extend((ready.here_ns > 0.0).then_some(ready));
    let of_waits = variance(&waits);
    let waited_ns: f64 = waits.iter().map(Part::there_ns).sum();
    let stored = newly_stored(application, relation);
    let (stored_ns, of_stored) = stored.as_ref().map_or((0.0, 0.0), |one| one.1);
    let free_ns = busy + waited_ns + queued_ns + stored_ns;
    let of_free = of_ratios * (stretch / overlap).powi(2) + of_waits + of_stored.powi(2);
    let (elapsed_ns, of_elapsed) = match relation.quota() {
        None => (free_ns, of_free),
        Some(quota) => {
            let found = quota.elapsed(work_ns, free_ns);
            let of_phases = found.deviation_ns.powi(2);
            match found.mean_ns > free_ns {
                true => (found.mean_ns, of_ratios / quota.cpus.powi(2) + of_phases),
                false => (free_ns, of_free),
            }
        }
    };
    let throttled_ns = elapsed_ns - free_ns;
    let unmapped: f64 = parts
        .iter()
        .filter(|part| part.scaled_by.is_none())
        .map(Part::there_ns)
        .sum();
    OnMachine {
        name: name.to_string(),
        elapsed_ns,
        elapsed_interval_ns: interval(elapsed_ns, of_elapsed, measured.elapsed),
        work_ns,
        work_interval_ns: interval(work_ns, of_ratios, measured.work),
        unmapped_share: if work_ns > 0.0 {
            unmapped / work_ns
        } else {
            0.0
        },
        overlap,
        work: parts.iter().map(predicted).collect(),
        waits: waits
            .iter()
            .map(predicted)
            .chain((queued_ns > 0.0).then(|| queue(queued_ns)))
            .chain(stored.map(|one| one.0))
            .collect(),
        throttled_ns,
        baselines: Baselines {
            unchanged_ns: elapsed_here,
            user_ratio_ns: elapsed_here * relation.user.value,
            mean_ratio_ns: elapsed_here * relation.mean(),
        },
    }
}

/// How many threads work at the same time where it ran. Threads that wait for a CPU are not asleep; no more work at the same time
/// than there are CPUs. Without recording it may be fewer, as the elapsed time shows: what neither work nor sleeps explain is
/// time in which one works alone, and no wait that a machine with one CPU would have, too.
fn overlap_here(application: &Application, cpus: f64, work_ns: f64, elapsed_ns: f64) -> f64 {
    let recorded = application.recording.overlap.min(cpus).max(1.0);
    let most = recorded.max(work_ns / elapsed_ns);
    let slept: f64 = application.waits.iter().map(|wait| wait.ns as f64).sum();
    let awake_ns = elapsed_ns - slept.min(elapsed_ns - work_ns / most);
    (work_ns / awake_ns.max(1.0)).clamp(1.0, most)
}

/// What it slept. All waits together last no longer than `left_ns`.
fn waits(application: &Application, relation: &Relation, left_ns: f64) -> Vec<Part> {
    let known: f64 = application.waits.iter().map(|wait| wait.ns as f64).sum();
    let scale = if known > left_ns {
        left_ns / known
    } else {
        1.0
    };
    let unscaled = Ratio {
        value: 1.0,
        deviation: 0.0,
    };
    let of = |wait: &Wait| {
        let known = MAPPING.of_wait(&wait.kind);
        let ratio = match wait.kind.as_str() {
            // Whoever wakes another on the only CPU hands it over: that is a switch, and no waiting.
            WAKING if relation.cpus().1 < 2.0 => Some(Ratio::NOTHING),
            _ => known.and_then(|known| relation.wait(known)),
        };
        Part {
            name: format!("waiting: {}", wait.kind),
            size: None,
            count: wait.count,
            bytes: 0,
            here_ns: wait.ns as f64 * scale,
            ratio: ratio.unwrap_or(unscaled),
            scaled_by: known
                .filter(|_| ratio.is_some())
                .map(|known| known.cost.clone()),
        }
    };
    let mut parts: Vec<Part> = application.waits.iter().map(of).collect();
    // What does not wait is not woken.
    let is_waking = |wait: &Wait| [WAKING, WAKING_BY_DEVICE].contains(&wait.kind.as_str());
    let others = || {
        application
            .waits
            .iter()
            .zip(&parts)
            .filter(|(wait, _)| !is_waking(wait))
    };
    let count = |gone: bool| {
        let counted = others().filter(|(_, part)| !gone || part.ratio == Ratio::NOTHING);
        counted.map(|(wait, _)| wait.count as f64).sum::<f64>()
    };
    let left = 1.0 - count(true) / count(false).max(1.0);
    for (wait, part) in application.waits.iter().zip(&mut parts) {
        if is_waking(wait) {
            part.ratio.value *= left;
        }
    }
    parts.retain(|wait| wait.here_ns > 0.0);
    parts
}

/// Without recording, the waits that depend on the machine may have been longer than the recorded ones: they get their part of what
/// nothing explains. Returns what is left of that.
fn lengthen(waits: &mut [Part], busy_ns: f64, unexplained_ns: f64) -> f64 {
    let depends = |wait: &&mut Part| wait.scaled_by.is_some();
    let waited: f64 = waits
        .iter_mut()
        .filter(depends)
        .map(|wait| wait.here_ns)
        .sum();
    let longer = unexplained_ns / (busy_ns + waited).max(1.0);
    for wait in waits.iter_mut().filter(depends) {
        wait.here_ns *= 1.0 + longer;
    }
    unexplained_ns - waited * longer
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

/// What is stored there and was not here, with its time and the standard deviation of that.
fn newly_stored(
    application: &Application,
    relation: &Relation,
) -> Option<(PredictedPart, (f64, f64))> {
    let name = "file.sync";
    let known = MAPPING.primitive(name)?;
    let (each_ns, deviation_ns) = relation.newly_stored_ns(known)?;
    let components = application.components.iter();
    let of_it = components.filter(|one| one.primitive == name);
    let count: u64 = of_it.map(|one| one.calls).sum();
    let part = PredictedPart {
        name: "waiting: disk.sync".to_string(),
        size: None,
        count,
        bytes: 0,
        measured_ns: 0.0,
        predicted_ns: count as f64 * each_ns,
        scaled_by: Some(known.costs.join(", ")),
    };
    let time = (part.predicted_ns, count as f64 * deviation_ns);
    (count > 0).then_some((part, time))
}

/// What threads wait for each other where calls are served one at a time.
fn queue(predicted_ns: f64) -> PredictedPart {
    PredictedPart {
        name: "waiting: calls are served one at a time".to_string(),
        size: None,
        count: 0,
        bytes: 0,
        measured_ns: 0.0,
        predicted_ns,
        scaled_by: Some(MAPPING.together.entry.join(", ")),
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

/// `here`: what was measured where it ran, and the relative standard deviation of that. An interval of ratios: it never reaches
/// zero.
fn interval(value: f64, variance: f64, here: (f64, f64)) -> (f64, f64) {
    if value <= 0.0 {
        return (value, value);
    }
    let relative = variance.sqrt() / value;
    let changed = OF_CHANGE * (value / here.0.max(1.0)).ln();
    let deviation = relative.hypot(here.1).hypot(LATER).hypot(changed);
    let reach = (STANDARD * deviation).min(14.0).exp();
    (value / reach, value * reach)
}

#[cfg(test)]
pub(crate) mod tests;
