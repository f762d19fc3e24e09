// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures every benchmark once in each round, every sample in a process of its own.

mod process;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hbench_results::environment::Environment;
use hbench_results::file::Recorded;
use hbench_results::meta::{LeftOut, Meta, Sample, State, SCHEMA};
use tempfile::TempDir;

use crate::benchmark::Case;
use crate::capture;
use crate::clock::Clock;
use crate::hello;
use crate::noise;
use crate::sample::Outcome;
use crate::sampler::{Fixed, Job, Ran};
use crate::signals::interrupted;
use process::{Ended, Process};

/// How long the machine's noise is observed.
const NOISE: Duration = Duration::from_millis(300);
/// Buffers that are to lie in memory are so many times as large as the last cache, and at least twice as large where
/// memory is short.
const BEYOND_CACHE: u64 = 4;
const BEYOND_CACHE_LEAST: u64 = 2;
const MEMORY_LEAST: u64 = 64 << 20;
const MEMORY_MOST: u64 = 1 << 30;
/// The part of the machine's memory that the buffers of all instances may have.
const MEMORY_SHARE: u64 = 8;

#[derive(Debug, Clone)]
pub struct Plan {
    pub cases: Vec<Case>,
    pub rounds: u32,
    /// How long the measurement of a sample takes.
    pub sample: Duration,
    /// One process on each CPU at the same time.
    pub is_parallel: bool,
    /// A command that starts the sample's process, as a shell reads it.
    pub under: Option<String>,
    /// Where temporary files are made.
    pub directory: PathBuf,
    pub may_drop_caches: bool,
}

pub struct Run {
    plan: Plan,
    clock: Clock,
    begun: Instant,
    scratch: TempDir,
    cpus: Vec<u32>,
    memory_bytes: Option<u64>,
    /// Benchmarks that could not be measured, and are not tried again.
    given_up: BTreeSet<String>,
    pub recorded: Recorded,
}

/// What the sample of a case gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// Time per operation.
    Measured(f64),
    LeftOut(String),
    Interrupted,
}

impl Run {
    /// Looks at the machine.
    ///
    /// # Errors
    ///
    /// No temporary directory can be made.
    pub fn prepare(plan: Plan) -> Result<Run> {
        let scratch = tempfile::Builder::new()
            .prefix("hbench-")
            .tempdir_in(&plan.directory)
            .with_context(|| {
                let directory = plan.directory.display();
                format!("cannot make a directory for temporary files in {directory}: name another with --directory")
            })?;
        // Without them only the benchmarks that execute them have no result.
        let _ = hello::write(scratch.path());
        let mut noise = hbench_results::environment::Noise::default();
        let clock = Clock::calibrate(NOISE, |clock, during| noise = noise::observe(clock, during));
        let own = || capture::environment(capture::allowed_cpus().last().copied(), scratch.path());
        // Where the samples run: a command may start them with a quota, a filter, or in another kernel.
        let under = plan.under.as_deref();
        let environment = under
            .and_then(|under| described_under(under, scratch.path()))
            .unwrap_or_else(own);
        let allowed = &environment.cpus_allowed;
        let cpus: Vec<u32> = match plan.is_parallel {
            true => allowed.clone(),
            // The first CPU often has the most interrupts.
            false => allowed.last().copied().into_iter().collect(),
        };
        let instances = cpus.len().max(1) as u64;
        let memory_bytes = beyond_caches(&environment, instances);
        let meta = Meta {
            schema: SCHEMA.to_string(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            started: jiff::Timestamp::now().to_string(),
            duration_ns: 0,
            state: State::Running,
            rounds: plan.rounds,
            rounds_done: 0,
            sample_ns: plan.sample.as_nanos() as u64,
            instances: instances as u32,
            samples_dropped: 0,
            under: plan.under.clone(),
            clock: clock.described(),
            environment,
            noise,
            benchmarks: plan.cases.iter().map(Case::declared).collect(),
            left_out: Vec::new(),
        };
        Ok(Run {
            plan,
            clock,
            begun: Instant::now(),
            scratch,
            cpus,
            memory_bytes,
            given_up: BTreeSet::new(),
            recorded: Recorded {
                meta,
                samples: Vec::new(),
            },
        })
    }

    /// Takes a sample of the case; with several instances, one of each at the same time. `None`: the case was given
    /// up in an earlier round.
    pub fn sample(&mut self, case: &Case, round: u32) -> Option<Told> {
        let name = case.name();
        if self.given_up.contains(&name) {
            return None;
        }
        let start_ns = self.begun.elapsed().as_nanos() as u64;
        let outcomes = self.outcomes(&name);
        if interrupted() {
            return Some(Told::Interrupted);
        }
        let mut told = None;
        let mut samples = Vec::new();
        let mut runs = Vec::new();
        for (instance, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Outcome::Measured { measured, cpu, ran } => {
                    runs.push(ran);
                    samples.push(Sample {
                        benchmark: name.clone(),
                        round,
                        instance: instance as u32,
                        cpu,
                        start_ns,
                        iterations: measured.iterations,
                        elapsed_ns: measured.elapsed_ns,
                        overhead_ns: measured.overhead_ns,
                        baseline_ns: measured.baseline_ns,
                        operation_ns: measured.operation_ns(),
                        bytes: measured.bytes,
                        runqueue_ns: measured.runqueue_ns,
                    });
                }
                Outcome::Unavailable { reason } => told = Some((reason, false)),
                Outcome::Wrong { reason } => told = Some((reason, true)),
            }
        }
        if let Some((reason, is_wrong)) = told {
            let is_first = round == 0;
            if is_first {
                self.given_up.insert(name.clone());
            }
            self.recorded.meta.left_out.push(LeftOut {
                benchmark: name,
                reason: reason.clone(),
                round: (!is_first).then_some(round),
                is_wrong,
            });
            return Some(Told::LeftOut(reason));
        }
        if !ran_together(&runs) {
            let count = samples.len() as u64;
            self.recorded.meta.samples_dropped += count;
            let reason = format!(
                "{} dropped: not all processes ran during the others' measurements",
                kit_units::counted(count, "sample")
            );
            self.recorded.meta.left_out.push(LeftOut {
                benchmark: name,
                reason: reason.clone(),
                round: Some(round),
                is_wrong: false,
            });
            return Some(Told::LeftOut(reason));
        }
        let first = samples.first().map_or(0.0, |sample| sample.operation_ns);
        self.recorded.samples.extend(samples);
        Some(Told::Measured(first))
    }

