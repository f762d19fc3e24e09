// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assertions on the rows of a report, as chains that read like the sentence they check.

use serde_json::Value;

use crate::clock_slack_ns;
use crate::slowness;
use crate::Facts;

/// An integer of a row; null, which means "not measured", counts as nothing here.
#[track_caller]
pub(crate) fn number(row: &Value, field: &str) -> u64 {
    match &row[field] {
        Value::Null => 0,
        value => value
            .as_u64()
            .unwrap_or_else(|| panic!("`{field}` is no number in {row:#}")),
    }
}

/// A text of a row.
pub(crate) fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_default()
}

/// The rows of a table of the report.
#[track_caller]
pub(crate) fn rows<'a>(report: &'a Value, table: &str) -> &'a [Value] {
    report[table]
        .as_array()
        .unwrap_or_else(|| panic!("no table `{table}` in {report:#}"))
}

/// A report, with what the measured program knows.
#[derive(Debug, Clone)]
pub struct Measured {
    pub report: Value,
    pub facts: Facts,
}

impl Measured {
    /// Puts the two together.
    pub fn new(report: Value, facts: Facts) -> Self {
        Self { report, facts }
    }

    /// What the program knows under this name.
    #[track_caller]
    pub fn fact(&self, name: &str) -> u64 {
        self.facts.get(name)
    }

    /// The row of a system call or of `(user)`.
    #[track_caller]
    pub fn call(&self, name: &str) -> Call<'_> {
        match rows(&self.report, "syscalls")
            .iter()
            .find(|row| text(row, "name") == name)
        {
            Some(row) => Call { run: self, row },
            None => panic!("no call `{name}` in {:#}", self.report["syscalls"]),
        }
    }

    /// How often a call was made; 0 when it has no row.
    pub fn count_of(&self, name: &str) -> u64 {
        let calls = rows(&self.report, "syscalls");
        calls
            .iter()
            .find(|row| text(row, "name") == name)
            .map_or(0, |row| number(row, "calls"))
    }

    /// The threads of this name.
    pub fn threads(&self, comm: &str) -> Vec<&Value> {
        let threads = rows(&self.report, "threads").iter();
        threads.filter(|row| text(row, "comm") == comm).collect()
    }

    /// A count of losses.
    pub fn lost(&self, what: &str) -> u64 {
        number(&self.report["lost"], what)
    }

    /// The sum of a field over a table.
    pub fn sum(&self, table: &str, field: &str) -> u64 {
        rows(&self.report, table)
            .iter()
            .map(|row| number(row, field))
            .sum()
    }
}

/// One row of `syscalls`.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    run: &'a Measured,
    row: &'a Value,
}

impl<'a> Call<'a> {
    /// A field of the row.
    #[track_caller]
    pub fn number(self, field: &str) -> u64 {
        number(self.row, field)
    }

    /// Asserts a field exactly.
    #[track_caller]
    pub fn exactly(self, field: &str, expected: u64) -> Self {
        assert_eq!(self.number(field), expected, "`{field}` of {:#}", self.row);
        self
    }

    /// Asserts a field's bounds, both inclusive.
    #[track_caller]
    pub fn between(self, field: &str, least: u64, most: u64) -> Self {
        assert_between(self.number(field), field, (least, most), &self.row);
        self
    }

    /// Asserts how often it was made: less only where the kernel says that it has skipped probes.
    #[track_caller]
    pub fn calls(self, expected: u64) -> Self {
        let missed = self.run.lost("probe_misses");
        self.between("calls", expected.saturating_sub(missed), expected)
    }

    /// Asserts how often it failed.
    #[track_caller]
    pub fn errors(self, expected: u64) -> Self {
        self.exactly("errors", expected)
    }

    /// Asserts its time asleep, by the two stamps the program took.
    #[track_caller]
    pub fn blocked_as_known(self) -> Self {
        let (least, most) = known_bounds(self.run);
        self.between("blocked_ns", least, most)
    }

    /// Its sleeps of this label, at whichever sites.
    #[track_caller]
    pub fn sleep(self, label: &str) -> Sleeps<'a> {
        let call = text(self.row, "name");
        let all = rows(&self.run.report, "sleeps");
        let own: Vec<&Value> = all
            .iter()
            .filter(|row| text(row, "syscall") == call)
            .collect();
        let found: Vec<&Value> = own
            .iter()
            .copied()
            .filter(|row| text(row, "label") == label)
            .collect();
        assert!(
            !found.is_empty(),
            "no sleep `{label}` of {call} among {own:#?}"
        );
        Sleeps {
            run: self.run,
            rows: found,
        }
    }

    /// All its sleeps together.
    pub fn all_sleeps(self) -> Sleeps<'a> {
        let call = text(self.row, "name");
        let all = rows(&self.run.report, "sleeps").iter();
        let rows = all.filter(|row| text(row, "syscall") == call).collect();
        Sleeps {
            run: self.run,
            rows,
        }
    }
}

/// Asserts the bounds of a field's value, both inclusive.
#[track_caller]
fn assert_between(value: u64, field: &str, (least, most): (u64, u64), of: &impl std::fmt::Debug) {
    let most = most_here(field, most);
    let fits = (least..=most).contains(&value);
    assert!(
        fits,
        "`{field}` is {value}, not in {least}..={most}, in {of:#?}"
    );
}

