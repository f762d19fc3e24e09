// SPDX-License-Identifier: MIT OR Apache-2.0
//! A broker that is stopped, or has ended, and clients without what it takes to ask: each ends within its
//! deadline, and says in a sentence what it was. SECURITY.md names the tests.

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use debox_tests::brokered::Place;
use debox_tests::brokered::USER;
use debox_tests::skipped;
use debox_tests::slowness;
use serde_json::Value;

/// A broker that is started would disturb what another test measures.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());

    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A broker that does not run while this lives.
struct Stopped(i32);

impl Stopped {
    fn stop(place: &Place) -> Stopped {
        let pid = place.broker_pid();
        // SAFETY: kill takes no memory; the broker is a child that was not waited for.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::kill(self.0, libc::SIGCONT) };
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count * slowness())
}

/// `debox run` of a shell that says "on", and then ends with status 7 once its standard input does.
fn start(place: &Place, tap: &str, options: &[&str]) -> Child {
    let debox = place.path().join("debox");
    let mut words = place.words_of(USER);
    words.extend([debox.to_str().expect("text"), "run", "--tap", tap].map(str::to_string));
    words.extend(options.iter().map(|word| word.to_string()));
    words.extend(["--", "sh", "-c", "echo on; read line; exit 7"].map(str::to_string));
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("setpriv runs");
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("text");
    assert_eq!(line, "on\n");
    child
}

/// Ends the command; its status, what debox said, and how long that took.
fn end(mut child: Child) -> (Option<i32>, String, Duration) {
    drop(child.stdin.take());
    let since = Instant::now();
    let status = child.wait().expect("own child");
    let took = since.elapsed();
    let mut said = String::new();
    let mut err = child.stderr.take().expect("piped");
    err.read_to_string(&mut said).expect("text");
    (status.code(), said, took)
}

#[test]
fn a_stopped_broker_does_not_keep_a_run_from_its_end() {
    let _alone = alone();
    // Each has a broker of its own, and waits for it at the same time as the others.
    std::thread::scope(|scope| {
        for tap in ["kernel", "user"] {
            for fetched in [true, false] {
                scope.spawn(move || ends_without_its_broker(tap, fetched));
            }
        }
    });
}

/// `fetched`: the broker lives long enough for something of the run to be known.
fn ends_without_its_broker(tap: &str, fetched: bool) {
    let place = Place::with_broker(&[]);
    let run = start(&place, tap, &[]);
    if fetched {
        std::thread::sleep(seconds(3));
    }
    let stopped = Stopped::stop(&place);
    let (status, said, took) = end(run);
    drop(stopped);
    assert_eq!(status, Some(7), "{said}");
    assert!(took < seconds(12), "{took:?}: {said}");
    let first = said.lines().next().unwrap_or_default();
    let sentence = "The broker did not answer for";
    assert!(first.starts_with(sentence), "{said}");
    assert_eq!(said.matches(sentence).count(), 1, "{said}");
    assert_eq!(fetched, said.contains("\nran "), "{said}");
}

#[test]
fn a_run_whose_broker_died_early_says_so_first() {
    let _alone = alone();
    let mut place = Place::with_broker(&[]);
    let run = start(&place, "kernel", &[]);
    place.kill_broker();
    std::thread::sleep(Duration::from_millis(1200));
    let (status, said, _) = end(run);
    assert_eq!(status, Some(7), "{said}");
    let mut lines = said.lines();
    let first = lines.next().unwrap_or_default();
    assert!(
        first.starts_with("The broker ended during the run"),
        "{said}"
    );
    assert!(first.contains("nothing is known about the run"), "{said}");
    let second = lines.next().unwrap_or_default();
    assert!(second.starts_with("the command ran 1."), "{said}");
    assert!(!said.contains("ran 0 ns"), "{said}");

    // The same in the report for programs.
    let mut place = Place::with_broker(&[]);
    let output = place.report_file();
    let options = [
        "--format",
        "json",
        "--output",
        output.to_str().expect("text"),
    ];
    let run = start(&place, "kernel", &options);
    place.kill_broker();
    end(run);
    let text = fs::read_to_string(&output).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let why = report["incomplete"].as_str().expect("a sentence");
    assert!(why.contains("nothing is known about the run"), "{why}");
    assert!(report["duration_ns"].as_u64() > Some(0));
}

