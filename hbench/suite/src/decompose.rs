// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where an operation's time goes: samples under `debox run`, whose reports differ in the operations alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};
use debox_model::report::Report;
use hbench_results::decomposition::{self, Decomposition};

use crate::benchmark::Case;
use crate::runner::Run;
use crate::sample::Outcome;
use crate::sampler::{Fixed, Measured};
use crate::signals::interrupted;

/// The shorter of two recordings does this part of the longer one's operations.
const SHORTER: u64 = 10;
/// The call from which the cost of observing a call is known.
const NULL_CALL: &str = "call.null";
/// Details for the budgets; and for the inside of the calls, in a recording of its own, as following functions costs more.
const BUDGETS: &str = "--detail sleeps,cpu,irq";
const FUNCTIONS: &str = "--detail basic --trace";

pub struct Decomposer {
    run: Run,
    debox: PathBuf,
    rounds: u32,
    /// What DeBox adds to the shortest call.
    tap_ns: Option<f64>,
}

/// A sample and what DeBox saw of it.
struct Seen {
    measured: Measured,
    report: Report,
}

impl Seen {
    fn run(&self) -> decomposition::Run<'_> {
        decomposition::Run {
            report: &self.report,
            operations: self.measured.iterations,
            operation_ns: timed_ns(&self.measured),
        }
    }
}

/// Of an operation and what has to be done beside it.
fn timed_ns(measured: &Measured) -> f64 {
    (measured.elapsed_ns - measured.overhead_ns) / measured.iterations.max(1) as f64
}

impl Decomposer {
    /// Measures what observing a call costs.
    ///
    /// # Errors
    ///
    /// There is no `debox`, or it may not measure here; the error says what to do.
    pub fn prepare(run: Run, rounds: u32) -> Result<Decomposer> {
        let mut decomposer = Decomposer {
            run,
            debox: find_debox()?,
            rounds,
            tap_ns: None,
        };
        let fixed = decomposer.fixed(NULL_CALL)?;
        let mut quickest: Option<(f64, f64)> = None;
        for _ in 0..rounds {
            let plain = timed_ns(&decomposer.plain(NULL_CALL, fixed)?);
            let seen = timed_ns(&decomposer.seen(NULL_CALL, fixed, BUDGETS)?.measured);
            let (least, least_seen) = quickest.unwrap_or((plain, seen));
            quickest = Some((least.min(plain), least_seen.min(seen)));
        }
        decomposer.tap_ns = quickest.map(|(plain, seen)| seen - plain);
        Ok(decomposer)
    }

    /// # Errors
    ///
    /// The benchmark cannot be measured here, or debox failed; or a signal asked for the end.
    pub fn decompose(&self, case: &Case) -> Result<Decomposition> {
        let name = case.name();
        let fixed = self.fixed(&name)?;
        let shorter = Fixed {
            timed: fixed.warm_up,
            ..fixed
        };
        let (mut plain, mut few, mut many) = (None, None, None);
        for _ in 0..self.rounds {
            keep_least(&mut plain, self.plain(&name, fixed)?, timed_ns);
            let foreign = |seen: &Seen| decomposition::foreign(&seen.report);
            keep_least(&mut few, self.seen(&name, shorter, BUDGETS)?, foreign);
            keep_least(&mut many, self.seen(&name, fixed, BUDGETS)?, foreign);
        }
        let all = plain.zip(few).zip(many);
        let ((plain, few), many) = all.context("there was no round")?;
        let found = decomposition::parts(few.run(), many.run());
        let mut found =
            found.context("the reports of debox do not have the process that measured")?;
        found.benchmark.clone_from(&name);
        found.operation = case.benchmark.operation.to_string();
        found.rounds = self.rounds;
        found.undisturbed_ns = timed_ns(&plain);
        found.beside_ns = many.measured.baseline_ns;
        self.add_tree(&mut found, &name, fixed);
        found.explain_residuals(self.tap_ns);
        Ok(found)
    }

