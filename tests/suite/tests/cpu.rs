// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time on the CPU, waiting for it, and faults taken on it.

use debox_tests::ms;
use debox_tests::Debox;

/// Two threads that only compute share one CPU: each runs half the time and waits, able to run,
/// the other half; nobody sleeps.
#[test]
fn two_threads_share_one_cpu() {
    let run = Debox::run("one_core").args(["2", "1000"]).report();
    let (mut cpu, mut waited) = (0, 0);
    for spinner in run.threads("spinner") {
        let part = |name: &str| spinner[name].as_u64().expect("a number");
        cpu += part("user_cpu_ns") + part("kernel_cpu_ns");
        waited += part("runqueue_ns") + part("preempted_ns");
    }
    assert_eq!(run.threads("spinner").len(), 2);
    for (what, value) in [("cpu", cpu), ("delay", waited)] {
        let known = run.fact(&format!("section_{what}_ns"));
        assert!(
            value.abs_diff(known) <= (known * 3 / 100).max(ms(5)),
            "{what}: {value} ns, by the scheduler's account {known} ns, in {:#}",
            run.report["threads"]
        );
    }
    // Pushed off the CPU while computing is the time between calls' own part.
    run.call("(user)")
        .between("preempted_ns", waited / 2, waited + ms(50));
}

#[test]
fn faults_inside_read_are_reads() {
    let run = Debox::run("fault_in_read").args(["2000"]).report();
    let known = run.fact("read_faults_minor");
    assert_eq!(known, 2_000, "every page was fresh");
    // The loader reads its libraries' headers too, into memory that may be fresh.
    run.call("read")
        .between("faults_minor", known, known + 4)
        .exactly("faults_major", 0);
    run.call("read")
        .between("calls", run.fact("reads"), run.fact("reads") + 4);
}

/// Interrupts, taken out of the CPU time, are part of what the scheduler counts.
#[test]
fn interrupts_are_measured_on_request() {
    let run = Debox::run("one_core")
        .args(["2", "500"])
        .options(["--detail", "sleeps,irq"])
        .report();
    assert!(
        run.report["totals"]["irq_ns"].is_u64(),
        "{:#}",
        run.report["totals"]
    );
    let run = Debox::run("one_core").args(["1", "100"]).report();
    assert!(
        run.report["totals"]["irq_ns"].is_null(),
        "{:#}",
        run.report["totals"]
    );
}
