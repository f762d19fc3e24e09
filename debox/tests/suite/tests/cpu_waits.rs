// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who had the CPU that threads waited for, against what is known of the machine at that time: planted
//! competitors, and the kernel's own account of a quota.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use debox::history::{Call, CpuWait};
use debox_history::History;
use debox_tests::{
    debox_binary, ms, program, require_root, skipped, Debox, Facts, Group, Limit, Measured, Scratch,
};
use serde_json::Value;

/// Competitors of one test would be those of another, too.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());

    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program on the first CPU that does nothing but compute, under another name.
struct Competitor {
    child: Child,
    _place: Option<Scratch>,
}

impl Competitor {
    fn start(before: &[&str]) -> Competitor {
        require_root();
        let place = Scratch::new();
        let copy = place.file("competitor");
        fs::copy(program("one_core"), &copy).expect("a copy");
        let words = before.iter().map(|word| word.to_string());
        let mut words: Vec<String> = words.collect();
        words.push(copy.to_str().expect("a path").to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["1", "60000"]);
        let child = command.stdout(Stdio::null()).spawn().expect("it starts");
        let competitor = Competitor {
            child,
            _place: Some(place),
        };
        competitor.await_comm("competitor");
        competitor
    }

    /// For 50 ms of each 100: a real-time task that never sleeps would hold up the test itself.
    fn real_time() -> Competitor {
        require_root();
        let script = "import os, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
open('/proc/self/comm', 'w').write('real-time')
while True:
    end = time.monotonic() + 0.05
    while time.monotonic() < end: pass
    time.sleep(0.05)";
        let child = Command::new("python3").args(["-c", script]).spawn();
        let competitor = Competitor {
            child: child.expect("python3"),
            _place: None,
        };
        competitor.await_comm("real-time");
        competitor
    }

    /// Until it runs under this name.
    fn await_comm(&self, name: &str) {
        let comm = format!("/proc/{}/comm", self.child.id());
        let runs = debox_tests::wait_for(std::time::Duration::from_secs(20), || {
            fs::read_to_string(&comm).is_ok_and(|comm| comm.trim_end() == name)
        });
        assert!(runs, "{name} runs");
    }
}

impl Drop for Competitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn waits(run: &Measured) -> &[Value] {
    run.report["cpu_waits"].as_array().expect("a table")
}

fn ns(row: &Value) -> u64 {
    row["ns"].as_u64().expect("a time")
}

fn sum<'a>(rows: impl IntoIterator<Item = &'a Value>) -> u64 {
    rows.into_iter().map(ns).sum()
}

/// Of what processes had: that they had it so much of the time.
#[track_caller]
fn mostly(run: &Measured, is_it: impl Fn(&Value) -> bool) {
    let all = sum(waits(run));
    let its = sum(waits(run).iter().filter(|row| is_it(row)));
    assert!(all > ms(100), "{all} of {:#?}", waits(run));
    // Other work on the machine has its turns, too.
    assert!(its as f64 >= all as f64 * 0.5, "{its} of {:#?}", waits(run));
}

#[test]
fn a_competitor_is_named() {
    let _alone = alone();
    let competitor = Competitor::start(&[]);
    let run = Debox::run("one_core").args(["1", "1000"]).report();
    let pid = u64::from(competitor.child.id());
    mostly(&run, |row| {
        row["kind"] == "task" && row["comm"] == "competitor" && row["pid"] == pid
    });
    let row = waits(&run).iter().find(|row| row["pid"] == pid);
    let row = row.expect("its row");
    assert_eq!(row["cpus_allowed"], 1, "{row:#}");
    assert_eq!(
        (&row["is_own"], &row["is_real_time"]),
        (&false.into(), &false.into())
    );
    let shares = run.report["headline"]["shares"].as_array().expect("shares");
    let waited = shares
        .iter()
        .find(|share| share["cause"] == "waiting for a CPU");
    assert_eq!(
        waited.expect("a share")["owner"],
        "competitor",
        "{shares:#?}"
    );
}

#[test]
fn a_real_time_task_is_told_as_one() {
    let _alone = alone();
    let _competitor = Competitor::real_time();
    let run = Debox::run("one_core").args(["1", "1000"]).report();
    let is_it = |row: &&Value| row["comm"] == "real-time" && row["is_real_time"] == true;
    let its = sum(waits(&run).iter().filter(is_it));
    assert!(its >= ms(200), "{its} of {:#?}", waits(&run));
}

#[test]
fn its_own_threads_are_told_as_such() {
    let _alone = alone();
    let run = Debox::run("one_core").args(["2", "1000"]).report();
    mostly(&run, |row| row["kind"] == "task" && row["is_own"] == true);
}