    pub fn kernel(&self) -> &str {
        &self.run.recorded.meta.environment.kernel
    }

    fn add_tree(&self, found: &mut Decomposition, name: &str, fixed: Fixed) {
        let traced = match self.seen(name, fixed, FUNCTIONS) {
            Ok(traced) => traced,
            Err(error) => {
                let why = format!("The inside of the calls could not be followed: {error:#}");
                return found.missing.push(why);
            }
        };
        let calls: BTreeSet<&str> = found.calls.iter().map(|row| &*row.call).collect();
        // The warm-up performed operations, too.
        let each = traced.measured.iterations / traced.measured.loops.max(1);
        let operations = traced.measured.iterations + fixed.warm_up * each;
        let traced_ns = timed_ns(&traced.measured);
        found.tree = decomposition::tree(&traced.report, operations, traced_ns, &calls);
        if let Some(trace) = traced
            .report
            .trace
            .filter(|trace| trace.period_ns.is_some())
        {
            let why = trace.instead_of.iter();
            let why: Vec<String> = why
                .map(|one| format!("{}: {}", one.method, one.why))
                .collect();
            found.missing.push(format!(
                "This kernel lets no function be probed ({}), so the inside of the calls is from samples of the CPU: \
                 shares, without counts, and without interrupts",
                why.join("; ")
            ));
        }
    }

    /// How many iterations take the sample's time.
    fn fixed(&self, name: &str) -> Result<Fixed> {
        let measured = take(self.run.once(name, None, None))?;
        let timed = measured.loops.max(2);
        Ok(Fixed {
            warm_up: timed.div_ceil(SHORTER),
            timed: timed.max(timed.div_ceil(SHORTER) + 1),
        })
    }

    fn plain(&self, name: &str, fixed: Fixed) -> Result<Measured> {
        take(self.run.once(name, Some(fixed), None))
    }

    fn seen(&self, name: &str, fixed: Fixed, detail: &str) -> Result<Seen> {
        let output = self.run.scratch().join("report.json");
        let under = format!(
            "{} run --format json -o {} {detail} --",
            quoted(&self.debox),
            quoted(&output)
        );
        let measured = take(self.run.once(name, Some(fixed), Some(&under)));
        let text = fs::read(&output);
        let _ = fs::remove_file(&output);
        let measured = measured.with_context(|| {
            let debox = self.debox.display();
            format!("under {debox} run (`debox doctor` says what this machine allows)")
        })?;
        let text = text.context("debox has written no report")?;
        let report = serde_json::from_slice(&text)
            .context("cannot read the report of debox: is it of another version?")?;
        Ok(Seen { measured, report })
    }
}

/// Of several runs, the one that other programs disturbed least.
fn keep_least<T>(least: &mut Option<T>, one: T, ns: impl Fn(&T) -> f64) {
    if least.as_ref().is_none_or(|least| ns(&one) < ns(least)) {
        *least = Some(one);
    }
}

fn take(outcome: Outcome) -> Result<Measured> {
    ensure!(!interrupted(), "interrupted");
    match outcome {
        Outcome::Measured { measured, .. } => Ok(measured),
        Outcome::Unavailable { reason } => bail!("{reason}"),
        Outcome::Wrong { reason } => bail!("wrong result: {reason}"),
    }
}

/// The program beside this one, or in PATH.
fn find_debox() -> Result<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .map(|own| own.with_file_name("debox"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|directory| directory.join("debox"));
    let mut candidates = beside.into_iter().chain(in_path);
    candidates.find(|path| path.is_file()).context(
        "there is no program debox, beside hbench or in PATH, which shows where the time goes: \
         build it (`make build`), or install it",
    )
}

/// As one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        let path = Path::new("/a b/it's $HOME");
        let shell = std::process::Command::new("/bin/sh")
            .args(["-c", &format!("printf %s {}", quoted(path))])
            .output()
            .expect("a shell");
        assert_eq!(shell.stdout, b"/a b/it's $HOME");
    }
}
