//! What a guard found, as `debox.guard/1` and as JUnit XML for test runners.

use anyhow::Result;
use debox::frame::{unfold, Frame};
use debox::history::Sleep;
use debox::runtimes::{Phase, Runtimes};
use debox::Missing;
use kit_console::printable;
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use serde::Serialize;

use super::watch::{self, Watch};
use crate::task_name::task_name;
use crate::units;

pub const SCHEMA: &str = "debox.guard/1";

/// The whole result, described by `debox/schema/guard-1.json`.
#[derive(Debug, Clone, Serialize)]
pub struct Guarded {
    pub schema: &'static str,
    /// Nothing blocked, and no record was lost.
    pub ok: bool,
    pub threads: Vec<Thread>,
    pub violations: Vec<Violation>,
    /// Violations beyond the ten thousand that are kept.
    pub violations_left_out: u64,
    /// Why blocking cannot be ruled out.
    pub doubts: Vec<String>,
    /// How to get a better result.
    pub hints: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub waits: u64,
    pub calls: u64,
    pub longest_blocked_ns: u64,
    pub runtime_waits: Vec<RuntimeWaits>,
}

/// Waits of a runtime itself, matched by one of its rules.
#[derive(Debug, Clone, Serialize)]
pub struct RuntimeWaits {
    pub runtime: String,
    pub phase: Phase,
    pub why: String,
    pub count: u64,
    pub blocked_ns: u64,
    pub longest_ns: u64,
    /// Part of `blocked_ns` in which the thread that ended the wait was runnable, but waited for a CPU.
    pub without_cpu_ns: u64,
}

