// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the time of one operation goes, by DeBox's records of the process that performs it.
//!
//! Two recordings differ in the number of operations alone: their difference has neither the start of the process nor
//! its preparations.

use std::collections::BTreeMap;

use debox_model::report::{Report, Thread, Totals};
use debox_model::Frame;
use serde::{Deserialize, Serialize};

use crate::words::time;

pub use text::decomposition as print;
pub use tree::{tree, Tree, TreeNode};

mod text;
mod tree;

/// What `hbench decompose` writes.
pub const SCHEMA: &str = "hbench.decomposition/1";

/// Other programs that had the CPU for a larger part of the time are a reason to repeat the recording.
const DISTURBED: f64 = 0.05;
/// The row of a thread's time between calls.
const USER: &str = "(user)";
/// Calls that are rarer belong to the process, not to the operation.
const RARE: f64 = 0.02;
/// A call with less than this part of the time is not a row of its own, nor is a place.
const SMALL: f64 = 0.001;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub schema: String,
    pub kernel: String,
    pub decompositions: Vec<Decomposition>,
    /// Benchmarks that could not be decomposed, and why.
    pub left_out: Vec<(String, String)>,
}

/// The parts of a time; they add up to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    pub user_ns: f64,
    pub kernel_ns: f64,
    pub irq_ns: f64,
    pub blocked_ns: f64,
    pub runqueue_ns: f64,
    pub preempted_ns: f64,
}

impl Budget {
    pub fn sum_ns(&self) -> f64 {
        self.on_cpu_ns() + self.blocked_ns + self.runqueue_ns + self.preempted_ns
    }

    pub fn on_cpu_ns(&self) -> f64 {
        self.user_ns + self.kernel_ns + self.irq_ns
    }

    fn of(totals: &Totals) -> Budget {
        Budget {
            user_ns: totals.user_cpu_ns as f64,
            kernel_ns: totals.kernel_cpu_ns as f64,
            irq_ns: totals.irq_ns.unwrap_or(0) as f64,
            blocked_ns: totals.blocked_ns as f64,
            runqueue_ns: totals.runqueue_ns as f64,
            preempted_ns: totals.preempted_ns as f64,
        }
    }

    /// `(self - less) / by`
    fn each(&self, less: &Budget, by: f64) -> Budget {
        let each = |of: fn(&Budget) -> f64| (of(self) - of(less)) / by;
        Budget {
            user_ns: each(|b| b.user_ns),
            kernel_ns: each(|b| b.kernel_ns),
            irq_ns: each(|b| b.irq_ns),
            blocked_ns: each(|b| b.blocked_ns),
            runqueue_ns: each(|b| b.runqueue_ns),
            preempted_ns: each(|b| b.preempted_ns),
        }
    }
}

/// A system call as a part of the operation, of all threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallPart {
    pub call: String,
    /// Per operation, as the times are.
    pub count: f64,
    pub cpu_ns: f64,
    pub blocked_ns: f64,
    /// Ready and without a CPU.
    pub waiting_ns: f64,
    pub irq_ns: f64,
    pub faults: f64,
    /// Of the CPU time: spinning for locks of the kernel.
    pub spin_ns: f64,
}

/// A place where threads slept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub call: String,
    pub label: String,
    pub class: String,
    pub site: String,
    pub count: f64,
    pub blocked_ns: f64,
}

/// A part of what lies between the sum and the undisturbed time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Residual {
    /// `observation`, `preparation`, `other programs`, `locks`, `tlb`, `cache`.
    pub class: String,
    /// Null: it cannot be measured here.
    pub ns: Option<f64>,
    pub about: String,
}

/// Times are of one operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decomposition {
    pub benchmark: String,
    pub operation: String,
    /// By which both recordings differ.
    pub operations: u64,
    pub rounds: u32,
    /// Without DeBox: the quickest round.
    pub undisturbed_ns: f64,
    /// By the program's clock while DeBox recorded it, in the round that other programs disturbed least. The parts are those
    /// of this round.
    pub observed_ns: f64,
    /// What the benchmark subtracts as work beside the operation. It is a part of the times here.
    pub beside_ns: Option<f64>,
    /// The thread that measures. The sum is its time for an operation, including preparations that are not timed.
    pub own: Budget,
    /// All other threads and processes of the benchmark.
    pub others: Budget,
    pub calls: Vec<CallPart>,
    pub places: Vec<Place>,
    pub faults_minor: f64,
    pub faults_major: f64,
    /// Of all threads' waiting for a CPU: time in which other programs, the kernel's own threads or the hypervisor had
    /// it, or it is unknown who.
    pub foreign_ns: f64,
    pub residuals: Vec<Residual>,
    pub tree: Option<Tree>,
    /// What could not be seen, in sentences.
    pub missing: Vec<String>,
}

