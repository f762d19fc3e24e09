//! What a reader should know first, in sentences. Each finding names the section that shows it.

use std::fmt::Write;

use debox_model::report::WAITS_FOR_CHILDREN;

use crate::in_flight;
use crate::parts::USER;
use crate::report::{
    Budget, Call, Finding, FindingKind, Report, Rest, SlowCall, Thread, UserLevelCall, Wait,
};
use crate::rest;
use crate::sentences::{capital, cpu_owner_sentence, growth_sentence, parts, wait_sentence};
use kit_units::{count, counted, time};

const WAITS: usize = 6;
/// Calls whose time is broken down in a sentence, at most.
const CALLS: usize = 3;
/// A call is broken down if it has at least this part of the time without idle waits,
const CALL_PART_MIN: f64 = 0.1;
/// and if the waits that have sentences explain less than this part of it.
const EXPLAINED: f64 = 0.7;
/// Smaller parts of a call's time are not mentioned.
const WORTH_A_WORD: f64 = 0.02;
/// Names in a sentence, at most.
const NAMES: usize = 5;
const GROWTHS: usize = 4;
const LOOPS: usize = 4;
/// Waits that are long only together: sentences about them, at most.
const SHARED: usize = 4;
/// The smallest part of the time without idle waits that is worth a finding.
const PART_MIN: f64 = 0.01;
/// From this difference on, the finding says that the program's clock made the longest call longer,
const PEAK_MIN_NS: u64 = 100_000;
/// for this many calls, at most.
const PEAKS: usize = 2;
/// Failing calls are reported if there are this many, and if they are this part of all calls.
const ERRORS_MIN: u64 = 100;
const ERRORS_PART_MIN: f64 = 0.2;

/// An HTML anchor without special characters.
pub fn anchor(section: &str, name: &str) -> String {
    let name: String = name
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .collect();
    format!("{section}-{name}")
}

/// The findings so far, and what is needed to judge the next.
struct Finder<'a> {
    report: &'a Report,
    /// Time in calls without idle waits and waits for work.
    active: u64,
    /// Shorter times are not reported.
    least: u64,
    found: Vec<(Order, Finding)>,
    /// Calls whose time has been broken down.
    told: Vec<&'a str>,
    /// Whether calls in flight at the end have been reported.
    hanging: bool,
}

pub fn findings(report: &Report) -> Vec<Finding> {
    let totals = &report.totals;
    let calls = report.calls.iter();
    let resting = calls.fold(0u64, |sum, call| sum.saturating_add(call.resting_ns));
    let active = totals
        .wall_ns
        .saturating_sub(totals.idle_ns)
        .saturating_sub(resting)
        .max(1);
    let mut finder = Finder {
        report,
        active,
        least: ((active as f64 * PART_MIN) as u64).max(1),
        found: Vec::new(),
        told: Vec::new(),
        hanging: false,
    };
    finder.deadlocks();
    finder.in_flight();
    finder.loops();
    finder.waits();
    finder.calls();
    finder.shared_waits();
    finder.growth();
    finder.cpu();
    finder.run_queue();
    finder.errors();
    finder.spinning();
    finder.user_level();
    finder.at_rest();
    finder.finish()
}

/// The order of findings; those in the same place are sorted by their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    First,
    ByTime,
    AfterOthers,
    Last,
}

impl<'a> Finder<'a> {
    fn add(&mut self, kind: FindingKind, text: String, evidence: String, weight_ns: u64) {
        let order = match kind {
            FindingKind::Deadlock => Order::First,
            FindingKind::Idle => Order::Last,
            _ => Order::ByTime,
        };
        self.add_in(order, kind, text, evidence, weight_ns);
    }

    fn add_in(
        &mut self,
        order: Order,
        kind: FindingKind,
        text: String,
        evidence: String,
        weight_ns: u64,
    ) {
        let finding = Finding {
            kind,
            text,
            evidence,
            weight_ns,
        };
        self.found.push((order, finding));
    }

    fn deadlocks(&mut self) {
        for deadlock in &self.report.deadlocks {
            let text = format!(
                "{}: {}.",
                capital(deadlock.title()),
                deadlock.lines().join("; ")
            );
            let stuck = self.report.in_flight.iter().filter(|call| {
                let mut waits = deadlock.waits.iter();
                waits.any(|wait| wait.tid == call.tid)
            });
            let weight = stuck.fold(0u64, |sum, call| sum.saturating_add(call.budget.wall_ns));
            self.add(FindingKind::Deadlock, text, "in-flight".into(), weight);
            self.hanging = true;
        }
    }

