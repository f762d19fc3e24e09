// SPDX-License-Identifier: MIT OR Apache-2.0
//! `debox guard`, triggers and `debox record` without privilege, through the broker: what root gets, of one's own
//! processes, and nothing else. SECURITY.md names the tests.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use debox::history::Call;
use debox_history::History;
use debox_tests::brokered::Place;
use debox_tests::brokered::OTHER;
use debox_tests::brokered::USER;
use debox_tests::debox_binary;
use debox_tests::ms;
use debox_tests::program;
use debox_tests::slowness;
use debox_tests::wait_for;
use debox_tests::KernelObject;
use serde_json::Value;

const LONG: Duration = Duration::from_secs(30);

/// An event loop that blocks three times, for 40 ms each.
const LOOP: &str = "
import asyncio, time
async def main():
    for turn in range(6):
        await asyncio.sleep(0.01)
        if turn % 2:
            time.sleep(0.04)
asyncio.run(main())
";

/// One that goes on, and blocks in each of its turns.
const ENDLESS: &str = "
import asyncio, time
async def main():
    print('on', flush=True)
    while True:
        await asyncio.sleep(0.02)
        time.sleep(0.03)
asyncio.run(main())
";

/// A broker that starts would disturb what another test measures.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());

    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the place's debox as a user.
#[track_caller]
fn debox(place: &Place, user: u32, words: &[&str]) -> Output {
    let debox = place.path().join("debox");
    let debox = debox.to_str().expect("plain text");
    let child = place.start(user, &[&[debox], words].concat());
    let done = child.wait_with_output().expect("own child");
    println!("{}", String::from_utf8_lossy(&done.stderr));
    done
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    said.read_line(&mut line).expect("text");
    line
}

fn kill(child: &mut Child) {
    child.kill().expect("own child");
    child.wait().expect("own child");
}

#[track_caller]
fn json(file: &Path) -> Value {
    let text = fs::read_to_string(file).expect("a result");
    serde_json::from_str(&text).expect("JSON")
}

/// Of each violation: the call, its label and class, and the caller without its offset.
fn violations(result: &Value) -> Vec<Vec<String>> {
    let found = result["violations"].as_array().expect("a list").iter();
    let about = found.map(|one| {
        let texts = ["syscall", "label", "class", "caller"].map(|key| one[key].to_string());
        let names = texts.iter().map(|text| text.split('+').next());
        names
            .map(|name| name.unwrap_or_default().to_string())
            .collect()
    });
    about.collect()
}

/// Guards a loop, as a user or (`None`) as root.
#[track_caller]
fn guard_loop(place: &Place, user: Option<u32>) -> Value {
    let file = place.report_file();
    let path = file.to_str().expect("plain text");
    let words = [
        "guard",
        "--format",
        "json",
        "-o",
        path,
        "--",
        "/usr/bin/python3",
        "-c",
        LOOP,
    ];
    let done = match user {
        Some(user) => debox(place, user, &words),
        None => Command::new(debox_binary())
            .args(words)
            .output()
            .expect("debox runs"),
    };
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{said}");
    json(&file)
}

#[test]
fn a_guard_finds_the_same_without_privilege() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let of_user = guard_loop(&place, Some(USER));
    let of_root = guard_loop(&place, None);
    for found in [&of_user, &of_root] {
        assert_eq!(found["doubts"].to_string(), "[]");
        for one in found["violations"].as_array().expect("a list") {
            let blocked = one["blocked_ns"].as_u64().expect("a number");
            assert!((ms(40)..ms(400)).contains(&blocked), "{one:#}");
            let frames = one["frames"].to_string();
            assert!(frames.contains("clock_nanosleep"), "{frames}");
        }
    }
    assert_eq!(violations(&of_user).len(), 3, "{of_user:#}");
    assert_eq!(violations(&of_user), violations(&of_root));
    let kernel = |found: &Value| found["violations"][0]["kernel_frames"].clone();
    assert_eq!(kernel(&of_user), kernel(&of_root));
    assert!(!kernel(&of_user).to_string().contains("0xffff"));
}