/// A rule whose waits are limited.
#[derive(Debug, Clone, Serialize)]
pub struct Limit {
    pub runtime: String,
    pub phase: Phase,
    pub why: String,
    /// Limit for one turn of the loop.
    pub up_to_ns: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Violation {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub syscall: String,
    /// Label of the longest sleep.
    pub label: String,
    pub class: String,
    pub blocked_ns: u64,
    pub wall_ns: u64,
    /// When the call began, since the start of the guard.
    pub at_ns: u64,
    /// When the call began, by `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    pub resource: Option<String>,
    pub owners: Vec<Owner>,
    pub waker: Option<String>,
    /// Set if the call is the runtime's own, and such calls exceeded their limit in this turn of the loop.
    pub limit: Option<Limit>,
    /// The innermost function that belongs to the program.
    pub caller: Option<String>,
    /// The program's stack, innermost function first.
    pub frames: Vec<Frame>,
    /// The kernel's stack at the longest sleep.
    pub kernel_frames: Vec<Frame>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Owner {
    pub certainty: String,
    pub comm: Option<String>,
    pub tid: Option<u32>,
    pub doing: Option<String>,
}

/// When the guard began, by two clocks.
pub struct Times {
    started_ns: u64,
}

impl Times {
    pub fn now() -> Times {
        Times {
            started_ns: debox::session::monotonic_ns(),
        }
    }

    pub fn violation(&self, watch: &Watch, violation: &watch::Violation) -> Violation {
        let call = &violation.call;
        let limit = violation.rule.map(|index| watch.rule(index));
        let longest = call.sleeps.iter().max_by_key(|sleep| sleep.blocked_ns);
        let text = |of: fn(&Sleep) -> &str| longest.map_or("unknown", of).to_string();
        let mut owners: Vec<Owner> = Vec::new();
        for owner in call.sleeps.iter().filter_map(owner) {
            if !owners.contains(&owner) {
                owners.push(owner);
            }
        }
        Violation {
            pid: call.pid,
            tid: call.tid,
            comm: call.comm.to_string(),
            syscall: call.name.to_string(),
            label: text(|sleep| &sleep.label),
            class: text(|sleep| &sleep.class),
            blocked_ns: call.budget.blocked_ns,
            wall_ns: call.wall_ns,
            at_ns: call.start_ns.saturating_sub(self.started_ns),
            monotonic_ns: call.start_ns,
            resource: longest.and_then(resource),
            owners,
            waker: longest.map(waker),
            limit: limit.map(|rule| Limit {
                runtime: rule.runtime.clone(),
                phase: rule.phase,
                why: rule.why.clone(),
                up_to_ns: rule.up_to_us.unwrap_or_default().saturating_mul(1000),
            }),
            caller: call.caller.as_ref().map(|caller| caller.to_string()),
            frames: frames(call.stack.as_deref()),
            kernel_frames: frames(longest.and_then(|sleep| sleep.stack.as_deref())),
        }
    }
}

fn owner(sleep: &Sleep) -> Option<Owner> {
    let certainty = sleep.owner_certainty.as_deref()?;
    Some(Owner {
        certainty: certainty.to_string(),
        comm: sleep.owner_comm.as_deref().map(String::from),
        tid: sleep.owner_tid,
        doing: sleep.owner_doing.as_deref().map(String::from),
    })
}

fn resource(sleep: &Sleep) -> Option<String> {
    let kind = sleep.resource_kind.as_deref()?;
    Some(match sleep.resource.as_deref() {
        Some(name) => format!("{kind} {name}"),
        None => kind.to_string(),
    })
}

fn waker(sleep: &Sleep) -> String {
    match (&sleep.waker_comm, sleep.waker_tid) {
        (Some(comm), Some(tid)) => task_name(comm, tid),
        _ => match &*sleep.waker_kind {
            "hardirq" => "an interrupt".to_string(),
            "softirq" => "a soft interrupt".to_string(),
            other => other.to_string(),
        },
    }
}

/// Innermost first.
fn frames(folded: Option<&str>) -> Vec<Frame> {
    folded.map(unfold).unwrap_or_default()
}

/// A loop's runtime waits, longest first.
fn runtime_waits(watch: &Watch, looper: &watch::Looper) -> Vec<RuntimeWaits> {
    let waits = looper.runtime.iter().filter(|(_, waits)| waits.count > 0);
    let mut waits: Vec<RuntimeWaits> = waits
        .map(|(index, waits)| {
            let rule = watch.rule(*index);
            RuntimeWaits {
                runtime: rule.runtime.clone(),
                phase: rule.phase,
                why: rule.why.clone(),
                count: waits.count,
                blocked_ns: waits.blocked_ns,
                longest_ns: waits.longest_ns,
                without_cpu_ns: waits.without_cpu_ns,
            }
        })
        .collect();
    waits.sort_by_key(|waits| std::cmp::Reverse(waits.blocked_ns));
    waits
}

/// A hint for futex waits without function names: a runtime is recognized by the names of its functions.
fn without_names(watch: &Watch, violations: &[Violation]) -> Option<String> {
    let are_nameless =
        |one: &&Violation| one.syscall == "futex" && !Runtimes::builtin().have_names(&one.frames);
    let nameless = violations.iter().filter(are_nameless).count();
    let says = nameless > 0 && !watch.is_strict();
    says.then(|| {
        format!(
            "{} of the calls that blocked waited on a futex in code without function names: by them it shows \
             whether a runtime's worker waited for work, which is no blocking. A program that is not stripped has \
             them, and packages of debug symbols do.",
            units::count(nameless as u64)
        )
    })
}

impl Guarded {
    pub fn of(watch: &Watch, times: &Times, missing: &Missing) -> Guarded {
        let threads: Vec<Thread> = watch
            .threads()
            .map(|looper| Thread {
                pid: looper.pid,
                tid: looper.tid,
                comm: looper.comm.clone(),
                waits: looper.waits,
                calls: looper.calls,
                longest_blocked_ns: looper.longest_blocked_ns,
                runtime_waits: runtime_waits(watch, looper),
            })
            .collect();
        let violations: Vec<Violation> = watch
            .violations
            .iter()
            .map(|violation| times.violation(watch, violation))
            .collect();
        let is_loop = |tid: &&u32| threads.iter().any(|thread| thread.tid == **tid);
        let left = missing.left.iter().filter(is_loop).count() as u64;
        let mut doubts = Vec::new();
        if threads.is_empty() {
            doubts.push(
                "No event loop was seen, so that nothing was guarded: a loop is a thread that waits \
                 for events (epoll_wait, io_uring_enter; poll and select in a main thread); --thread \
                 names one."
                    .to_string(),
            );
        }
        for (count, what, happened) in [
            (missing.records, "call", "not recorded"),
            (missing.threads, "thread", "not monitored"),
            (missing.probe_misses, "event", "not shown by the kernel"),
            (
                left,
                "event loop",
                "no longer guarded, because of rights other than the guard's",
            ),
        ] {
            if count > 0 {
                let what = units::counted(count, what);
                doubts.push(format!("{what} {} {happened}.", units::were(count)));
            }
        }
        doubts.extend(missing.left_out.iter().cloned());
        if missing.interruptions > 0 {
            let times = units::counted(missing.interruptions, "time");
            doubts.push(format!(
                "The broker ended or did not answer {times}: what happened until the next one was asked is not known."
            ));
        }
        Guarded {
            schema: SCHEMA,
            ok: violations.is_empty() && doubts.is_empty(),
            threads,
            hints: without_names(watch, &violations).into_iter().collect(),
            violations,
            violations_left_out: watch.left_out,
            doubts,
        }
    }

    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

impl Guarded {
    /// JUnit XML: one test case for each loop, and one for whether every record was seen.
    pub fn junit(&self) -> Result<String> {
        let mut suite = TestSuite::new("debox guard");
        for thread in &self.threads {
            let own = self.violations.iter().filter(|one| one.tid == thread.tid);
            let own: Vec<&Violation> = own.collect();
            let status = match own.as_slice() {
                [] => TestCaseStatus::success(),
                [first, ..] => {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                    status.set_type("blocked");
                    status.set_message(format!(
                        "{} calls blocked: {}",
                        own.len(),
                        first.sentence()
                    ));
                    let texts: Vec<String> = own.iter().map(|one| one.in_full()).collect();
                    status.set_description(texts.join("\n"));
                    status
                }
            };
            let comm = printable(&thread.comm);
            let name = format!("{comm}/{} never blocks", thread.tid);
            let mut case = TestCase::new(name, status);
            case.set_classname("event loop");
            suite.add_test_case(case);
        }
        let status = if self.doubts.is_empty() {
            TestCaseStatus::success()
        } else {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_type("unseen");
            status.set_message(printable(&self.doubts.join(" ")));
            status
        };
        let mut case = TestCase::new("everything was seen", status);
        case.set_classname("event loop");
        suite.add_test_case(case);
        let mut report = quick_junit::Report::new("debox guard");
        report.add_test_suite(suite);
        Ok(report.to_string()?)
    }
}

impl Violation {
    /// One line for people: `server/4711 slept 4.20 ms in fsync (journal commit)`.
    pub fn sentence(&self) -> String {
        let mut text = format!(
            "{}/{} slept {} in {} ({})",
            self.comm,
            self.tid,
            units::time(self.blocked_ns),
            self.syscall,
            self.label
        );
        if let Some(resource) = &self.resource {
            text.push_str(&format!(", for {resource}"));
        }
        for owner in self.owners.iter().filter(|owner| owner.comm.is_some()) {
            let comm = owner.comm.as_deref().unwrap_or_default();
            let tid = owner.tid.unwrap_or_default();
            let name = task_name(comm, tid);
            text.push_str(&format!(", held by {name} ({})", owner.certainty));
            if let Some(doing) = &owner.doing {
                text.push_str(&format!(", then in: {doing}"));
            }
        }
        if let Some(waker) = &self.waker {
            text.push_str(&format!(", woken by {waker}"));
        }
        if let Some(limit) = &self.limit {
            text.push_str(&format!(
                " ({}, {}: {}; more than {} in one turn of the loop)",
                limit.runtime,
                limit.phase,
                limit.why,
                units::time(limit.up_to_ns)
            ));
        }
        printable(&text).into_owned()
    }

    /// The sentence, with the call's stack.
    fn in_full(&self) -> String {
        let mut text = format!("at {}: {}\n", units::time(self.at_ns), self.sentence());
        for frame in &self.frames {
            text.push_str(&format!("    {}\n", printable(&frame.to_string())));
        }
        text
    }
}