    fn in_flight(&mut self) {
        for hanging in in_flight::sentences(self.report, self.least) {
            let order = match hanging.may_be_at_rest {
                true => Order::AfterOthers,
                false => Order::ByTime,
            };
            let (text, evidence) = (hanging.text, "in-flight".into());
            self.add_in(
                order,
                FindingKind::InFlight,
                text,
                evidence,
                hanging.time_ns,
            );
            self.hanging = true;
        }
    }

    /// What keeps event loops from their events.
    fn loops(&mut self) {
        for one in self.report.loops.iter().take(LOOPS) {
            let (Some(cause), true) = (one.causes.first(), one.blocked_ns >= self.least) else {
                continue;
            };
            let mut text = format!(
                "The event loop of {} (thread {}) waited {} for other things than its events, and kept its clients \
                 waiting: {} of it for {} in {} ({}, {} the longest)",
                one.comm,
                one.tid,
                time(one.blocked_ns),
                time(cause.blocked_ns),
                cause.what(),
                cause.call,
                counted(cause.count, "time"),
                time(cause.longest_ns)
            );
            if let Some(caller) = &cause.caller {
                let _ = write!(text, ", called from {caller}");
            }
            if one.longest_turn_ns > 0 {
                let turn = time(one.longest_turn_ns);
                let _ = write!(text, ". Its longest turn took {turn}");
            }
            if one.long_turns > 1 {
                let turns = counted(one.long_turns, "turn");
                let _ = write!(text, "; {turns} took 10 ms or more");
            }
            text.push('.');
            let evidence = anchor("loop", &one.tid.to_string());
            self.add(FindingKind::Loop, text, evidence, one.blocked_ns);
        }
    }

    /// Whether none of these waits had ended: then they are reported as calls in flight.
    fn is_hanging(&self, wait: &Wait) -> bool {
        let is_it = |call: &&SlowCall| {
            call.comm == wait.comm
                && call.call == wait.call
                && (call.pid == call.tid) == wait.is_main
                && in_flight::open_sleep(call).is_some_and(|sleep| sleep.label == wait.label)
        };
        let open = self.report.in_flight.iter().filter(is_it).count() as u64;
        self.hanging && open >= wait.count
    }

    /// Waits that have their own sentence.
    fn told_waits(&self) -> Vec<(usize, &'a Wait)> {
        let waits = self.report.waits.iter().enumerate();
        let waits = waits.filter(|(_, wait)| {
            wait.class != "idle"
                && wait.blocked_ns >= self.least
                && !wait.is_rest
                && !self.is_hanging(wait)
        });
        waits.take(WAITS).collect()
    }

    fn waits(&mut self) {
        for (index, wait) in self.told_waits() {
            let evidence = anchor("wait", &index.to_string());
            let text = wait_sentence(wait);
            // What the children did is reported for them.
            let is_theirs = self.report.by_process.rows.len() > 1
                && WAITS_FOR_CHILDREN.contains(&wait.label.as_str());
            let order = match is_theirs {
                true => Order::AfterOthers,
                false => Order::ByTime,
            };
            self.add_in(order, FindingKind::Wait, text, evidence, wait.blocked_ns);
        }
    }

    /// A call's time without idle waits and waits for work.
    fn cost(&self, call: &Call) -> u64 {
        let cost = call.budget.wall_ns.saturating_sub(call.budget.idle_ns);
        cost.saturating_sub(call.resting_ns)
    }

