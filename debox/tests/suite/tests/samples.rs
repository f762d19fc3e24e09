// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where programs compute, by samples.

use debox_tests::ms;
use debox_tests::Debox;
use debox_tests::Measured;
use serde_json::Value;

/// Samples come every so many nanoseconds of each CPU.
const PERIOD_NS: u64 = 1_000_000_000 / 199;

fn function<'a>(run: &'a Measured, name: &str) -> &'a Value {
    let functions = run.report["samples"]["functions"].as_array();
    let found = functions.expect("samples").iter();
    let mut found = found.filter(|function| function["function"] == name);
    found
        .next()
        .unwrap_or_else(|| panic!("no {name} in {:#}", run.report["samples"]["functions"]))
}

fn number(of: &Value, name: &str) -> f64 {
    of[name].as_u64().expect("a number") as f64
}

/// The first of all, unless the machine has other work and it waits for a CPU.
fn share_of_computing(run: &Measured) -> &Value {
    let shares = run.report["headline"]["shares"].as_array();
    let mut shares = shares.expect("shares").iter();
    let computing = shares.find(|share| share["cause"] == "user CPU");
    computing.expect("a share")
}

/// Samples of `cpu_ns` on a CPU are one for each period; how many of them are in one of several functions that take
/// turns is a matter of chance, within four standard deviations for all but one run in 15,000.
fn assert_share(run: &Measured, name: &str, cpu_ns: u64, of_ns: u64) {
    let samples = &run.report["samples"];
    let all = number(samples, "total");
    let found = number(function(run, name), "samples");
    let share = cpu_ns as f64 / of_ns as f64;
    let deviation = (all * share * (1.0 - share)).sqrt();
    assert!(
        (found - all * share).abs() <= 4.0 * deviation + 2.0,
        "{name}: {found} of {all} samples, {:.1} % by its own clock",
        share * 100.0
    );
}

#[test]
fn functions_have_the_samples_that_their_cpu_time_tells() {
    let run = Debox::run("computes_apart").args(["2500"]).report();
    let samples = &run.report["samples"];
    assert_eq!(samples["lost"], 0, "{samples:#}");
    assert_eq!(samples["period_ns"], PERIOD_NS);
    let totals = &run.report["totals"];
    let cpu_ns = number(totals, "user_cpu_ns") + number(totals, "kernel_cpu_ns");
    let expected = cpu_ns / PERIOD_NS as f64;
    // A sample less or more where each stretch on a CPU begins and ends; soft interrupts are part of the time.
    let all = number(samples, "total") + number(samples, "in_interrupts");
    let slack = 4.0 * expected.sqrt() + 2.0;
    assert!(
        (all - expected).abs() <= slack,
        "{all} samples of {cpu_ns} ns, {expected:.0} expected"
    );
    let parts = ["heavy", "light", "copies"];
    let times = parts.map(|name| run.fact(&format!("{name}_ns")));
    let user_ns = number(totals, "user_cpu_ns") as u64;
    for (name, ns) in parts.iter().zip(times) {
        assert_share(&run, name, ns, user_ns);
    }
    assert!(times[0] > times[1] * 2, "{times:?}");
    let copies = function(&run, "copies");
    assert!(copies["inside"].is_string(), "it has libc copy: {copies:#}");
    for (name, line) in [
        ("heavy", "computes_apart.c:"),
        ("copies", "computes_apart.c:"),
    ] {
        let place = function(&run, name)["place"].as_str().expect("a line");
        assert!(place.starts_with(line), "{place}");
    }
    assert!(run.report["unseen"]
        .as_array()
        .expect("sentences")
        .iter()
        .all(|sentence| !sentence.as_str().expect("text").contains("sampled")));
}

#[test]
fn the_headline_says_where_it_computes() {
    let run = Debox::run("computes_apart").args(["1000"]).report();
    let share = share_of_computing(&run);
    // Where the processor is emulated, copying may take longest.
    let parts = ["heavy", "light", "copies"];
    let longest = parts
        .into_iter()
        .max_by_key(|name| run.fact(&format!("{name}_ns")));
    assert_eq!(share["place"]["function"].as_str(), longest, "{share:#}");
    assert!(number(&share["place"], "of") >= 100.0, "{share:#}");
    // From `main` to the function, whatever frame pointers the program has.
    let stacks = run.report["samples"]["stacks"].as_array();
    let heavy = stacks.expect("samples").iter().find(|stack| {
        let innermost = stack["frames"][0].as_str().unwrap_or_default();
        innermost.starts_with("heavy ")
    });
    let frames = heavy.expect("a stack")["frames"]
        .as_array()
        .expect("frames");
    let has_main = frames
        .iter()
        .any(|frame| frame.as_str().expect("text").starts_with("main "));
    assert!(has_main, "{frames:#?}");
}

#[test]
fn what_is_not_asked_for_is_not_sampled() {
    let run = Debox::run("computes_apart")
        .args(["50"])
        .options(["--detail", "sleeps"])
        .report();
    assert!(run.report["samples"].is_null());
    assert!(run.fact("heavy_ns") >= ms(1));
}

#[test]
fn the_user_tap_has_samples_too() {
    let run = Debox::run("computes_apart")
        .args(["500"])
        .options(["--tap", "user"])
        .report();
    assert_eq!(share_of_computing(&run)["place"]["function"], "heavy");
}
