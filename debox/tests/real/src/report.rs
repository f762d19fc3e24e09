// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions to a whole report, such as a person would ask.

use debox_tests::Measured;
use serde_json::Value;

use crate::account::Known;
use crate::Account;

/// The keeper's fork before it executes, and what is older than monitoring.
const CPU_SLACK_NS: u64 = 5_000_000;

/// What the two accounts may differ by at each switch: the scheduler stops one thread's clock and
/// starts the next one's some way before the switch that debox sees; a CPU that is about to idle looks
/// for work on the others in between.
const SWITCH_NS: u64 = 10_000;

/// A report of a real program and what the program printed.
#[derive(Debug)]
pub struct Story {
    pub run: Measured,
    pub output: String,
}

/// Sums over some rows of `sleeps`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slept {
    pub count: u64,
    pub blocked_ns: u64,
}

impl Story {
    /// Puts the two together.
    pub fn new(run: Measured, output: String) -> Self {
        Self { run, output }
    }

    /// The rows of a table.
    fn rows(&self, table: &str) -> &[Value] {
        self.run.report[table]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// A field of the totals; null counts as nothing.
    pub fn total(&self, field: &str) -> u64 {
        number(&self.run.report["totals"], field)
    }

    /// Time on CPU, in the program and in the kernel.
    pub fn cpu_ns(&self) -> u64 {
        ["user_cpu_ns", "kernel_cpu_ns", "irq_ns"]
            .iter()
            .map(|part| self.total(part))
            .sum()
    }

    /// The sleeps of a call (`None`: of all calls) for which `wanted` holds.
    pub fn slept(&self, call: Option<&str>, wanted: impl Fn(&Value) -> bool) -> Slept {
        let rows = self.rows("sleeps").iter();
        let chosen = rows.filter(|row| call.is_none_or(|call| row["syscall"] == call));
        chosen
            .filter(|row| wanted(row))
            .fold(Slept::default(), |sum, row| Slept {
                count: sum.count + number(row, "count"),
                blocked_ns: sum.blocked_ns + number(row, "blocked_ns"),
            })
    }

    /// The sleeps of a call with this label.
    pub fn labelled(&self, call: &str, label: &str) -> Slept {
        self.slept(Some(call), |row| row["label"] == label)
    }

    /// The sleeps of all calls in this class.
    pub fn class(&self, class: &str) -> Slept {
        self.slept(None, |row| row["class"] == class)
    }

    /// A field of `threads`, summed over those with this name.
    pub fn thread_sum(&self, comm: &str, field: &str) -> u64 {
        let rows = self.rows("threads").iter();
        rows.filter(|row| row["comm"] == comm)
            .map(|row| number(row, field))
            .sum()
    }

    /// Whether the processes of this name ended the sleeps with this label at least `count` times.
    pub fn woke(&self, comm: &str, label: &str) -> u64 {
        let rows = self
            .rows("sleeps")
            .iter()
            .filter(|row| row["label"] == label);
        let wakers = rows.flat_map(|row| row["wakers"].as_array().into_iter().flatten());
        wakers
            .filter(|w| w["comm"] == comm)
            .map(|waker| number(waker, "count"))
            .sum()
    }

    /// Asserts that a share of a whole is at least `percent`; `what` says what should be so.
    #[track_caller]
    pub fn at_least(&self, percent: u64, part: u64, whole: u64, what: &str) {
        assert!(
            u128::from(part) * 100 >= u128::from(whole) * u128::from(percent) && whole > 0,
            "{what}: {part} ns of {whole} ns is less than {percent} %, in {:#}",
            self.run.report
        );
    }

    /// Asserts that every sleep of a call is of one class and has a site.
    #[track_caller]
    pub fn all_of_class(&self, call: &str, class: &str) {
        for row in self
            .rows("sleeps")
            .iter()
            .filter(|row| row["syscall"] == call)
            // Where the kernel hid that a sleep ended; the report says how often.
            .filter(|row| row["label"] != "unknown")
        {
            assert_eq!(row["class"], class, "{row:#}");
            assert!(
                row["site"].as_str().is_some_and(|site| site.contains('+')),
                "{row:#}"
            );
        }
    }

    /// Asserts that the CPU time is what the kernel's account says, within 5 % and what switches
    /// take. The account lacks its keeper, whose own time is left out here too. It also lacks what the
    /// hypervisor took, and the report tells of waits that the machine hid.
    #[track_caller]
    pub fn cpu_is(&self, known: Known) {
        let keeper: u64 = ["user_cpu_ns", "kernel_cpu_ns"]
            .iter()
            .map(|part| self.thread_sum(Account::COMM, part))
            .sum();
        let (cpu, slack) = (self.cpu_ns() - keeper, CPU_SLACK_NS.max(known.cpu_ns / 20));
        let switches = known.switches * SWITCH_NS;
        // To the scheduler a task that is woken and preempts may run from its waking on.
        let waited = self.total("runqueue_ns") + self.total("preempted_ns");
        let least = known.cpu_ns.saturating_sub(slack + switches + waited);
        let steal = match self.run.report["totals"]["stolen_ns"].as_u64() {
            Some(stolen) => stolen,
            None => number(&self.run.report, "steal_ns"),
        };
        let no_cpu_time = steal + number(&self.run.report, "unseen_wait_ns");
        assert!(
            (least..=known.cpu_ns + slack + switches + no_cpu_time).contains(&cpu),
            "CPU time is {cpu} ns, by getrusage {known:?}, of which {no_cpu_time} ns may be none, in {:#}",
            self.run.report["totals"]
        );
    }
}

/// An integer of a row; null, which means "not measured", counts as nothing here.
pub(crate) fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or(0)
}