#[test]
fn a_running_loop_is_guarded_if_it_is_ones_own() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let python = ["/usr/bin/python3", "-u", "-c", ENDLESS];
    let mut loops = [USER, OTHER].map(|user| place.start(user, &python));
    for one in &mut loops {
        assert_eq!(first_line(one), "on\n");
    }
    let file = place.report_file();
    let path = file.to_str().expect("plain text");
    let guard = |pid: u32, more: &[&str]| {
        let pid = pid.to_string();
        let words = ["guard", "--format", "json", "-o", path, "--pid", &pid];
        debox(&place, USER, &[&words[..], more].concat())
    };
    let own = guard(loops[0].id(), &["--first"]);
    assert_eq!(own.status.code(), Some(3));
    let found = json(&file);
    assert_eq!(found["violations"][0]["pid"], loops[0].id());
    assert_eq!(found["violations"][0]["syscall"], "clock_nanosleep");
    // Another user's, and root's.
    for pid in [loops[1].id(), std::process::id()] {
        let refused = guard(pid, &["--for", "200ms"]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(125), "{said}");
        assert!(said.contains(&format!("process {pid}")), "{said}");
    }
    loops.iter_mut().for_each(kill);
}

#[test]
fn triggers_act_on_ones_own_processes_without_privilege() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let slow = "syscall == nanosleep && blocked > 10ms && ret == 0 => signal USR1, limit none";
    let label = "label == timer && longest > 10ms => limit none";
    let run = place.report_of(USER, || {
        let run = place.run("trigger").args(["next", "20"]);
        run.options(["--trigger", slow, "--trigger", label])
    });
    assert_eq!(run.fact("at_once"), 20, "before the next instruction");
    assert_eq!(run.fact("handled"), 20);
    assert_eq!(run.fact("foreign"), 0, "by the thread that made the call");
    for trigger in run.report["triggers"].as_array().expect("triggers") {
        assert_eq!(trigger["fired"], 20, "{trigger:#}");
        for none in ["suppressed", "undecided", "signals_failed", "unlisted"] {
            assert_eq!(trigger[none], 0, "{trigger:#}");
        }
        let calls = trigger["calls"].as_array().expect("calls");
        assert_eq!(calls.len(), 20);
        for call in calls {
            assert_eq!(call["syscall"], "nanosleep");
            assert_eq!(call["label"], "timer", "{call:#}");
            let frames = call["frames"].to_string();
            assert!(frames.contains("main"), "{call:#}");
            let kernel = call["kernel_frames"].to_string();
            assert!(kernel.contains("nanosleep"), "{call:#}");
            assert!(!kernel.contains("0xffff"), "{call:#}");
        }
    }
}

/// Neither a program with other rights than its user's, nor one that others may not look into, from the call on by
/// which it became so.
#[test]
fn a_trigger_does_not_signal_programs_with_other_rights() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let other = place.set_user_id(&program("timers"), "with-rights");
    // What it says of itself is not compared: it is not monitored from its execve on.
    let text = format!("{} nanosleep 2 3 > /dev/null", other.display());
    for option in [
        "comm == \"with-rights\" => signal KILL",
        "label == timer => signal KILL",
    ] {
        let run = place.report_of(USER, || {
            let shell = place.command("/bin/sh").args(["-c", &text]);
            shell.options(["--trigger", option])
        });
        assert_eq!(run.report["triggers"][0]["fired"], 0, "{:#}", run.report);
        assert_eq!(run.report["exit_status"], 0);
    }
    let undumpable = place.copy(&program("undumpable"));
    let run = place.report_of(USER, || {
        let run = place.command(&undumpable).args(["10"]);
        run.options(["--trigger", "syscall == prctl => signal KILL"])
    });
    assert_eq!(run.report["triggers"][0]["fired"], 0, "{:#}", run.report);
    // Otherwise it would have been signalled.
    let shell = "kill -0 $$; exit 4";
    let debox = place.path().join("debox");
    let debox = debox.to_str().expect("plain text");
    let trigger = "syscall == kill && ret == 0 => signal KILL";
    let words = [debox, "run", "--trigger", trigger, "--", "sh", "-c", shell];
    let killed = place.start(USER, &words);
    let killed = killed.wait_with_output().expect("own child");
    assert_eq!(killed.status.code(), Some(128 + libc::SIGKILL));
}