#[test]
fn it_is_left_out_when_it_is_not_asked_for() {
    let run = Debox::run("one_core").args(["2", "200"]);
    let run = run.options(["--detail", "sleeps"]).report();
    assert!(waits(&run).is_empty());
}

/// Kernels before 6.6 keep no clock of it. There it is the whole of the waits that began while the group was
/// throttled, and nothing of those that began before: one period of the quota may be missing.
#[track_caller]
fn assert_agrees(told: u64, known: u64) {
    match debox_tests::kernel_has("throttled_clock_self_time") {
        true => assert!(told.abs_diff(known) <= ms(20), "{told} of {known}"),
        false => assert!(told + ms(100) >= known, "{told} of {known}"),
    }
}

#[test]
fn a_quota_is_named_and_is_as_long_as_the_kernel_says() {
    let _alone = alone();
    let name = "a_quota_is_named_and_is_as_long_as_the_kernel_says";
    let group = match Group::new(Limit::Cpu) {
        Ok(group) => group,
        Err(error) => return skipped(name, &error),
    };
    // Each try of the harness adds to what the group was kept from.
    let before = group.throttled_ns();
    let run = Debox::run("one_core")
        .args(["1", "1000"])
        .within(&group)
        .report_of_one_run();
    let known = group.throttled_ns() - before;
    let quota: Vec<&Value> = waits(&run)
        .iter()
        .filter(|row| row["kind"] == "quota")
        .collect();
    let told = sum(quota.iter().copied());
    assert!(known > ms(300), "the quota was in force: {known}");
    let row = quota.first().expect("a row");
    let comm = group.path().file_name().and_then(|name| name.to_str());
    assert_eq!(row["group"].as_str(), comm, "{row:#}");
    assert_eq!(
        (&row["quota_ns"], &row["period_ns"]),
        (&ms(20).into(), &ms(100).into())
    );
    let most = &run.report["headline"]["shares"][0];
    assert_eq!(most["cause"], "CPU quota", "{:#}", run.report["headline"]);
    assert_agrees(told, known);
}

/// The rows of a recording, and what the program printed.
fn record(options: &[&str], command: &[&str]) -> (Scratch, std::path::PathBuf, Facts) {
    require_root();
    let scratch = Scratch::new();
    let file = scratch.file("trace.parquet");
    let done = Command::new(debox_binary())
        .args(["record", "-o"])
        .arg(&file)
        .args(options)
        .arg("--")
        .args(command)
        .output()
        .expect("debox can be executed");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let facts = Facts::from_output(&String::from_utf8_lossy(&done.stdout)).expect("facts");
    (scratch, file, facts)
}

fn calls_of(file: &std::path::Path) -> Vec<Call> {
    let history = History::open(&[file]).expect("a history");
    let calls = history.calls().map(|call| call.expect("a row").1);
    calls.collect()
}

fn waited(call: &Call) -> u64 {
    call.budget.runqueue_ns + call.budget.preempted_ns
}

fn cpu_wait(call: &Call) -> &CpuWait {
    call.cpu_wait.as_ref().expect("it was measured")
}

fn throttled(calls: &[Call]) -> u64 {
    calls.iter().map(|call| cpu_wait(call).throttled_ns).sum()
}

fn report_of(file: &std::path::Path) -> Value {
    let done = Command::new(debox_binary())
        .args(["report", "--json"])
        .arg(file)
        .output()
        .expect("debox can be executed");
    serde_json::from_slice(&done.stdout).expect("a report")
}

