// SPDX-License-Identifier: MIT OR Apache-2.0
//! `debox run` without privilege, through the broker: the same report, nothing of others, and what a
//! client may not do to the broker or to others. SECURITY.md names the tests.

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use debox_tests::brokered::Place;
use debox_tests::brokered::OTHER;
use debox_tests::brokered::USER;
use debox_tests::ms;
use debox_tests::program;
use debox_tests::slowness;
use debox_tests::wait_for;
use debox_tests::Debox;
use debox_tests::Measured;
use serde_json::Value;

const LONG: Duration = Duration::from_secs(30);

/// A broker that starts, and storms on it, would disturb what another test measures.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());

    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[track_caller]
fn shows_no_address(run: &Measured) {
    let text = run.report.to_string();
    for start in ["0xffff", "ffffffff"] {
        assert!(!text.contains(start), "an address of the kernel in {text}");
    }
    // Numbers too large for a time are addresses or their names.
    let words = text.split(|c: char| !c.is_ascii_digit());
    let large = words.filter_map(|word| word.parse::<u64>().ok());
    for number in large {
        assert!(number < 1 << 47, "{number} is an address in {text}");
    }
}

#[track_caller]
fn notes(run: &Measured) -> String {
    let unseen = run.report["unseen"].as_array().expect("sentences");
    let sentences = unseen.iter().filter_map(Value::as_str);
    sentences.collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    said.read_line(&mut line).expect("text");
    line
}

/// A named pipe that any user can read.
#[track_caller]
fn make_pipe(place: &Place) -> PathBuf {
    let pipe = place.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()));
    fs::set_permissions(&pipe, fs::Permissions::from_mode(0o666)).expect("own file");
    pipe
}

/// What `pipe_read` knows, under both taps; the names of its files are looked up, too.
#[test]
fn the_report_is_the_same_without_privilege() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    for tap in ["kernel", "user"] {
        let make = || {
            let debox = place.run("pipe_read").options(["--tap", tap]);
            debox.args(["thread", "100", "5"])
        };
        let run = place.report_of(USER, make);
        run.call("read")
            .sleep("pipe empty")
            .count(5)
            .blocked_as_known()
            .waker_task("writer");
        assert_eq!(run.report["tap"], tap);
        let text = run.report["sleeps"].to_string();
        assert!(text.contains("pipe:["), "no name of the pipe in {text}");
        assert!(text.contains("main+0x"), "no caller in {text}");
        assert!(
            notes(&run).contains("through the broker"),
            "{}",
            notes(&run)
        );
        shows_no_address(&run);
    }
}

/// The lines that wait, and what calls wait for that go on, are looked up with the client's own rights.
#[test]
fn a_deadlock_has_its_lines_without_privilege() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let stuck = place.copy(&program("deadlock"));
    let script = format!("timeout 4 {} two; true", stuck.display());
    let make = || place.command("/bin/sh").args(["-c", &script]);
    let run = place.report_of(USER, make);
    let found = run.report["deadlocks"].as_array().expect("a list");
    assert_eq!(found.len(), 1, "{found:#?}");
    let waits = found[0]["waits"].as_array().expect("a list");
    assert_eq!(waits.len(), 2, "{waits:#?}");
    for wait in waits {
        let comm = wait["comm"].as_str().expect("text");
        let caller = wait["caller"].as_str().unwrap_or_default();
        assert!(caller.starts_with(&format!("wait_in_{comm}")), "{wait:#}");
        assert!(caller.contains("deadlock.c:"), "{wait:#}");
    }
}

