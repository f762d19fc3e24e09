//! The C interface, from C: small programs, compiled against the headers and `libdebox.so`, that
//! check what they read. They load probes, so they need root.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use common::library_directory;

/// The programs measure time, so they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A directory for one program, removed after it ran.
fn directory() -> PathBuf {
    tempfile::Builder::new()
        .prefix("debox-capi-")
        .tempdir()
        .unwrap()
        .keep()
}

fn compile(name: &str, flags: &[&str]) -> PathBuf {
    common::compile(name, &directory(), flags)
}

fn linked(name: &str) -> PathBuf {
    common::linked(name, &directory())
}

fn run(program: &Path, argument: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ran = Command::new(program)
        .arg(argument)
        .env("DEBOX_BROKER", "") // no broker, even if one runs on this machine
        .output()
        .expect("the program runs");
    let _ = std::fs::remove_dir_all(program.parent().expect("it is in its own directory"));
    check(argument, &ran);
}

fn check(what: &str, ran: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        ran.status.success(),
        "{what}: {}\n{}{}",
        ran.status,
        text(&ran.stdout),
        text(&ran.stderr)
    );
}

/// Callbacks come before the program goes on, in the thread that made the call.
#[test]
fn triggers_call_back_before_the_program_goes_on() {
    run(&linked("triggers"), "");
}

/// The example of the event loop, in C and in Rust. With either tap it finds out that the cold file
/// blocks it, and serves all requests.
#[test]
fn the_event_loop_notices_its_slow_calls() {
    let in_c = common::example("event_loop", &directory());
    let in_rust = library_directory().join("../examples/event_loop");
    for program in [&in_c, &in_rust] {
        if !program.exists() {
            debox_skipped::skipped("the event loop in Rust: cargo build --release --examples");
            continue;
        }
        // A quick disk reads the file within a millisecond now and then, so that nothing is noticed.
        let notices = |tap: &str| (0..5).any(|_| serve(program, tap));
        match ["kernel", "user"].map(notices) {
            [true, true] => {}
            [false, false] => {
                debox_skipped::skipped("the event loop: reads of this disk do not block")
            }
            found => panic!("{}: the taps disagree: {found:?}", program.display()),
        }
    }
    let wrong = Command::new(&in_c).args(["--tap", "other"]).output();
    assert_eq!(wrong.expect("the program runs").status.code(), Some(2));
    let _ = std::fs::remove_dir_all(in_c.parent().expect("it is in its own directory"));
}

/// Whether the loop gave the cold file to its helper.
fn serve(program: &Path, tap: &str) -> bool {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ran = Command::new(program)
        .args(["--tap", tap, env!("CARGO_TARGET_TMPDIR")])
        .env("DEBOX_BROKER", "")
        .output()
        .expect("the program runs");
    check(tap, &ran);
    let text = String::from_utf8_lossy(&ran.stdout);
    let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    let (in_loop, by_helper) = (count("read in the loop"), count("answered by the helper"));
    let is_given_away = count("cold: read in the loop; the helper will do it next time") == 1;
    // The loop itself makes the read that shows it, and the helper makes the file's next one.
    assert_eq!(
        count("cold: answered by the helper") > 0,
        is_given_away,
        "{text}"
    );
    assert!(in_loop + by_helper >= 12, "{text}");
    assert_eq!(count("pread64 of cold took") >= 1, is_given_away, "{text}");
    is_given_away
}

macro_rules! checks {
    ($($test:ident: $program:literal $check:literal;)*) => {
        $(#[test]
        fn $test() {
            run(&linked($program), $check);
        })*
    };
}