#[test]
fn a_recording_names_for_each_call_who_had_the_cpu() {
    let _alone = alone();
    let competitor = Competitor::start(&[]);
    let pid = competitor.child.id();
    let program = program("long_calls");
    let (_scratch, file, facts) = record(&[], &[program.to_str().expect("a path"), "1000"]);
    let calls = calls_of(&file);
    for call in calls.iter().filter(|call| !call.in_flight) {
        let wait = cpu_wait(call);
        let owner_ns = wait.owner.as_ref().map_or(0, |owner| owner.ns);
        assert!(wait.throttled_ns + owner_ns <= waited(call), "{call:#?}");
        // Who has waited waited for somebody, or for nobody.
        let is_told = wait.owner.is_some() || wait.throttled_ns > 0;
        assert_eq!(is_told, waited(call) > 0, "{call:#?}");
        if let Some(owner) = &wait.owner {
            let is_process = ["task", "own", "kernel"].contains(&&*owner.kind);
            assert_eq!(
                (owner.pid.is_some(), owner.comm.is_some()),
                (is_process, is_process)
            );
        }
    }
    let long: Vec<&Call> = calls
        .iter()
        .filter(|call| &*call.name == "getrandom")
        .collect();
    assert!(long.len() as u64 >= facts.get("calls"), "{}", long.len());
    let all: u64 = long.iter().map(|call| waited(call)).sum();
    let its = long.iter().filter_map(|call| cpu_wait(call).owner.as_ref());
    let its =
        its.filter(|owner| owner.pid == Some(pid) && owner.comm.as_deref() == Some("competitor"));
    let its: u64 = its.map(|owner| owner.ns).sum();
    assert!(all > ms(100), "{all}");
    assert!(its as f64 >= all as f64 * 0.5, "{its} of {all}");
    // The scheduler's own account of the same time.
    let known = facts.get("section_delay_ns");
    assert!(its <= known + ms(5), "{its} of {known}");

    let report = report_of(&file);
    let waits = &report["cpu_waits"];
    let owners = waits["owners"].as_array().expect("owners");
    let told: u64 = owners.iter().map(ns).sum();
    let parts = [&waits["throttled_ns"], &waits["others_ns"]];
    let rest: u64 = parts
        .iter()
        .map(|part| part.as_u64().expect("a time"))
        .sum();
    assert_eq!(waits["waited_ns"].as_u64(), Some(told + rest), "{waits:#}");
    assert_eq!(owners[0]["comm"], "competitor", "{waits:#}");
    let findings = report["findings"].to_string();
    assert!(
        findings.contains(&format!("competitor ({pid})")),
        "{findings}"
    );
}

#[test]
fn a_recording_has_the_quota_as_long_as_the_kernel_says() {
    let _alone = alone();
    let name = "a_recording_has_the_quota_as_long_as_the_kernel_says";
    let group = match Group::new(Limit::Cpu) {
        Ok(group) => group,
        Err(error) => return skipped(name, &error),
    };
    let program = program("long_calls");
    let program = program.to_str().expect("a path");
    let before = group.throttled_ns();
    let enter = group.enter();
    let command = ["/bin/sh", "-c", enter.as_str(), "sh", program, "1000"];
    let (_scratch, file, _) = record(&[], &command);
    let known = group.throttled_ns() - before;
    let told = throttled(&calls_of(&file));
    assert!(known > ms(300), "the quota was in force: {known}");
    assert_agrees(told, known);
    let report = report_of(&file);
    assert_eq!(report["cpu_waits"]["throttled_ns"].as_u64(), Some(told));
    let comm = group.path().file_name().and_then(|name| name.to_str());
    assert_eq!(report["cpu_waits"]["group"].as_str(), comm);
}

fn fired(run: &Measured) -> Vec<u64> {
    let triggers = run.report["triggers"].as_array().expect("triggers");
    let fired = triggers.iter().map(|trigger| trigger["fired"].as_u64());
    fired.map(|count| count.expect("a count")).collect()
}

#[test]
fn triggers_ask_who_had_the_cpu() {
    let _alone = alone();
    let _competitor = Competitor::start(&[]);
    let triggers = [
        "syscall == getrandom && preempted > 1ms && cpu_owner == comp* => limit none",
        "syscall == getrandom && cpu_owner == nothing_such",
        "syscall == getrandom && throttled > 1us",
    ];
    let options = triggers.iter().flat_map(|trigger| ["--trigger", trigger]);
    let run = Debox::run("long_calls")
        .options(options)
        .args(["1000"])
        .report();
    let fired = fired(&run);
    assert!(fired[0] * 2 >= run.fact("calls"), "{fired:?}");
    assert_eq!(fired[1..], [0, 0], "{:#}", run.report["triggers"]);
    let call = &run.report["triggers"][0]["calls"][0];
    assert_eq!(call["cpu_owner"], "competitor", "{call:#}");
    assert_eq!(call["throttled_ns"], 0, "{call:#}");
}

/// Where it happens in a call: since 6.18 threads are throttled by a CPU quota on their way back to
/// user mode only.
#[test]
fn triggers_ask_for_a_quota() {
    let _alone = alone();
    let name = "triggers_ask_for_a_quota";
    let group = match Group::new(Limit::Cpu) {
        Ok(group) => group,
        Err(error) => return skipped(name, &error),
    };
    let trigger = "throttled > 10ms => limit none";
    let run = Debox::run("long_calls")
        .options(["--trigger", trigger])
        .args(["1000"])
        .within(&group)
        .report_of_one_run();
    let fired = fired(&run)[0];
    match debox_tests::kernel_has("sched_throttle_work") {
        true => assert_eq!(fired, 0),
        // Where the processor is emulated, one call takes as long as several periods of the quota.
        false => assert!(fired >= 1, "{fired}"),
    }
}