    /// Where the time of the most expensive calls went, unless a few waits explain it. Without this, a
    /// call that mostly waits for a CPU would look like a slow disk.
    fn calls(&mut self) {
        let mut calls: Vec<(u64, &Call)> = self
            .report
            .calls
            .iter()
            .map(|call| (self.cost(call), call))
            .filter(|(cost, call)| {
                // For a call that never returned, the waits are reported instead.
                call.count > 0 && *cost as f64 >= self.active as f64 * CALL_PART_MIN
            })
            .collect();
        calls.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        for (cost, call) in calls.into_iter().take(CALLS) {
            let waits = self.told_waits().into_iter();
            let waits = waits.filter(|(_, wait)| wait.call == call.name);
            let told = waits.fold(0u64, |sum, (_, wait)| sum.saturating_add(wait.blocked_ns));
            if told as f64 >= cost as f64 * EXPLAINED {
                continue;
            }
            let is_worth = |ns: u64| ns as f64 >= cost as f64 * WORTH_A_WORD;
            let labels: Vec<String> = self
                .labels_of(&call.name)
                .into_iter()
                .filter(|(ns, _)| is_worth(*ns))
                .take(NAMES)
                .map(|(ns, label)| format!("{label} {}", time(ns)))
                .collect();
            let parts = parts(&call.budget, call.resting_ns, &labels.join(", "));
            let kind = parts[0].1;
            let words: Vec<String> = parts
                .into_iter()
                .filter(|(ns, ..)| is_worth(*ns))
                .map(|(ns, _, words)| format!("{} {words}", time(ns)))
                .collect();
            let mut text = format!(
                "{} took {} in {}",
                call.name,
                time(cost),
                counted(call.count, "call")
            );
            if cost < call.budget.wall_ns {
                text.push_str(" without idle waits");
            }
            if call.count > 1 {
                let _ = write!(text, ", {} each on average", time(cost / call.count));
            }
            let _ = write!(text, ": {}.", words.join(", "));
            self.add(kind, text, anchor("call", &call.name), cost);
            self.told.push(&call.name);
        }
    }

    /// The labels of a call's waits, except idle waits and waits for work, longest first.
    fn labels_of(&self, call: &str) -> Vec<(u64, &'a str)> {
        let matrix = &self.report.matrix;
        let rows = matrix.calls.iter().zip(&matrix.cells);
        let mut labels: Vec<(u64, &str)> = rows
            .filter(|(name, _)| *name == call)
            .flat_map(|(_, row)| matrix.labels.iter().zip(row))
            .filter(|(label, _)| label.class != "idle")
            .map(|(label, cell)| {
                let resting = self.resting_for(call, &label.label);
                (
                    cell.blocked_ns.saturating_sub(resting),
                    label.label.as_str(),
                )
            })
            .collect();
        labels.sort_by_key(|(ns, label)| (std::cmp::Reverse(*ns), *label));
        labels
    }

    /// The part of a call's waits with a label that is for work: the table of waits may have left out rows of it.
    fn resting_for(&self, call: &str, label: &str) -> u64 {
        if label != rest::FUTEX {
            return 0;
        }
        let report = self.report;
        let mut calls = report.calls.iter().chain(&report.between_calls);
        let found = calls.find(|found| found.name == call);
        found.map_or(0, |found| found.resting_ns)
    }

    /// Waits shared by many threads, or made from many places: none of them need be long by itself.
    fn shared_waits(&mut self) {
        let report = self.report;
        let mut cells = Vec::new();
        for (call, row) in report.matrix.calls.iter().zip(&report.matrix.cells) {
            if self.told.contains(&call.as_str()) {
                continue;
            }
            for (label, cell) in report.matrix.labels.iter().zip(row) {
                let is_told = |wait: &&Wait| {
                    let is_here = wait.call == *call && wait.label == label.label;
                    is_here && wait.blocked_ns >= self.least && !wait.is_rest
                };
                let told = report.waits.iter().filter(is_told);
                let told = told.fold(0u64, |sum, wait| sum.saturating_add(wait.blocked_ns));
                let resting = self.resting_for(call, &label.label);
                let blocked = cell.blocked_ns.saturating_sub(resting);
                let is_much = blocked >= self.least && told < blocked / 2;
                if label.class != "idle" && is_much {
                    // How often threads rested is not known of a call.
                    let times = (resting == 0).then_some(cell.sleeps);
                    cells.push((blocked, call, label, times));
                }
            }
        }
        cells.sort_by_key(|(blocked, ..)| std::cmp::Reverse(*blocked));
        for (blocked, call, label, times) in cells.into_iter().take(SHARED) {
            let place = if call == USER { "between calls" } else { call };
            let times =
                times.map_or_else(String::new, |times| format!(" ({} times)", count(times)));
            let text = format!(
                "Threads waited {} for {} in {place}{times}, each thread or place only a part of it.",
                time(blocked),
                label.label
            );
            self.add(FindingKind::Wait, text, "matrix".into(), blocked);
        }
    }

    fn growth(&mut self) {
        let growths = self.report.trends.iter().filter_map(|trend| {
            let (text, weight) = growth_sentence(trend)?;
            Some((text, anchor("trend", &trend.call), weight))
        });
        for (text, evidence, weight) in growths.take(GROWTHS) {
            self.add(FindingKind::Growth, text, evidence, weight);
        }
    }