/// An upper bound of a time where time runs slower; counts are the same everywhere.
fn most_here(field: &str, most: u64) -> u64 {
    if field.ends_with("_ns") {
        most.saturating_mul(slowness())
    } else {
        most
    }
}

/// The bounds that a program's stamps prove for its wait.
#[track_caller]
fn known_bounds(run: &Measured) -> (u64, u64) {
    let least = run.fact("least_ns").saturating_sub(clock_slack_ns());
    (least, run.fact("most_ns") + clock_slack_ns())
}

/// Rows of `sleeps` of one call and one label.
#[derive(Debug, Clone)]
pub struct Sleeps<'a> {
    run: &'a Measured,
    rows: Vec<&'a Value>,
}

impl Sleeps<'_> {
    /// The sum of a field.
    #[track_caller]
    pub fn number(&self, field: &str) -> u64 {
        self.rows.iter().map(|row| number(row, field)).sum()
    }

    /// Asserts the bounds of a field's sum, both inclusive.
    #[track_caller]
    pub fn between(self, field: &str, least: u64, most: u64) -> Self {
        assert_between(self.number(field), field, (least, most), &self.rows);
        self
    }

    /// Asserts how often it slept so.
    #[track_caller]
    pub fn count(self, expected: u64) -> Self {
        self.between("count", expected, expected)
    }

    /// Asserts the class of every row.
    #[track_caller]
    pub fn class(self, expected: &str) -> Self {
        let all = self.rows.iter().all(|row| text(row, "class") == expected);
        assert!(all, "class is not `{expected}` in {:#?}", self.rows);
        self
    }

    /// Asserts that every row's site is one of these functions.
    #[track_caller]
    pub fn site_in(self, functions: &[&str]) -> Self {
        for row in &self.rows {
            let function = text(row, "site").split('+').next().unwrap_or_default();
            assert!(
                functions.contains(&function),
                "site is not one of {functions:?} in {row:#}"
            );
        }
        self
    }

    /// Asserts the time asleep, by the two stamps the program took.
    #[track_caller]
    pub fn blocked_as_known(self) -> Self {
        let (least, most) = known_bounds(self.run);
        self.between("blocked_ns", least, most)
    }

    /// Asserts that every sleeping call was made in this function of the program, whatever frames
    /// of the C library lie between.
    #[track_caller]
    pub fn called_from(self, function: &str) -> Self {
        let named = |site: &Value| {
            let mut frames = rows(site, "frames").iter().filter_map(Value::as_str);
            frames.any(|frame| frame.split('+').next() == Some(function))
        };
        let sites = self.rows.iter().flat_map(|row| rows(row, "call_sites"));
        let found: u64 = sites
            .filter(|site| named(site))
            .map(|site| number(site, "count"))
            .sum();
        assert_eq!(
            found,
            self.number("count"),
            "not all from `{function}`: {:#?}",
            self.rows
        );
        self
    }

    /// Asserts over whom waiters were counted and that the most of them, the sleeper included,
    /// lie in these bounds.
    #[track_caller]
    pub fn waiters(self, scope: &str, least: u64, most: u64) -> Self {
        let largest = self
            .rows
            .iter()
            .map(|row| number(row, "waiters_entry_max"))
            .max();
        let fits = largest.is_some_and(|waiters| (least..=most).contains(&waiters));
        let scoped = self
            .rows
            .iter()
            .all(|row| text(row, "waiters_scope") == scope);
        assert!(
            fits && scoped,
            "not {least}..={most} waiters over {scope}: {:#?}",
            self.rows
        );
        self
    }

    /// Wake-ups by wakers of this kind and, for tasks, of this name.
    pub fn woken_by(&self, kind: &str, comm: Option<&str>) -> u64 {
        let wakers = self.rows.iter().flat_map(|row| rows(row, "wakers"));
        let named = |waker: &&Value| comm.is_none() || waker["comm"].as_str() == comm;
        let fitting = wakers
            .filter(|waker| text(waker, "kind") == kind)
            .filter(named);
        fitting.map(|waker| number(waker, "count")).sum()
    }

    /// Asserts that every sleep was ended by a task of this name.
    #[track_caller]
    pub fn waker_task(self, comm: &str) -> Self {
        let (woken, all) = (self.woken_by("task", Some(comm)), self.number("count"));
        assert_eq!(
            woken, all,
            "not every waker is the task `{comm}` in {:#?}",
            self.rows
        );
        self
    }

    /// Asserts that every sleep was ended by an interrupt of this kind.
    #[track_caller]
    pub fn waker_interrupt(self, kind: &str) -> Self {
        let (woken, all) = (self.woken_by(kind, None), self.number("count"));
        assert_eq!(
            woken, all,
            "not every waker is a {kind} in {:#?}",
            self.rows
        );
        self
    }

    /// Asserts that every named waker is this thread.
    #[track_caller]
    pub fn waker_tid(self, tid: u64) -> Self {
        for waker in self.rows.iter().flat_map(|row| rows(row, "wakers")) {
            let same = waker["tid"].is_null() || number(waker, "tid") == tid;
            assert!(same, "a waker is not {tid} in {:#?}", self.rows);
        }
        self
    }
}