/// How often each call was made.
fn counts(calls: &[Call]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for call in calls.iter().filter(|call| call.number >= 0) {
        *counts.entry(call.name.to_string()).or_default() += 1;
    }
    counts
}

/// Records a program as a user or (`None`) as root; whole and without loss.
#[track_caller]
fn record(place: &Place, user: Option<u32>, name: &str, arguments: &[&str]) -> Vec<Call> {
    let directory = place.report_file();
    let file = directory.with_extension("parquet");
    let path = file.to_str().expect("plain text");
    let copy = place.copy(&program(name));
    let copy = copy.to_str().expect("plain text");
    let words = [&["record", "-o", path, "--", copy], arguments].concat();
    let done = match user {
        Some(user) => debox(place, user, &words),
        None => Command::new(debox_binary())
            .args(words)
            .stdout(Stdio::null())
            .output()
            .expect("debox runs"),
    };
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let history = History::open(&[&file]).expect("a history");
    let meta = &history.files[0].meta;
    assert!(meta.complete && meta.lost.records == 0, "{meta:?}");
    history.calls().map(|call| call.expect("a row").1).collect()
}

#[test]
fn a_recording_has_every_call_without_privilege() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let of_user = record(&place, Some(USER), "count", &[]);
    let of_root = record(&place, None, "count", &[]);
    assert_eq!(counts(&of_user), counts(&of_root));
    assert_eq!(counts(&of_user)["getppid"], 10_000);
    for call in &of_user {
        let budget = &call.budget;
        let parts = budget.cpu_ns + budget.blocked_ns + budget.runqueue_ns + budget.preempted_ns;
        assert_eq!(parts, call.wall_ns, "{call:#?}");
    }
    let slept = record(&place, Some(USER), "pipe_read", &["thread", "50", "4"]);
    let waits = slept.iter().filter(|call| {
        let is_read = &*call.name == "read" && call.budget.blocked_ns > ms(40);
        is_read && !call.sleeps.is_empty()
    });
    let waits: Vec<&Call> = waits.collect();
    assert_eq!(waits.len(), 4, "{waits:#?}");
    for call in waits {
        let sleep = call.sleeps.iter().max_by_key(|sleep| sleep.blocked_ns);
        let sleep = sleep.expect("a sleep");
        assert_eq!(&*sleep.label, "pipe empty");
        assert_eq!(sleep.waker_comm.as_deref(), Some("writer"));
        let kernel = sleep.stack.as_deref().unwrap_or_default();
        assert!(
            kernel.contains("pipe_read") && !kernel.contains("0x"),
            "{kernel}"
        );
        let stack = call.stack.as_deref().unwrap_or_default();
        assert!(stack.contains("main"), "{stack}");
    }
}

/// The numbers in a recording are those of its user's PID namespace.
#[test]
fn records_have_the_numbers_of_the_users_pid_namespace() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let Some(wrap) = place.words_in_namespace(USER) else {
        return;
    };
    let file = place.path().join("inside.parquet");
    let reader = place.copy(&program("pipe_read"));
    let done = Command::new(&wrap[0])
        .args(&wrap[1..])
        .arg(place.path().join("debox"))
        .args(["record", "-o"])
        .arg(&file)
        .arg("--")
        .arg(reader)
        .args(["child", "20", "3"])
        .current_dir("/")
        .output()
        .expect("unshare runs");
    assert!(done.status.success(), "{done:?}");
    let history = History::open(&[&file]).expect("a history");
    let mut count = 0;
    for call in history.calls() {
        let call = call.expect("a row").1;
        assert!(call.pid < 100 && call.tid < 100, "{call:#?}");
        count += 1;
    }
    assert!(count > 10, "{count} records");
}