    fn cpu(&mut self) {
        let calls = self.report.calls.iter().filter(|call| call.count > 0);
        let Some(call) = calls.max_by_key(|call| call.budget.cpu_ns) else {
            return;
        };
        let (cpu, all) = (call.budget.cpu_ns, self.report.totals.cpu_ns);
        if cpu < self.least || all == 0 || self.told.contains(&call.name.as_str()) {
            return;
        }
        let text = format!(
            "{} took {} of CPU time in the kernel, {:.0} % of that of all calls: {} of {} on average.",
            call.name,
            time(cpu),
            100.0 * cpu as f64 / all as f64,
            counted(call.count, "call"),
            time(cpu / call.count.max(1))
        );
        self.add(FindingKind::Cpu, text, anchor("call", &call.name), cpu);
    }

    fn run_queue(&mut self) {
        let report = self.report;
        let off = |budget: &Budget| budget.runqueue_ns.saturating_add(budget.preempted_ns);
        let all = || report.calls.iter().chain(&report.between_calls);
        let sum = |of: fn(&Budget) -> u64| {
            all().fold(0u64, |sum, call| sum.saturating_add(of(&call.budget)))
        };
        let waiting = sum(|budget| budget.runqueue_ns);
        let preempted = sum(|budget| budget.preempted_ns);
        let weight = waiting.saturating_add(preempted);
        if weight < self.least.saturating_mul(5) {
            return;
        }
        let mut text = format!(
            "Threads that could have run waited {} for a CPU after they were woken, and were pushed off \
             one for {}",
            time(waiting),
            time(preempted),
        );
        if let Some(most) = all().max_by_key(|call| off(&call.budget)) {
            let place = match most.name.as_str() {
                USER => "between calls".to_string(),
                name => format!("in {name}"),
            };
            let _ = write!(text, "; {} of that {place}", time(off(&most.budget)));
        }
        text.push('.');
        if let Some(waits) = &report.cpu_waits {
            text.push_str(&cpu_owner_sentence(waits));
        }
        let _ = write!(text, " The machine has {} CPUs.", report.recording.cpus);
        self.add(FindingKind::RunQueue, text, "over-time".into(), weight);
    }

    fn errors(&mut self) {
        for call in &self.report.calls {
            let failed: u64 = call.errors.iter().map(|(_, count)| *count).sum();
            let is_much =
                failed >= ERRORS_MIN && failed as f64 >= call.count as f64 * ERRORS_PART_MIN;
            let cost = self.cost(call);
            if let (true, Some((error, most))) =
                (is_much && cost >= self.least, call.errors.first())
            {
                let text = if *most == failed {
                    format!(
                        "{} of {} calls of {} failed with {error}.",
                        count(failed),
                        count(call.count),
                        call.name
                    )
                } else {
                    format!(
                        "{} of {} calls of {} failed, {} of them with {error}.",
                        count(failed),
                        count(call.count),
                        call.name,
                        count(*most)
                    )
                };
                let weight = (cost as f64 * failed as f64 / call.count.max(1) as f64) as u64;
                let evidence = anchor("call", &call.name);
                self.add(FindingKind::Errors, text, evidence, weight);
            }
        }
    }

    fn spinning(&mut self) {
        let calls = self.report.calls.iter();
        let spin = calls.fold(0u64, |sum, call| call.spin_ns.saturating_add(sum));
        if spin >= self.least {
            let mut text = format!(
                "Threads spun {} for locks of the kernel, on the CPU",
                time(spin)
            );
            let most = self.report.spins.iter().flatten().next();
            if let Some(most) = most {
                let name = most.lock.name.iter().map(|name| format!(" {name}"));
                let _ = write!(
                    text,
                    "; most of it for {}{} in {}, {}",
                    most.lock.kind,
                    name.collect::<String>(),
                    most.site.without_offset(),
                    time(most.spin_ns)
                );
            }
            text.push('.');
            let evidence = if most.is_some() { "spins" } else { "calls" };
            self.add(FindingKind::Spin, text, evidence.into(), spin);
        }
    }

