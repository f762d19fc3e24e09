// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many threads, many short lives, and the full rate of calls: nothing is lost, and nothing is
//! counted twice. The rate is kept up for DEBOX_SOAK_SECONDS (`make soak` sets a minute).

use debox_tests::ms;
use debox_tests::Debox;

#[test]
fn a_thousand_threads_are_monitored_at_once() {
    let run = Debox::run("many_threads")
        .args(["1000", "50", "100"])
        .report();
    run.call("getppid").calls(100_000);
    run.call("nanosleep")
        .calls(1_000)
        .sleep("timer")
        .count(1_000);
    assert_eq!(run.threads("worker").len(), 1_000);
}

#[test]
fn ten_thousand_children_come_and_go() {
    let run = Debox::run("children").args(["many", "10000"]).report();
    run.call("getuid").calls(100_000);
    run.call("wait4").calls(10_000).errors(0);
    assert_eq!(run.threads("children").len(), 10_001);
}

#[test]
fn more_threads_than_there_is_room_for_are_counted_as_lost() {
    let run = Debox::run("many_threads")
        .options(["--max-threads", "10"])
        .args(["64", "10", "10"])
        .unchecked_report();
    assert_eq!(run.lost("threads"), 55, "of 65, in a table of 10");
    let seen = run.threads("worker").len() as u64 + run.threads("many_threads").len() as u64;
    assert_eq!(seen, 10);
}

#[test]
fn nothing_is_lost_at_the_full_rate_of_calls() {
    let seconds = std::env::var("DEBOX_SOAK_SECONDS");
    let seconds: u64 = seconds.map_or(1, |text| text.parse().expect("a number of seconds"));
    // More than one monitored thread makes on a fast machine, or, in every run of the tests, fewer.
    let per_second = if seconds > 2 { 8_000_000 } else { 3_000_000 };
    let calls = seconds * per_second;
    let run = Debox::run("many_threads")
        .args(["2", "10", &calls.to_string()])
        .limit(seconds * 50 + 60);
    let run = if seconds > 2 {
        run.report_of_one_run()
    } else {
        run.report()
    };
    let made = run.call("getppid").calls(2 * calls);
    let wall = run.sum("threads", "wall_ns");
    assert!(made.number("wall_ns") < wall + ms(1));
    let took = run.report["duration_ns"].as_u64().expect("a number");
    println!(
        "{} calls in {:.1} s, {:.0} a second",
        2 * calls,
        took as f64 / 1e9,
        2.0 * calls as f64 / (took as f64 / 1e9)
    );
}