/// A client that does not fetch its records makes nobody wait. What had no room is counted.
#[test]
fn records_that_are_not_fetched_are_lost_and_counted() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let client = place.copy(&program("broker_client"));
    let count = place.copy(&program("count"));
    let path = |path: &Path| path.to_str().expect("plain text").to_string();
    let words = [
        path(&client),
        "idle".to_string(),
        path(&place.socket()),
        path(&count),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = place.start(USER, &words).wait_with_output();
    let done = done.expect("own child");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{done:?}");
    let number = |name: &str| -> u64 {
        let lines = said.lines();
        let line = lines.filter_map(|line| line.strip_prefix(name)).next();
        line.and_then(|number| number.trim().parse().ok())
            .unwrap_or_else(|| panic!("no {name} in {said}"))
    };
    let (fetched, lost) = (number("fetched "), number("lost "));
    // The program makes more than 11,882 calls; the buffer has room for some hundred.
    assert!((100..1_000).contains(&fetched), "{fetched} of {lost}");
    assert!((11_882..13_000).contains(&(fetched + lost)), "{said}");
}

/// A guard whose broker ends goes on with the next one, and does not say that nothing blocked. Whatever is killed,
/// nothing is left.
#[test]
fn a_guard_outlives_a_killed_broker_and_doubts() {
    let _alone = alone();
    let mut place = Place::with_broker(&[]);
    let before = place.broker_descriptors();
    let debox = place.path().join("debox");
    let debox = debox.to_str().expect("plain text");
    let file = place.report_file();
    let path = file.to_str().expect("plain text");
    let calm = "
import asyncio
async def main():
    print('on', flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
";
    let start = |place: &Place| {
        let words = [
            debox,
            "guard",
            "--format",
            "json",
            "-o",
            path,
            "--",
            "/usr/bin/python3",
            "-c",
            calm,
        ];
        let mut guard = place.start(USER, &words);
        assert_eq!(first_line(&mut guard), "on\n");
        guard
    };
    // A client that is killed. Its program goes on.
    let mut guard = start(&place);
    let own = guard.id();
    let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
    kill(&mut guard);
    let left = children.expect("its program").trim().parse::<i32>();
    // SAFETY: the number is that of the guarded program, which nobody else ends.
    unsafe { libc::kill(left.expect("one child"), libc::SIGKILL) };
    let is_as_before = |place: &Place| place.broker_descriptors() <= before;
    assert!(
        wait_for(LONG, || is_as_before(&place)),
        "descriptors are left"
    );
    // A broker that is killed.
    let guard = start(&place);
    std::thread::sleep(Duration::from_millis(300) * slowness() as u32);
    let held = KernelObject::held_by(place.broker_pid());
    place.kill_broker();
    let gone = wait_for(LONG, || !held.iter().any(|object| object.exists()));
    assert!(gone, "the broker left objects in the kernel");
    place.start_broker(&[]);
    let descriptors = place.broker_descriptors();
    let is_asked = wait_for(LONG, || place.broker_descriptors() > descriptors);
    assert!(is_asked, "nobody asks the new broker");
    // SAFETY: the process is our own and not waited for yet. It passes this on to its command.
    unsafe { libc::kill(guard.id() as i32, libc::SIGTERM) };
    let done = guard.wait_with_output().expect("own child");
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    let doubts = json(&file)["doubts"].to_string();
    assert!(doubts.contains("did not answer 1 time"), "{doubts}");
    let is_as_before = || place.broker_descriptors() == descriptors;
    assert!(wait_for(LONG, is_as_before), "the broker kept descriptors");
}

/// A process of each user that waits for a lock, which its child holds.
struct Planted {
    waiters: [Child; 2],
}

impl Planted {
    fn new(place: &Place) -> Planted {
        let waiter = place.copy(&program("flock_wait"));
        let waiter = waiter.to_str().expect("plain text").to_string();
        let waiters = [USER, OTHER].map(|user| {
            let file = place.path().join(format!("lock-{user}"));
            let file = file.to_str().expect("plain text");
            place.start(user, &[&waiter, file, "60000"])
        });
        for one in &waiters {
            let call = format!("/proc/{}/syscall", one.id());
            let waits = || {
                let text = fs::read_to_string(&call).unwrap_or_default();
                text.starts_with(&format!("{} ", libc::SYS_flock))
            };
            assert!(wait_for(LONG, waits), "it does not wait");
        }
        Planted { waiters }
    }

    fn pid(&self, at: usize) -> u32 {
        self.waiters[at].id()
    }

    fn holder(&self, at: usize) -> u32 {
        let pid = self.pid(at);
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        children
            .expect("its children")
            .trim()
            .parse()
            .expect("one child")
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let holders = [0, 1].map(|at| self.holder(at));
        self.waiters.iter_mut().for_each(kill);
        for holder in holders {
            // SAFETY: takes two numbers; the child lives until its parent, or this, ends it.
            unsafe { libc::kill(holder as i32, libc::SIGKILL) };
        }
    }
}

/// While a user records, the broker refuses every further session of that user, whatever its kind.
#[test]
fn recordings_guards_and_views_count_for_the_users_quota() {
    let _alone = alone();
    let place = Place::with_broker(&["--runs-per-user", "1"]);
    let output = place.report_file().with_extension("parquet");
    let output = output.to_str().expect("plain text");
    let kinds: [&[&str]; 4] = [
        &["run", "--", "true"],
        &["record", "-o", output, "--", "true"],
        &["guard", "--", "true"],
        &["top", "--batch", "-n", "1", "--interval", "100ms"],
    ];
    let debox_path = place.path().join("debox");
    let debox_path = debox_path.to_str().expect("plain text");
    let mut first = place.start(
        USER,
        &[
            debox_path,
            "record",
            "-o",
            output,
            "--",
            "sh",
            "-c",
            "echo on; exec sleep 60",
        ],
    );
    assert_eq!(first_line(&mut first), "on\n");
    for words in kinds {
        let done = debox(&place, USER, words);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(125), "{words:?}: {said}");
        assert!(
            said.contains("reached the limit of simultaneous runs"),
            "{words:?}: {said}"
        );
    }
    let other = debox(&place, OTHER, kinds[0]);
    assert!(other.status.success(), "{other:?}");
    // SAFETY: the process is our own and not waited for yet. It passes this on to its command.
    unsafe { libc::kill(first.id() as i32, libc::SIGTERM) };
    first.wait().expect("own child");
    let again = wait_for(LONG, || debox(&place, USER, kinds[0]).status.success());
    assert!(again, "what was given is not taken back");
}