/// Of its own processes it is told which it was.
#[test]
fn of_other_users_tasks_on_the_cpu_it_is_told_that_there_was_one() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let copy = place.path().join("competitor");
    fs::copy(program("one_core"), &copy).expect("a copy");
    let mut competitor = Command::new(&copy)
        .args(["1", "60000"])
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let run = place.report_of(USER, || place.run("one_core").args(["2", "1000"]));
    competitor.kill().expect("own child");
    competitor.wait().expect("own child");
    let waits = run.report["cpu_waits"].as_array().expect("a table");
    let had = |kind: &str| {
        let rows = waits.iter().filter(|row| row["kind"] == kind);
        rows.filter_map(|row| row["ns"].as_u64()).sum::<u64>()
    };
    // Each of the two threads waits for both others.
    assert!(
        had("hidden") > ms(200) && had("task") > ms(200),
        "{waits:#?}"
    );
    for row in waits.iter().filter(|row| row["kind"] == "task") {
        let is_own = row["is_own"] == true && row["comm"] == "one_core";
        assert!(is_own, "{row:#}");
    }
    assert!(!run.report.to_string().contains("competitor"), "{waits:#?}");
}

#[test]
fn children_are_followed_and_calls_counted_to_the_last_one() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let run = place.report_of(USER, || place.run("children").args(["many", "40"]));
    run.call("getuid").calls(400);
    run.call("wait4").errors(0);
    assert_eq!(run.threads("children").len(), 41);

    // An ending child is known by its name.
    let run = place.report_of(USER, || place.run("children").args(["wait4", "100"]));
    let sleep = run.call("wait4").sleep("child process");
    sleep.count(1).blocked_as_known().waker_task("sleeper");
}

#[test]
fn of_others_it_is_told_that_there_is_one() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let pipe = make_pipe(&place);
    // Root writes into it, some time after the reader has said that it will read.
    let ready = place.path().join("ready");
    let (pipe, ready) = (pipe.display(), ready.display());
    let text = format!(
        "exec 3<>{pipe}; while :; do while [ ! -e {ready} ]; do sleep 0.02; done; rm {ready}; \
         sleep 0.3; echo x >&3; done"
    );
    let mut writer = Command::new("sh").args(["-c", &text]).spawn().expect("sh");
    let read = format!(": > {ready}; read line < {pipe}");
    let run = place.report_of(USER, || {
        let shell = place.command("/bin/sh");
        shell.args(["-c", &read])
    });
    writer.kill().expect("own child");
    writer.wait().expect("own child");
    let sleeps = run.report["sleeps"].as_array().expect("a table");
    let row = sleeps.iter().find(|row| row["label"] == "pipe empty");
    let waker = &row.unwrap_or_else(|| panic!("{sleeps:#?}"))["wakers"][0];
    assert_eq!(waker["comm"], "(another user)", "{waker}");
    assert_eq!(waker["tid"], 0, "{waker}");
    shows_no_address(&run);
}

#[test]
fn numbers_are_those_of_the_users_pid_namespace() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let Some(wrap) = place.words_in_namespace(USER) else {
        return;
    };
    let output = place.report_file();
    let debox = place.run("pipe_read").args(["child", "100", "5"]);
    let debox = debox
        .options(["--format", "json", "--output"])
        .options([&output]);
    let run = debox.finish_under(&wrap).code(0).measured(&output);
    // The namespace begins with number 1.
    let writer = run.fact("writer_tid");
    assert!(writer < 100, "{writer}");
    assert_eq!(run.threads("writer")[0]["tid"], writer);
    let text = run.report["sleeps"].to_string();
    assert!(text.contains("main+0x"), "no caller in {text}");
}

#[test]
fn programs_with_other_rights_are_not_followed() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    for tap in ["kernel", "user"] {
        let other = place.set_user_id(&program("timers"), "with-rights");
        let text = format!("{} nanosleep 20 3 > /dev/null; true", other.display());
        let run = place.report_of(USER, || {
            let shell = place.command("/bin/sh").options(["--tap", tap]);
            shell.args(["-c", &text])
        });
        let said = notes(&run);
        assert!(said.contains("not followed: with-rights"), "{said}");
        assert_eq!(run.count_of("nanosleep"), 0, "{tap}");
    }
}