/// A recorded run of a sample.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    pub report: &'a Report,
    pub operations: u64,
    /// By the program's clock.
    pub operation_ns: f64,
}

/// The parts of an operation, from two runs. `None`: both did the same number of operations, or the thread that measures
/// is in neither.
pub fn parts(few: Run, many: Run) -> Option<Decomposition> {
    let operations = many.operations.checked_sub(few.operations)?;
    if operations == 0 {
        return None;
    }
    let by = operations as f64;
    let (few_own, many_own) = (own_thread(few.report)?, own_thread(many.report)?);
    let own = Budget::of(&many_own.totals).each(&Budget::of(&few_own.totals), by);
    let whole = Budget::of(&many.report.totals).each(&Budget::of(&few.report.totals), by);
    let (calls, left_out) = calls(few.report, many.report, by);
    let faults = |of: &Report, major: bool| -> f64 {
        let rows = of.syscalls.iter();
        let count = rows.map(|row| match major {
            true => row.faults_major.unwrap_or(0),
            false => row.faults_minor,
        });
        count.sum::<u64>() as f64
    };
    let faults = |major| (faults(many.report, major) - faults(few.report, major)) / by;
    let mut missing: Vec<String> = left_out.into_iter().collect();
    let foreign_ns = (foreign(many.report) - foreign(few.report)) / by;
    if foreign_ns.abs() > DISTURBED * many.operation_ns {
        missing.push(
            "Other programs disturbed these recordings: counts hold, CPU times may be a tenth too long, times of \
             waiting mean nothing; repeat it on a quiet machine"
                .to_string(),
        );
    }
    let lost = &many.report.lost;
    if lost.records + lost.sleeps + lost.threads + lost.rows + lost.probe_misses > 0 {
        missing.push(
            "DeBox lost records of this run, so the parts are too small: see `debox run`"
                .to_string(),
        );
    }
    Some(Decomposition {
        benchmark: String::new(),
        operation: String::new(),
        operations,
        rounds: 1,
        undisturbed_ns: 0.0,
        observed_ns: many.operation_ns,
        beside_ns: None,
        own,
        others: whole.each(&own, 1.0),
        places: places(few.report, many.report, by, whole.sum_ns()),
        calls,
        faults_minor: faults(false),
        faults_major: faults(true),
        foreign_ns,
        residuals: Vec::new(),
        tree: None,
        missing,
    })
}

/// How long other programs, or unknown ones, had the CPU while threads of the benchmark waited for it.
pub fn foreign(report: &Report) -> f64 {
    let waits = report.cpu_waits.iter().filter(|wait| !wait.is_own);
    waits.map(|wait| wait.ns as f64).sum()
}

/// The first thread of the process that `debox run` started.
fn own_thread(report: &Report) -> Option<&Thread> {
    let roots = report.processes.iter().filter(|one| one.parent.is_none());
    let first = roots.min_by_key(|one| one.from_ns)?;
    let mut threads = report.threads.iter();
    threads.find(|thread| thread.pid == first.pid && thread.tid == first.pid)
}

/// And what was left out, in a sentence.
fn calls(few: &Report, many: &Report, by: f64) -> (Vec<CallPart>, Option<String>) {
    let before: BTreeMap<&str, _> = few.syscalls.iter().map(|row| (&*row.name, row)).collect();
    let rows = many.syscalls.iter().map(|row| {
        let before = before.get(&*row.name);
        let each = |of: fn(&debox_model::report::Syscall) -> u64| {
            (of(row) as f64 - before.map_or(0.0, |row| of(row) as f64)) / by
        };
        CallPart {
            call: row.name.clone(),
            count: each(|row| row.calls),
            cpu_ns: each(|row| row.cpu_ns),
            blocked_ns: each(|row| row.blocked_ns),
            waiting_ns: each(|row| row.runqueue_ns + row.preempted_ns),
            irq_ns: each(|row| row.irq_ns.unwrap_or(0)),
            faults: each(|row| row.faults_minor + row.faults_major.unwrap_or(0)),
            spin_ns: each(|row| row.spin_ns.unwrap_or(0)),
        }
    });
    let (mut rows, rare): (Vec<CallPart>, Vec<CallPart>) =
        rows.partition(|row| row.count.abs() >= RARE);
    rows.sort_by(|a, b| {
        (b.call == USER)
            .cmp(&(a.call == USER))
            .then(b.cpu_ns.total_cmp(&a.cpu_ns))
    });
    let left_out = (!rare.is_empty()).then(|| {
        let ns: f64 = rare.iter().map(|row| row.cpu_ns).sum();
        format!(
            "{} with fewer than one call in {:.0} operations are not in the table of calls: {} of CPU time for an \
             operation",
            kit_units::counted(rare.len() as u64, "system call"),
            1.0 / RARE,
            time(ns)
        )
    });
    (rows, left_out)
}