    /// Notes that a round is complete.
    pub fn end_round(&mut self, round: u32) {
        self.recorded.meta.rounds_done = round + 1;
        self.recorded.meta.duration_ns = self.begun.elapsed().as_nanos() as u64;
    }

    pub fn end(&mut self, state: State) {
        self.recorded.meta.state = state;
        self.recorded.meta.duration_ns = self.begun.elapsed().as_nanos() as u64;
    }

    pub fn cases(&self) -> &[Case] {
        &self.plan.cases
    }

    fn job(&self, name: &str, cpu: Option<u32>, directory: PathBuf) -> Job {
        let allowed = &self.recorded.meta.environment.cpus_allowed;
        let second = allowed.iter().find(|other| Some(**other) != cpu);
        Job {
            benchmark: name.to_string(),
            clock: self.clock,
            target_ns: self.plan.sample.as_nanos() as f64,
            directory,
            cpu,
            // With an instance on each CPU none is free.
            second_cpu: second.copied().filter(|_| !self.plan.is_parallel),
            memory_bytes: self.memory_bytes,
            may_drop_caches: self.plan.may_drop_caches,
            is_gated: self.cpus.len() > 1,
            fixed: None,
        }
    }

    /// One sample in a process of its own, under a command if there is one.
    pub fn once(&self, name: &str, fixed: Option<Fixed>, under: Option<&str>) -> Outcome {
        let directory = self.scratch.path().join("sample-once");
        let job = Job {
            fixed,
            is_gated: false,
            ..self.job(name, self.cpus.first().copied(), directory.clone())
        };
        let started = self.start_job(&job, under);
        let outcome = finished(started);
        let _ = fs::remove_dir_all(directory);
        outcome
    }

    /// The directory for this run's temporary files.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// One outcome for each instance.
    fn outcomes(&self, name: &str) -> Vec<Outcome> {
        let cpus: Vec<Option<u32>> = match self.cpus.is_empty() {
            true => vec![None],
            false => self.cpus.iter().copied().map(Some).collect(),
        };
        let mut started = Vec::new();
        for (instance, cpu) in cpus.iter().enumerate() {
            let directory = self.scratch.path().join(format!("sample-{instance}"));
            started.push(self.start(name, *cpu, &directory));
        }
        // All go on together, even if one failed: the others wait for it.
        loop {
            let mut ready: Vec<&mut Process> = started.iter_mut().flatten().collect();
            ready.retain_mut(|process| process.wait_until_ready());
            if ready.is_empty() {
                break;
            }
            ready.into_iter().for_each(Process::go_on);
        }
        let outcomes = started.into_iter().map(finished).collect();
        for instance in 0..cpus.len() {
            let _ = fs::remove_dir_all(self.scratch.path().join(format!("sample-{instance}")));
        }
        outcomes
    }