checks! {
    the_first_call_at_a_place_is_told_by_its_label: "labels" "first";
    every_call_at_a_place_is_told: "labels" "thousand";
    labels_are_told_on_every_thread: "labels" "threads";
    labels_are_told_in_forked_children: "labels" "fork";
    labels_are_told_in_each_session: "labels" "again";
    a_limit_counts_those_that_a_thread_decides: "labels" "limit";
    what_a_label_means_takes_no_memory: "labels" "malloc";
    calls_under_a_blocked_signal_have_their_own_records: "labels" "blocked";
    executed_programs_get_no_signals: "labels" "exec";
    labels_without_sleeps_are_refused: "labels" "refused";
    a_known_wait_is_measured_and_explained: "records" "sleep";
    values_are_the_calls_own: "records" "values";
    history_is_newest_first: "records" "history";
    the_library_hides_its_own_calls: "records" "hidden";
    looking_is_no_call: "records" "loads";
    pausing_stops_records: "records" "pause";
    limits_count_what_they_leave_out: "records" "limits";
    a_futex_word_is_named: "records" "futex";
    an_owner_is_named: "records" "owner";
    other_threads_read_whole_records: "life" "other_threads";
    handlers_may_look: "life" "signals";
    forked_children_have_their_own_records: "life" "fork";
    raw_clones_read_nothing: "life" "clone";
    daemons_stay_monitored: "life" "daemon";
    sessions_leave_nothing_behind: "life" "sessions";
    errors_are_explained: "life" "errors";
    crowds_are_told: "life" "crowd";
    labels_are_known_after_chroot: "explained" "root";
    labels_are_known_without_privilege: "explained" "privilege";
    explanations_are_left_out_of_scopes: "explained" "scope";
    closed_descriptors_are_noticed: "closed" "range";
    descriptors_closed_one_by_one_are_noticed: "closed" "each";
    descriptors_closed_by_another_thread_are_noticed: "closed" "thread";
    a_closed_session_begins_anew: "closed" "again";
    what_is_left_of_a_session_is_closed: "closed" "part";
    a_programs_own_descriptors_are_its_own: "closed" "own";
    results_are_those_of_2004: "classic" "results";
    buffers_and_limits_change: "classic" "buffers";
    null_deactivates: "classic" "null";
    privilege_is_needed: "classic" "privilege";
    warm_fetches_are_no_call: "classic" "warm";
    calls_are_traced: "classic" "trace";
    old_trace_entries_are_gone: "classic" "old";
    the_user_tap_measures_a_known_wait: "tap" "sleep";
    the_user_tap_keeps_values: "tap" "reads";
    functions_are_wrapped: "tap" "wrapped";
    handlers_are_outside: "tap" "handlers";
    jumps_end_calls: "tap" "jumps";
    preemption_is_seen: "tap" "preemption";
    tapped_threads_and_children_have_their_own: "tap" "own";
    tapped_sessions_follow_each_other: "tap" "sessions";
    the_clock_is_kept: "tap" "clock";
    results_come_at_the_end_of_tapped_calls: "tap" "results";
    handlers_look_nothing_up: "tap" "unknown";
    scopes_count_every_call: "scopes" "counts";
    scopes_measure_known_sleeps: "scopes" "sleeps";
    scopes_see_faults_that_sleep: "scopes" "faults";
    scopes_know_preemption_at_once: "scopes" "preemption";
    scopes_are_their_threads: "scopes" "threads";
    forked_children_end_no_scope_of_their_parents: "scopes" "fork";
    scopes_nest: "scopes" "nested";
    scopes_count_faults: "scopes" "counted_faults";
    readings_of_scopes_are_whole: "scopes" "whole";
    scopes_measure_interrupts: "scopes" "interrupts";
    errors_of_scopes_are_told: "scopes" "errors";
    the_user_tap_sums_up: "scopes" "tap";
}

/// The `debox` command: where cargo puts it, one level above the tests.
fn command() -> PathBuf {
    let debox = library_directory().join("../debox");
    assert!(
        debox.exists(),
        "{} is not built: cargo build -p debox-cli",
        debox.display()
    );
    debox
}

/// Runs a check under `debox run`.
fn run_under(tap: &str, program: &str, argument: &str) {
    let program = linked(program);
    let directory = program.parent().expect("it is in its own directory");
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ran = Command::new(command())
        .args(["run", "--tap", tap, "--output"])
        .arg(directory.join("report"))
        .arg("--")
        .arg(&program)
        .arg(argument)
        .output()
        .expect("debox runs");
    let _ = std::fs::remove_dir_all(directory);
    check(argument, &ran);
}

#[test]
fn programs_join_the_user_tap_they_run_under() {
    run_under("user", "joined", "joined");
}

#[test]
fn results_come_at_the_end_of_calls_that_the_shim_sees() {
    run_under("user", "joined", "results");
}

#[test]
fn scopes_sum_up_what_the_shim_sees() {
    run_under("user", "scopes", "joined");
}

#[test]
fn scopes_stand_beside_a_running_session() {
    run_under("kernel", "scopes", "counts");
}

#[test]
fn sessions_stand_side_by_side() {
    run_under("kernel", "joined", "beside");
}

#[test]
fn the_library_may_be_loaded_at_run_time() {
    let library = library_directory().join("libdebox.so");
    run(&compile("loaded", &["-ldl"]), library.to_str().unwrap());
}

/// `make build` and `make install` use the same script to give the library its names.
#[test]
fn a_program_with_a_libbpf_of_its_own_links_statically() {
    let place = directory();
    let library = place.join("libdebox.a");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/own-names");
    let renamed = Command::new(script)
        .arg(library_directory().join("libdebox.a"))
        .arg(&library)
        .output()
        .expect("the script runs");
    check("own-names", &renamed);
    let libraries = ["-lelf", "-lz", "-ldl", "-lm"];
    let flags: Vec<&str> = [library.to_str().unwrap()]
        .into_iter()
        .chain(libraries)
        .collect();
    run(&common::compile("own_libbpf", &place, &flags), "");
}

#[test]
fn valgrind_finds_nothing_wrong_in_a_session() {
    let valgrind = Command::new("valgrind").arg("--version").output();
    if !valgrind.is_ok_and(|known| known.status.success()) {
        debox_skipped::skipped("valgrind: apt-get install valgrind");
        return;
    }
    let program = linked("plain");
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ran = Command::new("valgrind")
        .args(["--error-exitcode=9", "--track-origins=yes"])
        .arg(&program)
        .env("DEBOX_BROKER", "")
        .output()
        .expect("valgrind runs");
    let _ = std::fs::remove_dir_all(program.parent().expect("it is in its own directory"));
    check("under valgrind", &ran);
}

#[test]
fn the_headers_are_c_and_cpp() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    for (language, standard) in [
        ("c", "c99"),
        ("c", "c17"),
        ("c++", "c++11"),
        ("c++", "c++20"),
    ] {
        for header in ["debox.h", "debox_2004.h"] {
            let checked = Command::new("cc")
                .args([
                    "-x",
                    language,
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    "-fsyntax-only",
                ])
                .arg(format!("-std={standard}"))
                .arg(here.join(header))
                .output()
                .expect("cc runs");
            check(&format!("{header} as {standard}"), &checked);
        }
    }
}