fn places(few: &Report, many: &Report, by: f64, whole_ns: f64) -> Vec<Place> {
    let mut found: BTreeMap<(&str, &str, &str, &Frame), (f64, f64)> = BTreeMap::new();
    for (report, sign) in [(many, 1.0), (few, -1.0)] {
        for sleep in &report.sleeps {
            let key = (&*sleep.syscall, &*sleep.label, &*sleep.class, &sleep.site);
            let (count, ns) = found.entry(key).or_default();
            *count += sign * sleep.count as f64 / by;
            *ns += sign * sleep.blocked_ns as f64 / by;
        }
    }
    let rows = found.into_iter().map(|(key, (count, blocked_ns))| Place {
        call: key.0.to_string(),
        label: key.1.to_string(),
        class: key.2.to_string(),
        site: key.3.to_string(),
        count,
        blocked_ns,
    });
    let mut rows: Vec<Place> = rows
        .filter(|row| row.blocked_ns > SMALL * whole_ns && row.count >= SMALL)
        .collect();
    rows.sort_by(|a, b| b.blocked_ns.total_cmp(&a.blocked_ns));
    rows
}

impl Decomposition {
    /// How many calls all threads make for an operation.
    pub fn calls_each(&self) -> f64 {
        let calls = self.calls.iter().filter(|row| row.call != USER);
        calls.map(|row| row.count).sum()
    }