#[test]
fn a_view_shows_ones_own_processes_without_privilege() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let planted = Planted::new(&place);
    let looks = |done: Output| -> Vec<Value> {
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(0), "{said}");
        let text = String::from_utf8(done.stdout).expect("text");
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    };
    let words = [
        "top",
        "--batch",
        "--format",
        "json",
        "-n",
        "3",
        "--interval",
        "300ms",
    ];
    let own = looks(debox(&place, USER, &words));
    assert_eq!(own.len(), 3);
    let rows = own[2]["rows"].as_array().expect("rows");
    let row_of = |rows: &[Value], pid: u32| {
        let row = rows.iter().find(|row| row["pid"] == pid);
        row.cloned()
    };
    let row = row_of(rows, planted.pid(0)).expect("the waiter's row");
    let holder = format!("holder/{}", planted.holder(0));
    assert_eq!(row["why"][0]["what"], "flock", "{row:#}");
    assert_eq!(row["held_by"][0]["what"], holder.as_str(), "{row:#}");
    let (interval, waited) = (&own[2]["interval_ns"], &row["waiting_ns"]);
    let (interval, waited) = (interval.as_u64().unwrap(), waited.as_u64().unwrap());
    assert!(
        waited.abs_diff(interval) < ms(50) * slowness(),
        "{waited} of {interval}"
    );
    for rows in own
        .iter()
        .map(|look| look["rows"].as_array().expect("rows"))
    {
        let other = row_of(rows, planted.pid(1));
        assert!(other.is_none(), "another user's: {other:#?}");
    }
    // Root's own view of the same process.
    let pid = planted.pid(0).to_string();
    let of_root = Command::new(debox_binary())
        .args(words)
        .args(["-p", &pid])
        .output()
        .expect("debox runs");
    let of_root = looks(of_root);
    let rows = of_root[2]["rows"].as_array().expect("rows");
    let same = row_of(rows, planted.pid(0)).expect("the waiter's row");
    for key in ["why", "held_by", "stack"] {
        let names = |row: &Value| row[key][0]["what"].clone();
        assert_eq!(names(&same), names(&row), "{key}");
    }
    // Another user's, by its number.
    let pid = planted.pid(1).to_string();
    let refused = debox(&place, USER, &[&words[..], &["-p", &pid]].concat());
    assert_eq!(refused.status.code(), Some(125));
}