/// One thread forbids others to look into the process; what the other threads do is no longer seen.
#[test]
fn undumpable_processes_are_left_by_all_their_threads() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let other = place.copy(&program("undumpable"));
    for options in [&[][..], &["--detail", "callsites"]] {
        let run = place.report_of(USER, || {
            place.command(&other).options(options).args(["1000"])
        });
        // The thread's calls until the other one's prctl, and the first one after it.
        let seen = run.count_of("getppid");
        assert!((1000..=1001).contains(&seen), "{options:?}: {seen}");
        let said = notes(&run);
        assert!(said.contains("undumpable"), "{said}");
    }
}

#[test]
fn what_is_not_to_be_had_is_refused_in_a_sentence() {
    let _alone = alone();
    let place = Place::with_broker(&["--runs-per-user", "1"]);
    let refused = |options: &[&str], words: &[&str]| {
        let echo = place.command("/bin/echo").args(["ran"]).options(options);
        let finished = echo.finish_under(&place.words_of(USER)).code(125);
        assert_eq!(finished.says(words).stdout, "");
    };
    refused(&["--trace"], &["--trace", "broker", "sudo"]);
    let long = ["wall > 1111111ns"; 14].join(" && ");
    let long = ["--trigger", &long].repeat(4);
    refused(&long, &["triggers are too long for the broker"]);

    // A second one at the same time is too much for one user, and not for another.
    let debox = place.path().join("debox");
    let debox = debox.to_str().expect("plain text");
    let mut first = place.start(
        USER,
        &[debox, "run", "--", "sh", "-c", "echo on; exec sleep 60"],
    );
    assert_eq!(first_line(&mut first), "on\n");
    let second = place.start(USER, &[debox, "run", "--", "true"]);
    let second = second.wait_with_output().expect("own child");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(125), "{said}");
    assert!(
        said.contains("reached the limit of simultaneous runs"),
        "{said}"
    );
    let other = place.start(OTHER, &[debox, "run", "--", "true"]);
    let other = other.wait_with_output().expect("own child");
    assert!(other.status.success(), "{other:?}");
    // SAFETY: the process is our own and not waited for yet. It passes this on to its command.
    unsafe { libc::kill(first.id() as i32, libc::SIGTERM) };
    first.wait().expect("own child");
    let again = wait_for(LONG, || {
        let again = place.start(USER, &[debox, "run", "--", "true"]);
        let again = again.wait_with_output().expect("own child");
        again.status.success()
    });
    assert!(again, "what was given is not taken back");
    // One run after another is one at a time.
    for _ in 0..3 {
        let next = place.start(USER, &[debox, "run", "--", "true"]);
        let next = next.wait_with_output().expect("own child");
        assert!(next.status.success(), "{next:?}");
    }
}

#[test]
fn without_a_broker_it_says_what_to_do() {
    let _alone = alone();
    let place = Place::new();
    let echo = place.command("/bin/echo").args(["ran"]);
    let finished = echo.finish_under(&place.words_of(USER)).code(125);
    let words = [
        "needs root",
        "no broker answers",
        "sudo",
        "`sudo debox broker`",
    ];
    assert_eq!(finished.says(&words).stdout, "");
}

#[test]
fn doctor_tells_of_the_broker() {
    let _alone = alone();
    let mut place = Place::with_broker(&[]);
    let doctor = || {
        let doctor = Debox::bare(["doctor", "--format", "json"]);
        doctor.binary(&place.path().join("debox"))
    };
    let finding = |text: &str, need: &str| {
        let diagnosis: Value = serde_json::from_str(text).expect("JSON");
        let findings = diagnosis["findings"].as_array().expect("a list");
        let found = findings.iter().find(|finding| finding["need"] == need);
        found.expect("a finding").clone()
    };
    let seen = doctor().finish_under(&place.words_of(USER)).code(0).stdout;
    assert_eq!(finding(&seen, "broker")["standing"], "met", "{seen}");
    assert_eq!(finding(&seen, "privilege")["standing"], "limits", "{seen}");
    place.stop_broker();
    let doctor = Debox::bare(["doctor", "--format", "json"]).binary(&place.path().join("debox"));
    let seen = doctor.finish_under(&place.words_of(USER)).code(1).stdout;
    let found = finding(&seen, "broker");
    assert_eq!(found["standing"], "limits", "{seen}");
    assert!(found["remedy"].to_string().contains("sudo debox broker"));
}