#[test]
fn a_broker_that_is_stopped_before_is_given_up() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let _stopped = Stopped::stop(&place);
    let since = Instant::now();
    let run = place.command("/bin/echo").args(["ran"]);
    let finished = run.finish_under(&place.words_of(USER)).code(125);
    assert!(since.elapsed() < seconds(15), "{:?}", since.elapsed());
    assert_eq!(finished.stdout, "");
    finished.says(&["the broker does not answer: it is stopped"]);

    // So is it in a program of one's own, as debox.h says.
    std::env::set_var("DEBOX_BROKER", place.socket());
    let since = Instant::now();
    let enabled = debox::inband::enable(&debox::inband::Options::default());
    std::env::remove_var("DEBOX_BROKER");
    assert!(since.elapsed() < seconds(15), "{:?}", since.elapsed());
    match enabled {
        Err(debox::inband::Error::System(text)) => {
            assert!(text.contains("the broker does not answer"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

/// Root of a user namespace has all capabilities, and none of them counts.
#[test]
fn in_a_user_namespace_the_broker_is_asked() {
    let _alone = alone();
    let map = ["unshare", "--user", "--map-root-user"];
    let tried = Command::new("setpriv")
        .args([&format!("--reuid={USER}"), "--clear-groups"])
        .args(map)
        .arg("true")
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        skipped("user namespace", "this machine does not allow one");
        return;
    }
    // Without a broker it says what is wrong: not that root is needed, as which it runs.
    let place = Place::new();
    let inside = |place: &Place| {
        let words = place.words_of(USER);
        let (setpriv, env) = words.split_at(4);
        [setpriv, &map.map(str::to_string), env].concat()
    };
    let echo = || place.command("/bin/echo").args(["ran"]);
    let finished = echo().finish_under(&inside(&place)).code(125);
    finished.says(&["outside of user namespaces", "no broker answers"]);

    // Root's broker shows as the overflow user there. At a path that any user can write to it may be any user's.
    let place = Place::with_broker(&[]);
    let run = place.command("/bin/echo").args(["ran"]);
    let finished = run.finish_under(&inside(&place)).code(125);
    finished.says(&["no number in this user namespace", "/run/debox/broker.sock"]);
}

/// The usual path is root's: there the broker is believed. In a mount namespace, so that no other broker of
/// this machine is touched.
#[test]
fn in_a_user_namespace_the_broker_at_the_usual_path_is_believed() {
    let _alone = alone();
    let place = Place::new();
    let debox = place.path().join("debox");
    let script = format!(
        "mount -t tmpfs -o mode=755 none /run && mkdir /run/debox || exit 77\n\
         {debox} broker 2> {said} & broker=$!\n\
         for i in $(seq 300); do [ -S /run/debox/broker.sock ] && break; sleep 0.1; done\n\
         for tap in kernel user; do\n\
         setpriv --reuid={USER} --regid={USER} --clear-groups unshare --user --map-root-user \
         env -u DEBOX_BROKER {debox} run --tap $tap -- sh -c 'id -u; exit 7'\n\
         echo status $?\n\
         done\n\
         kill $broker; wait $broker",
        debox = debox.display(),
        said = place.path().join("said").display(),
    );
    let ran = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .stdin(Stdio::null())
        .output()
        .expect("unshare runs");
    let (out, err) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    if ran.status.code() == Some(77) {
        skipped("mount namespace", "this machine does not allow one");
        return;
    }
    assert_eq!(out, "0\nstatus 7\n0\nstatus 7\n", "{err}");
    assert!(err.contains("Measured through the broker"), "{err}");
}

/// Neither as root nor through the broker is it a matter of rights.
#[test]
fn too_few_descriptors_are_named() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    let run = |words: &[String], count: &str| {
        let limit = ["sh", "-c", "ulimit -n $0; exec \"$@\"", count].map(str::to_string);
        let words = [words, &limit].concat();
        let finished = place.command("/bin/true").finish_under(&words).code(125);
        finished.says(&[
            "file descriptor",
            "ulimit -n",
            &format!("have {count} open"),
        ]);
    };
    run(&place.words_of(USER), "4");
    let own = ["env", "DEBOX_BROKER="].map(str::to_string);
    run(&own, "4");
    run(&own, "30");
}