    fn start(&self, name: &str, cpu: Option<u32>, directory: &Path) -> Result<Process, Outcome> {
        let job = self.job(name, cpu, directory.to_path_buf());
        self.start_job(&job, self.plan.under.as_deref())
    }

    fn start_job(&self, job: &Job, under: Option<&str>) -> Result<Process, Outcome> {
        let unavailable = |what: &str, error: &dyn std::fmt::Display| Outcome::Unavailable {
            reason: format!("{what}: {error}"),
        };
        fs::create_dir_all(&job.directory)
            .map_err(|error| unavailable("create a temporary directory", &error))?;
        let errors = self.scratch.path().join("errors");
        Process::sample(job, under, &errors).map_err(|error| unavailable("start a process", &error))
    }
}

/// What a process that this command starts says of where it runs. `None`: it says nothing; samples will show why.
fn described_under(under: &str, scratch: &Path) -> Option<Environment> {
    let started = Process::describe(scratch, under, &scratch.join("errors"));
    started.ok()?.finish().ok()
}

/// The size of a buffer that does not fit into the caches. `None`: there is not enough memory for it.
fn beyond_caches(environment: &Environment, instances: u64) -> Option<u64> {
    let memory = environment.memory_bytes.unwrap_or(1 << 30);
    let memory = memory.min(environment.memory_limit_bytes.unwrap_or(memory));
    let last_cache = environment.cache_bytes.iter().max().copied().unwrap_or(0);
    let bytes = (BEYOND_CACHE.saturating_mul(last_cache))
        .clamp(MEMORY_LEAST, MEMORY_MOST)
        .min(memory / MEMORY_SHARE / instances)
        .next_multiple_of(1 << 20);
    (bytes >= BEYOND_CACHE_LEAST.saturating_mul(last_cache)).then_some(bytes)
}

/// Whether each of the instances ran while any other was measured.
fn ran_together(runs: &[Ran]) -> bool {
    let mut pairs = runs.iter().enumerate().flat_map(|(at, own)| {
        let others = runs.iter().enumerate();
        others
            .filter(move |(other, _)| *other != at)
            .map(move |(_, other)| (own, other))
    });
    pairs.all(|(own, other)| {
        other.from_ns <= own.measured_from_ns && own.measured_until_ns <= other.until_ns
    })
}

fn finished(started: Result<Process, Outcome>) -> Outcome {
    match started.map(Process::finish::<Outcome>) {
        Ok(Ok(outcome)) | Err(outcome) => outcome,
        Ok(Err(Ended { reason })) => Outcome::Unavailable { reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_if_all_ran_during_it() {
        let ran = |from_ns, measured: std::ops::Range<u64>, until_ns| Ran {
            from_ns,
            measured_from_ns: measured.start,
            measured_until_ns: measured.end,
            until_ns,
        };
        // One instance alone does not wait for others.
        assert!(ran_together(&[Ran::default()]) && ran_together(&[ran(0, 5..9, 0)]));
        assert!(ran_together(&[ran(1, 5..9, 12), ran(2, 4..11, 12)]));
        // The first ended before the second was measured, and began after it.
        assert!(!ran_together(&[ran(1, 5..9, 10), ran(2, 4..11, 12)]));
        assert!(!ran_together(&[ran(5, 6..9, 12), ran(2, 4..11, 12)]));
    }

    #[test]
    fn a_buffer_in_memory_is_never_in_a_cache() {
        let environment = |memory, limit, cache| Environment {
            memory_bytes: Some(memory),
            memory_limit_bytes: limit,
            cache_bytes: vec![32 << 10, cache],
            ..capture::environment(None, Path::new("/"))
        };
        let (mib, gib) = (1 << 20, 1 << 30);
        let usual = environment(16 * gib, None, 32 * mib);
        assert_eq!(beyond_caches(&usual, 1), Some(128 * mib));
        assert_eq!(beyond_caches(&usual, 32), Some(64 * mib));
        // In a container, and with the cache of a large server.
        assert_eq!(
            beyond_caches(&environment(16 * gib, Some(256 * mib), 32 * mib), 1),
            None
        );
        assert_eq!(
            beyond_caches(&environment(64 * gib, None, 260 * mib), 1),
            Some(gib)
        );
        assert_eq!(beyond_caches(&environment(16 * gib, Some(1), 0), 1), None);
    }
}
