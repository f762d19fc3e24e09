// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Python script: imports, a thread that sleeps, a child, a computation, and its own account.

use debox_real::bare;
use debox_real::require;
use debox_real::take_turn;
use debox_real::Tap;
use debox_tests::ms;
use debox_tests::Scratch;

/// Everything that it prints is the same in every run.
const SCRIPT: &str = r#"
import asyncio, hashlib, http.client, json, queue, subprocess, threading, time

jobs = queue.Queue()
done = []

def worker():
    while (job := jobs.get()) is not None:
        time.sleep(0.01)
        done.append(job)

thread = threading.Thread(target=worker)
thread.start()
for job in range(10):
    jobs.put(job)
jobs.put(None)
thread.join()

digest = hashlib.sha256()
for number in range(300000):
    digest.update(str(number).encode())
child = subprocess.run(["/bin/cat", "/etc/hostname"], capture_output=True)
try:
    open("/nonexistent")
except OSError as error:
    missing = error.errno
print(json.dumps([done, digest.hexdigest(), child.returncode, missing]))
"#;

fn script(tap: Tap) {
    let _turn = take_turn();
    if !tap.works("python_computes_and_sleeps") {
        return;
    }
    let python = require("python3").display().to_string();
    let scratch = Scratch::new();
    std::fs::write(scratch.file("script.py"), SCRIPT).expect("scratch directory is writable");
    let command = [
        python,
        "-I".into(),
        scratch.file("script.py").display().to_string(),
    ];
    let expected = bare(&command, scratch.path());
    let story = tap.run(&command);

    assert_eq!(story.output.as_bytes(), expected.stdout);
    story.at_least(
        60,
        story.total("user_cpu_ns"),
        story.cpu_ns(),
        "python computes",
    );
    // An import looks in several places for a module and finds it in one.
    if tap == Tap::Kernel {
        assert!(story.run.call("newfstatat").number("errors") > 10);
        let sleep = story.run.call("clock_nanosleep").calls(10).errors(0);
        sleep
            .sleep("timer")
            .class("idle")
            .count(10)
            .between("blocked_ns", ms(100), ms(2000));
        // The main thread waits in join() for as long as the worker sleeps.
        let join = story.labelled("futex", "futex");
        assert!(
            join.blocked_ns >= ms(90),
            "{:#}",
            story.run.report["sleeps"]
        );
    }
}

#[test]
fn python_computes_and_sleeps() {
    script(Tap::Kernel);
}

#[test]
fn python_computes_and_sleeps_user_tap() {
    script(Tap::User);
}