    /// Explains what lies between the parts and the undisturbed time. `tap_ns`: what observing a call adds to it.
    pub fn explain_residuals(&mut self, tap_ns: Option<f64>) {
        let mut found = Vec::new();
        let mut add = |class: &str, ns: Option<f64>, about: String| {
            found.push(Residual {
                class: class.to_string(),
                ns,
                about,
            });
        };
        let cost = self.observed_ns - self.undisturbed_ns;
        let taps = tap_ns.map(|tap| tap * self.calls_each());
        let about = match tap_ns {
            Some(tap) => format!(
                "{:.2} calls, whose begin and end DeBox stamps for {tap:.0} ns (what it adds to call.null)",
                self.calls_each()
            ),
            None => "unknown, as call.null was not measured".to_string(),
        };
        add("observation", taps, about);
        add(
            "observation",
            Some(cost - taps.unwrap_or(0.0)),
            "probes at switches, wake-ups and interrupts, and what they displace from the caches; \
             and what other programs took from one run more than from the other"
                .to_string(),
        );
        add(
            "preparation",
            Some(self.own.sum_ns() - self.observed_ns),
            "in the thread's time, and not between the program's stamps: preparations of each event; \
             negative if the shorter run was disturbed more"
                .to_string(),
        );
        add(
            "other programs",
            Some(self.foreign_ns),
            "had the CPU while threads waited for it (a part of their waiting)".to_string(),
        );
        let spins: f64 = self.calls.iter().map(|row| row.spin_ns).sum();
        let slept = self.places.iter().filter(|place| place.class == "lock");
        let slept: f64 = slept.map(|place| place.blocked_ns).sum();
        add(
            "locks",
            Some(spins + slept),
            "spinning for locks of the kernel (a part of its CPU time) and sleeping for them"
                .to_string(),
        );
        let flushes = self.tree.as_ref().and_then(|tree| tree.tlb_flushes);
        add(
            "tlb",
            None,
            match flushes {
                Some(count) => format!(
                    "{count:.2} flushes of the TLB; what the misses after them take, only hardware counters show"
                ),
                None => "only hardware counters show it".to_string(),
            },
        );
        add(
            "cache",
            None,
            "only hardware counters show it; compare variants of other sizes".to_string(),
        );
        self.residuals = found;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use debox_model::report::{Process, Sleep, Syscall};

    use super::*;

    fn report(operations: u64) -> Report {
        let totals = |user: u64, kernel: u64| Totals {
            wall_ns: user + kernel,
            user_cpu_ns: user,
            kernel_cpu_ns: kernel,
            ..Totals::default()
        };
        let thread = |pid: u32, totals: Totals| Thread {
            pid,
            tid: pid,
            totals,
            ..Thread::default()
        };
        let call = |name: &str, calls: u64, cpu_ns: u64| Syscall {
            name: name.to_string(),
            calls,
            cpu_ns,
            ..Syscall::default()
        };
        let own = totals(5_000 + 10 * operations, 9_000 + 30 * operations);
        Report {
            totals: totals(6_000 + 11 * operations, 9_500 + 34 * operations),
            processes: vec![Process {
                pid: 7,
                ..Process::default()
            }],
            threads: vec![thread(8, totals(1_000, 500)), thread(7, own)],
            syscalls: vec![
                call(USER, 100 + 2 * operations, 5_000 + 10 * operations),
                call("read", 40 + 2 * operations, 9_000 + 30 * operations),
                call("openat", 17, 8_000),
            ],
            sleeps: vec![Sleep {
                syscall: "read".to_string(),
                label: "pipe empty".to_string(),
                count: 3 + operations,
                blocked_ns: 100 + 20 * operations,
                ..Sleep::default()
            }],
            ..Report::default()
        }
    }

    fn of_two_runs() -> Decomposition {
        let (few, many) = (report(1_000), report(11_000));
        let run = |report, operations| Run {
            report,
            operations,
            operation_ns: 40.0,
        };
        parts(run(&few, 1_000), run(&many, 11_000)).expect("they differ")
    }

    /// With every kind of row.
    pub(crate) fn with_tree(benchmark: &str, function: &str) -> Decomposition {
        let node = |function: &str, ns: f64, children| TreeNode {
            function: function.to_string(),
            entered: Some(1.0),
            ns,
            self_ns: ns / 2.0,
            children,
        };
        let mut found = Decomposition {
            benchmark: benchmark.to_string(),
            undisturbed_ns: 25.0,
            tree: Some(Tree {
                method: "fentry".to_string(),
                traced_ns: 90.0,
                calls: vec![node("read", 30.0, vec![node(function, 10.0, Vec::new())])],
                tlb_flushes: None,
            }),
            ..of_two_runs()
        };
        found.explain_residuals(Some(5.0));
        found
    }

    #[test]
    fn every_part_is_printed_and_follows_the_schema() {
        let found = with_tree("pipe.latency/one-cpu", "vfs_\u{1b}read");
        let mut shown = Vec::new();
        print(&mut shown, &found).expect("memory");
        let shown = String::from_utf8(shown).expect("text");
        for wanted in [
            "observing costs 60 %",
            "read: pipe empty",
            "vfs_\\x1bread x 1.00",
            "tlb",
        ] {
            assert!(shown.contains(wanted), "{wanted}: {shown}");
        }
        let document = Document {
            schema: SCHEMA.to_string(),
            kernel: "6.18".to_string(),
            decompositions: vec![found],
            left_out: vec![("call.null".to_string(), "why".to_string())],
        };
        let document = serde_json::to_value(document).expect("JSON");
        let schema = include_str!("../../schema/hbench-decomposition-1.json");
        let schema = serde_json::from_str(schema).expect("JSON");
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let errors: Vec<String> = validator
            .iter_errors(&document)
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
    }

    #[test]
    fn what_both_runs_did_once_does_not_count() {
        let found = of_two_runs();
        assert_eq!(found.operations, 10_000);
        assert_eq!((found.own.user_ns, found.own.kernel_ns), (10.0, 30.0));
        assert_eq!((found.others.user_ns, found.others.kernel_ns), (1.0, 4.0));
        assert_eq!(found.own.sum_ns(), 40.0);
        let calls: Vec<(&str, f64)> = found
            .calls
            .iter()
            .map(|row| (&*row.call, row.count))
            .collect();
        assert_eq!(
            calls,
            [(USER, 2.0), ("read", 2.0)],
            "openat was part of the start"
        );
        assert_eq!(found.places[0].blocked_ns, 20.0);
    }

    #[test]
    fn the_cost_of_observing_is_split_by_calls() {
        let mut found = of_two_runs();
        found.undisturbed_ns = 25.0;
        found.explain_residuals(Some(5.0));
        let observed: Vec<f64> = found
            .residuals
            .iter()
            .filter(|one| one.class == "observation")
            .filter_map(|one| one.ns)
            .collect();
        assert_eq!(
            observed,
            [10.0, 5.0],
            "two calls of 5 ns, and the rest of 15 ns"
        );
    }

    #[test]
    fn equal_runs_have_no_parts() {
        let one = report(5);
        let run = Run {
            report: &one,
            operations: 5,
            operation_ns: 1.0,
        };
        assert_eq!(parts(run, run), None);
    }
}