    /// Calls whose longest time in the program is misleading: the program's clock shows a peak that the
    /// call did not have.
    fn user_level(&mut self) {
        let Some(level) = &self.report.user_level else {
            return;
        };
        let misleads = |call: &&UserLevelCall| {
            let more = call.user.max_ns.saturating_sub(call.kernel.max_ns);
            more >= PEAK_MIN_NS && call.user.max_ns / 2 >= call.kernel.max_ns
        };
        for call in level.calls.iter().filter(misleads).take(PEAKS) {
            let why = call.largest.first().map_or("", |one| {
                let outside = one.user_ns.saturating_sub(one.kernel_ns);
                if one.away_ns >= outside / 2 {
                    " The thread was off the CPU then, on its way to the call or back."
                } else if one.calls_ns >= outside / 2 {
                    " Other calls were made in between: a signal's handler, or a piece of a restarted \
                     call."
                } else {
                    ""
                }
            });
            let text = format!(
                "Measured in the program, {} took up to {}; in the kernel never more than {}.{why}",
                call.call,
                time(call.user.max_ns),
                time(call.kernel.max_ns),
            );
            let weight = call.user.max_ns.saturating_sub(call.kernel.max_ns);
            let evidence = anchor("user-level", &call.call);
            self.add(FindingKind::UserLevel, text, evidence, weight);
        }
    }

    /// Threads at rest come after everything that may be a problem.
    fn at_rest(&mut self) {
        let say = |waited: u64, threads: &str| {
            format!(
                "{threads} did little in calls but wait on futexes that no thread held, {} together, and \
                 came back when they were woken: {{}}. That is how threads wait for work; it is left out \
                 of what is said above.",
                time(waited),
            )
        };
        self.aside(Rest::AtRest, &say);
        let say = |waited: u64, threads: &str| {
            format!(
                "{threads} did little in calls but wait on futexes, {} together, and nothing showed what \
                 for: {{}}. Whether they wait for work or are stuck cannot be told; it is left out of \
                 what is said above.",
                time(waited),
            )
        };
        self.aside(Rest::CannotTell, &say);
    }

    fn aside(&mut self, rest: Rest, say: &dyn Fn(u64, &str) -> String) {
        let report = self.report;
        let threads = report.threads.iter();
        let resting: Vec<&Thread> = threads.filter(|one| one.rest == Some(rest)).collect();
        if resting.is_empty() {
            return;
        }
        let threads: Vec<Thread> = resting.iter().map(|thread| (*thread).clone()).collect();
        let waited = threads
            .iter()
            .fold(0u64, |sum, thread| sum.saturating_add(thread.resting_ns));
        let mut names: Vec<String> = Vec::new();
        for thread in &resting {
            if !names.contains(&thread.comm) {
                names.push(thread.comm.clone());
            }
        }
        let left = names.len().saturating_sub(NAMES);
        names.truncate(NAMES);
        if left > 0 {
            names.push(format!("{} more", count(left as u64)));
        }
        let threads_said = match resting.len() {
            1 => "One thread".to_string(),
            several => format!("{several} threads"),
        };
        let mut text = say(waited, &threads_said).replacen("{}", &names.join(", "), 1);
        for wait in rest::elsewhere(&report.waits, &threads)
            .into_iter()
            .take(NAMES)
        {
            text += &format!(
                " Thread {} ({}) waited {} in another place than where its kind waits, called from {}, until {} woke \
                 it: that may have been for a lock of the program's own.",
                wait.tid,
                wait.comm,
                time(wait.blocked_ns),
                wait.caller.as_deref().unwrap_or("an unknown place"),
                wait.waker,
            );
        }
        self.add(FindingKind::Idle, text, "threads".into(), waited);
    }

    fn finish(mut self) -> Vec<Finding> {
        self.found
            .sort_by_key(|(order, finding)| (*order, std::cmp::Reverse(finding.weight_ns)));
        let mut found: Vec<Finding> = self.found.into_iter().map(|(_, finding)| finding).collect();
        if found
            .iter()
            .all(|finding| finding.kind == FindingKind::Idle)
        {
            let text = if self.report.recording.calls == 0 {
                "The history has no calls.".to_string()
            } else {
                format!(
                    "Nothing stands out: {} calls took {} without idle waits, and no wait, no CPU time \
                     and no growth was worth a sentence.",
                    count(self.report.recording.calls),
                    time(self.active)
                )
            };
            let nothing = Finding {
                kind: FindingKind::Nothing,
                text,
                evidence: "calls".into(),
                weight_ns: 0,
            };
            found.insert(0, nothing);
        }
        found
    }
}