/// The command goes on as if nothing had happened, and the report says what it does not know.
#[test]
fn a_run_outlives_a_killed_broker() {
    let _alone = alone();
    let mut place = Place::with_broker(&[]);
    let debox = place.path().join("debox");
    let debox = debox.to_str().expect("plain text");
    let pipe = make_pipe(&place);
    let text = format!(
        "echo on; sh -c 'read line < {}; exit 3'; echo still $?; exit 7",
        pipe.display()
    );
    for tap in ["kernel", "user"] {
        let output = place.report_file();
        let words = [
            debox,
            "run",
            "--tap",
            tap,
            "--format",
            "json",
            "--output",
            output.to_str().expect("plain text"),
            "--",
            "sh",
            "-c",
            &text,
        ];
        let mut run = place.start(USER, &words);
        let mut said = BufReader::new(run.stdout.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("text");
        assert_eq!(line, "on\n");
        // The first second of it is fetched meanwhile.
        std::thread::sleep(Duration::from_secs(3) * slowness() as u32);
        let held = debox_tests::KernelObject::held_by(place.broker_pid());
        place.kill_broker();
        if tap == "kernel" {
            let gone = wait_for(LONG, || !held.iter().any(|object| object.exists()));
            assert!(gone, "the broker left objects in the kernel");
        } // else slots that a program has mapped stay as long as it runs
          // The next one is asked to go on with the run, whose processes are as they were.
        place.start_broker(&[]);
        let descriptors = place.broker_descriptors();
        if tap == "kernel" {
            let is_asked = || place.broker_descriptors() > descriptors;
            assert!(wait_for(LONG, is_asked), "nobody asks the new broker");
            std::thread::sleep(Duration::from_secs(3) * slowness() as u32);
        }
        fs::write(&pipe, "go\n").expect("the shell reads");
        let mut rest = String::new();
        said.read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "still 3\n");
        assert_eq!(run.wait().expect("own child").code(), Some(7));
        let is_as_before = || place.broker_descriptors() == descriptors;
        assert!(wait_for(LONG, is_as_before), "the broker kept descriptors");
        let text = fs::read_to_string(&output).expect("a report");
        let report: Value = serde_json::from_str(&text).expect("JSON");
        assert!(text.contains("The broker ended during the run"), "{text}");
        assert!(text.contains("s is missing"), "{text}");
        assert_eq!(report["exit_status"], 7);
        // Each process is there once, whether it was seen before, after, or both.
        assert_eq!(
            report["threads"].as_array().map(Vec::len),
            Some(2),
            "{text}"
        );
        let calls = |name: &str| {
            let rows = report["syscalls"].as_array().expect("rows").iter();
            let mut row = rows.filter(|row| row["name"] == name);
            row.next()
                .map_or(0, |row| row["calls"].as_u64().unwrap_or(0))
        };
        // The first second is known under both taps, and what came last if it was monitored again.
        assert!(calls("write") >= 1, "{text}");
        let seen_to_the_end = tap == "kernel";
        assert_eq!(calls("exit_group") == 2, seen_to_the_end, "{text}");
        if seen_to_the_end {
            let problems = debox_tests::check_report(&report, None);
            assert!(problems.is_empty(), "{problems:?} in {text}");
        }
        let fresh = place.report_of(USER, || place.command("/bin/true"));
        assert!(!notes(&fresh).contains("ended"), "{}", notes(&fresh));
    }
}

#[test]
fn a_false_broker_is_not_believed() {
    let _alone = alone();
    let place = Place::new();
    let client = place.copy(&program("broker_client"));
    let client = client.to_str().expect("plain text");
    let socket = place.socket();
    let socket = socket.to_str().expect("plain text");
    let mut false_one = place.start(OTHER, &[client, "serve", socket]);
    assert_eq!(first_line(&mut false_one), "ready\n");
    let echo = place.command("/bin/echo").args(["ran"]);
    let finished = echo.finish_under(&place.words_of(USER));
    false_one.kill().expect("own child");
    false_one.wait().expect("own child");
    let finished = finished.code(125).says(&["broker", "is user 65533's"]);
    assert_eq!(finished.stdout, "");
}

#[test]
fn nonsense_in_a_run_ends_it_and_nothing_else() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let before = place.broker_descriptors();
    ask(&place, &["nonsense"]);
    let closed = wait_for(LONG, || place.broker_descriptors() <= before);
    assert!(closed, "descriptors stay open");
    place.report_of(USER, || place.command("/bin/true"));
}

#[test]
fn others_processes_and_runs_are_not_to_be_had() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    // Another user's, root's, and one of the same user that is not the asking one's child.
    let mut children = [OTHER, USER].map(|user| place.start(user, &["sleep", "60"]));
    let pids = [children[0].id(), std::process::id(), children[1].id()];
    let pids = pids.map(|pid| pid.to_string());
    ask(&place, &["others", &pids[0], &pids[1], &pids[2]]);
    for child in &mut children {
        child.kill().expect("own child");
        child.wait().expect("own child");
    }
}

#[test]
fn who_asks_without_end_waits_or_is_refused() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    ask(&place, &["often"]);
    place.report_of(USER, || place.command("/bin/true"));
}

/// What the broker has given out is refused to others before the kernel refuses it to the broker.
#[test]
fn memory_is_refused_in_a_sentence() {
    let _alone = alone();
    let limits = "--memory 640M --runs-per-user 64 --runs 64 --cpu-percent 10000";
    let place = Place::with_broker(&limits.split(' ').collect::<Vec<_>>());
    let debox = place.path().join("debox");
    let debox = debox.to_str().expect("plain text");
    let begin = |user| {
        let words = [debox, "run", "--detail", "callsites", "--"];
        let command = ["sh", "-c", "echo on; exec sleep 600"];
        let mut run = place.start(user, &[&words[..], &command].concat());
        let line = first_line(&mut run);
        (run, line)
    };
    let mut runs = Vec::new();
    let mut until_refused = |user| loop {
        let (run, line) = begin(user);
        if line == "on\n" {
            runs.push(run);
            continue;
        }
        let output = run.wait_with_output().expect("own child");
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        return String::from_utf8_lossy(&output.stderr).into_owned();
    };
    // Half of it is one user's, and all of it everybody's. How much a run takes depends on the kernel.
    let of_user = until_refused(USER);
    let of_others = [OTHER, 65532].map(until_refused);
    for run in &mut runs {
        // SAFETY: the process is our own and not waited for yet. It passes this on to its command.
        unsafe { libc::kill(run.id() as i32, libc::SIGTERM) };
        run.wait().expect("own child");
    }
    assert!(runs.len() > 1, "no run beside another");
    assert!(of_user.contains("memory: a run takes about"), "{of_user}");
    let is_all_given = |text: &String| text.contains("no memory left for a run");
    assert!(of_others.iter().any(is_all_given), "{of_others:?}");
    let again = wait_for(LONG, || {
        let again = place.start(OTHER, &[debox, "run", "--", "true"]);
        again
            .wait_with_output()
            .expect("own child")
            .status
            .success()
    });
    assert!(again, "what was given is not taken back");
}

#[test]
fn slots_of_a_run_count_as_long_as_somebody_holds_them() {
    let _alone = alone();
    let place = Place::with_broker(&["--memory", "600M", "--cpu-percent", "10000"]);
    let client = place.copy(&program("broker_client"));
    let socket = place.socket();
    let words = [client.to_str(), Some("keep"), socket.to_str()];
    let words = words.map(|word| word.expect("plain text"));
    let mut keeper = place.start(USER, &words);
    let line = first_line(&mut keeper);
    let kept = line
        .trim()
        .strip_prefix("kept ")
        .and_then(|count| count.parse().ok());
    assert!((1..40).contains(&kept.unwrap_or(0)), "{line}");
    let runs = || {
        let debox = place.path().join("debox");
        let words = [debox.to_str().expect("plain text"), "run", "--", "true"];
        let run = place.start(USER, &words).wait_with_output();
        run.expect("own child").status.success()
    };
    assert!(!runs(), "what is kept does not count");
    place.report_of(OTHER, || place.command("/bin/true"));
    keeper.kill().expect("own child");
    let output = keeper.wait_with_output().expect("own child");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("reached the limit of the broker's memory"),
        "{said}"
    );
    assert!(wait_for(LONG, runs), "what was given is not taken back");
}

#[test]
fn cpu_time_is_each_users_own() {
    let _alone = alone();
    let place = Place::with_broker(&["--cpu-percent", "1"]);
    let debox = place.path().join("debox");
    let debox = debox.to_str().expect("plain text");
    // A run is opened at the level of who asks.
    let mut nice = place.start(
        USER,
        &[
            "nice",
            "-n",
            "11",
            debox,
            "run",
            "--",
            "sh",
            "-c",
            "echo on; exec sleep 60",
        ],
    );
    assert_eq!(first_line(&mut nice), "on\n");
    let tasks = fs::read_dir(format!("/proc/{}/task", place.broker_pid())).expect("it lives");
    let levels = tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once(") ")?;
        name.ends_with("(debox-run")
            .then(|| rest.split(' ').nth(16).map(String::from))?
    });
    assert_eq!(levels.collect::<Vec<_>>(), ["11"]);
    // SAFETY: the process is our own and not waited for yet.
    unsafe { libc::kill(nice.id() as i32, libc::SIGTERM) };
    nice.wait().expect("own child");
    // One that opens run after run is refused at some time, and another is not.
    let refused = (0..50).any(|_| {
        let run = place.start(USER, &[debox, "run", "--", "true"]);
        let run = run.wait_with_output().expect("own child");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        !run.status.success() && said.contains("used up their share of the broker's CPU time")
    });
    assert!(refused, "a user opens runs without end");
    place.report_of(OTHER, || place.command("/bin/true"));
}

/// Runs `broker_client` to its end, which must be a good one.
#[track_caller]
fn ask(place: &Place, words: &[&str]) {
    let client = place.copy(&program("broker_client"));
    let socket = place.socket();
    let mut all = vec![client.to_str().expect("plain text"), words[0]];
    all.push(socket.to_str().expect("plain text"));
    all.extend(&words[1..]);
    let output = place.start(USER, &all).wait_with_output();
    let output = output.expect("own child");
    assert!(output.status.success(), "{words:?}: {output:?}");
}

/// Who asks and never reads holds nobody up, and not for long what it has.
#[test]
fn a_client_that_does_not_read_is_left() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let before = place.broker_descriptors();
    let client = place.copy(&program("broker_client"));
    let client = client.to_str().expect("plain text");
    let socket = place.socket();
    let socket = socket.to_str().expect("plain text");
    let mut slow = place.start(USER, &[client, "slow", socket]);
    assert_eq!(first_line(&mut slow), "ready\n");
    place.report_of(OTHER, || place.command("/bin/true"));
    place.report_of(USER, || place.command("/bin/true"));
    assert!(slow.wait().expect("own child").success());
    let closed = wait_for(LONG, || place.broker_descriptors() <= before);
    assert!(closed, "descriptors stay open");
}

/// With privilege, too, the broker is asked if it is named.
#[test]
fn root_gets_the_same_from_a_broker_it_names() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let output = place.report_file();
    let named = format!("DEBOX_BROKER={}", place.socket().display());
    let debox = Debox::run("pipe_read").args(["thread", "100"]);
    let debox = debox
        .options(["--format", "json", "--output"])
        .options([&output]);
    let run = debox
        .finish_under(&["env", &named])
        .code(0)
        .measured(&output);
    assert!(
        notes(&run).contains("through the broker"),
        "{}",
        notes(&run)
    );
}
