//! Every figure equals the sum of the records, added one by one. A damaged file does no harm.

mod common;
#[path = "report/resting.rs"]
mod resting;

use std::collections::BTreeMap;
use std::fs;

use common::{call, calls, sleep, write};
use debox_history::{Account, History, Limits, Meta, Writer};
use debox_model::history::{Budget, Call};
use debox_model::report::{Process, Totals};
use debox_report::{analyze, Analysis, FindingKind, Verdict};
use proptest::prelude::*;

fn analyzed(group_rows: usize, threads: usize) -> Analysis {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.parquet");
    write(&path, &calls(), group_rows);
    let history = History::open(&[&path]).expect("a history");
    analyze(&history, threads, &|_| {}).expect("a report")
}

#[test]
fn sums_are_those_of_the_records() {
    let report = analyzed(700, 2).report;
    let mut expected: BTreeMap<String, (u64, u64, u64, u64)> = BTreeMap::new();
    for call in calls() {
        let sums = expected.entry(call.name.to_string()).or_default();
        sums.0 += 1;
        sums.1 += call.wall_ns;
        sums.2 += call.budget.cpu_ns;
        sums.3 += call.budget.blocked_ns;
    }
    for call in report.calls.iter().chain(&report.between_calls) {
        let found = (
            call.count,
            call.budget.wall_ns,
            call.budget.cpu_ns,
            call.budget.blocked_ns,
        );
        assert_eq!(expected.remove(&call.name), Some(found), "{}", call.name);
    }
    assert!(expected.is_empty(), "{expected:?}");
    let blocked: u64 = report
        .matrix
        .labels
        .iter()
        .map(|label| label.blocked_ns)
        .sum();
    let between = report.between_calls.as_ref().expect("(user)");
    let all = report.totals.blocked_ns + between.budget.blocked_ns;
    assert_eq!(blocked, all);
    assert_eq!(
        report
            .flame
            .roots
            .iter()
            .map(|root| root.blocked_ns)
            .sum::<u64>(),
        all
    );
    assert_eq!(
        report.waits.iter().map(|wait| wait.blocked_ns).sum::<u64>(),
        all
    );
    let over_time: u64 = report
        .timeline
        .parts
        .iter()
        .filter(|part| part.name.starts_with("blocked"))
        .flat_map(|part| &part.ns)
        .sum();
    assert_eq!(over_time, all);
    // The calls' own parts add up to the parts of all.
    for part in &report.timeline.parts {
        let mut sums = vec![0; part.ns.len()];
        for call in &report.timeline.by_call {
            for of_call in call.parts.iter().filter(|of| of.name == part.name) {
                assert_eq!(of_call.ns.len(), sums.len());
                for (sum, ns) in sums.iter_mut().zip(&of_call.ns) {
                    *sum += ns;
                }
            }
        }
        assert_eq!(sums, part.ns, "{}", part.name);
    }
    let named: Vec<&str> = report
        .timeline
        .by_call
        .iter()
        .map(|call| call.call.as_str())
        .collect();
    assert_eq!(named, ["openat", "mmap", "epoll_wait", "(user)"]);
}

#[test]
fn what_had_not_returned_is_told_and_not_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.parquet");
    let mut calls = calls();
    let now = calls.last().map_or(0, |last| last.start_ns + last.wall_ns);
    for tid in [100, 101, 102] {
        let mut wait = sleep("pipe empty", "process", 3_000_000_000);
        wait.begin_ns = now + 500;
        (wait.waker_kind, wait.waker_tid, wait.waker_comm) = ("none".into(), None, None);
        calls.push(Call {
            tid,
            comm: "server".into(),
            in_flight: true,
            ..call("read", now, 500, vec![wait])
        });
    }
    write(&path, &calls, 700);
    let history = History::open(&[&path]).expect("a history");
    let report = analyze(&history, 2, &|_| {}).expect("a report").report;
    let read = report.calls.iter().find(|call| call.name == "read");
    let read = read.expect("read");
    assert_eq!((read.count, read.in_flight, read.max_ns), (0, 3, 0));
    assert_eq!(read.budget.blocked_ns, 9_000_000_000);
    assert!(read.cdf.is_empty(), "{:?}", read.cdf);
    assert_eq!(report.in_flight.len(), 3);
    let first = &report.in_flight[0];
    assert_eq!((first.ret, first.sleeps[0].in_flight), (None, true));
    let found = &report.findings[0];
    assert_eq!(found.kind, FindingKind::InFlight);
    assert_eq!(
        found.text,
        "The main thread of server (100) was still in read when the recording ended, 3.00 s after it \
         had begun: it was waiting for pipe empty, for 3.00 s; called from serve+0x1f (cache.c:88). 2 \
         more threads were in the same."
    );
    let caveat = |text: &String| text.starts_with("3 calls had not returned");
    assert!(report.caveats.iter().any(caveat), "{:?}", report.caveats);
}

#[test]
fn findings_name_the_wait_its_owner_and_the_growth() {
    let report = analyzed(1 << 18, 1).report;
    let text = |kind| {
        let found = report.findings.iter().find(|finding| finding.kind == kind);
        found.map_or("", |finding| finding.text.as_str())
    };
    let wait = text(FindingKind::Wait);
    for part in [
        "inode lock of /srv/x",
        "in openat (100 times",
        "called from serve+0x1f (cache.c:88)",
        "thread 4711 (helper) held it while it waited itself: page read",
    ] {
        assert!(wait.contains(part), "{part} in {wait}");
    }
    assert!(text(FindingKind::Growth).starts_with("mmap gets more expensive"));
    assert_eq!(
        report.trends.iter().filter(|trend| trend.cpu.grows).count(),
        1
    );
    assert!(report
        .caveats
        .iter()
        .any(|text| text.contains("7 records were lost")));
}

/// A server that syncs in its loop on a busy machine, with a pool of threads that have nothing to do.
#[test]
fn findings_begin_with_what_slows_the_program_down() {
    let mut calls = Vec::new();
    for round in 0..100u64 {
        let begin = 10_000 + round * 20_000_000;
        let mut sync = call("fdatasync", begin, 100_000, Vec::new());
        for (label, blocked) in [("block flush", 300_000), ("metadata write", 200_000)] {
            let mut sleep = sleep(label, "disk", blocked);
            sleep.begin_ns = begin + 1_000;
            sync.budget.blocked_ns += blocked;
            sync.sleeps.push(sleep);
        }
        sync.budget.runqueue_ns = 3_000_000;
        sync.wall_ns = 3_600_000;
        calls.push(sync);
        for tid in [201, 202] {
            let mut wait = sleep("futex", "lock", 19_000_000);
            wait.begin_ns = begin + 1_000;
            wait.resource = Some("0x1000 of process 100".into());
            wait.owner_certainty = None;
            (wait.owner_tid, wait.owner_comm, wait.owner_doing) = (None, None, None);
            let mut idle = call("futex", begin, 1_000, vec![wait]);
            (idle.tid, idle.comm) = (tid, "pool".into());
            calls.push(idle);
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.parquet");
    write(&path, &calls, 1000);
    let history = History::open(&[&path]).expect("a history");
    let report = analyze(&history, 1, &|_| {}).expect("a report").report;
    let texts: Vec<&str> = report.findings.iter().map(|one| &*one.text).collect();
    assert_eq!(
        texts[0],
        "fdatasync took 360 ms in 100 calls, 3.60 ms each on average: 300 ms waiting for a CPU, 50.0 ms \
         asleep (block flush 30.0 ms, metadata write 20.0 ms), 10.0 ms on the CPU."
    );
    assert!(texts[1].contains("waited 300 ms for a CPU"), "{texts:#?}");
    assert!(texts[1].contains("300 ms of that in fdatasync"));
    let last = report.findings.last().expect("findings");
    assert_eq!(last.kind, FindingKind::Idle);
    assert!(last.text.starts_with("2 threads did little"), "{texts:#?}");
    assert!(texts[..texts.len() - 1]
        .iter()
        .all(|text| !text.contains("futex")));
    assert!(report.slowest.iter().all(|call| call.call == "fdatasync"));
    let resting = report.threads.iter().filter(|thread| thread.at_rest);
    let mut resting: Vec<u32> = resting.map(|thread| thread.tid).collect();
    resting.sort_unstable();
    assert_eq!(resting, [201, 202]);
    assert_eq!(report.waits[0].call, "fdatasync");
    // Over time they are idle, and not waiting for a lock.
    let parts = |parts: &[debox_report::TimelinePart], name: &str| -> u64 {
        let found = parts.iter().filter(|part| part.name == name);
        found.flat_map(|part| &part.ns).sum()
    };
    let futex = report.timeline.by_call.iter();
    let futex = futex
        .filter(|one| one.call == "futex")
        .map(|one| &one.parts);
    for of in futex.chain([&report.timeline.parts]) {
        assert_eq!(parts(of, "blocked: lock"), 0);
        assert_eq!(parts(of, "blocked: idle"), 2 * 100 * 19_000_000);
    }
    // The sums leave nothing out.
    assert!(report.calls.iter().any(|call| call.name == "futex"));
}

#[test]
fn it_does_not_matter_how_it_is_read() {
    let json = |group_rows, threads| {
        serde_json::to_value(analyzed(group_rows, threads).report.calls).expect("JSON")
    };
    assert_eq!(json(500, 1), json(500, 3));
    let whole = |threads| {
        let mut report = analyzed(500, threads).report;
        report.recording.files.clear();
        serde_json::to_value(report).expect("JSON")
    };
    assert_eq!(whole(1), whole(4));
}

#[test]
fn a_run_against_itself_shows_no_difference() {
    let base = analyzed(700, 2);
    let mut new = analyzed(700, 2);
    new.compare(&base);
    let comparison = new.report.against.expect("a comparison");
    for call in comparison.calls {
        for difference in [call.median, call.p99, call.total] {
            assert_eq!(
                difference.verdict,
                Verdict::None,
                "{}: {difference:?}",
                call.call
            );
        }
    }
}

#[test]
fn an_empty_history_has_a_report() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.parquet");
    write(&path, &[], 10);
    let history = History::open(&[&path]).expect("a history");
    let report = analyze(&history, 2, &|_| {}).expect("a report").report;
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].kind, FindingKind::Nothing);
}

/// The program was preempted on the way to two of 2000 calls: it sees two slow calls, and the kernel
/// none.
#[test]
fn what_the_program_measures_is_set_beside_what_the_kernel_saw() {
    for (group_rows, threads) in [(700, 2), (1 << 18, 1)] {
        let report = analyzed(group_rows, threads).report;
        let level = report.user_level.as_ref().expect("it was recorded");
        let all: u64 = report.calls.iter().map(|call| call.count).sum();
        assert_eq!((level.count, level.not_measured), (2000, all - 2000));
        let [call] = level.calls.as_slice() else {
            panic!("{:?}", level.calls);
        };
        let opens: Vec<Call> = calls()
            .into_iter()
            .filter(|call| &*call.name == "openat")
            .collect();
        let sum = |of: fn(&Call) -> u64| opens.iter().map(of).sum::<u64>();
        assert_eq!(call.kernel.total_ns, sum(|call| call.wall_ns));
        let user = |call: &Call| call.user.map_or(0, |user| user.wall_ns);
        assert_eq!(call.user.total_ns, sum(user));
        assert_eq!(call.outside.total_ns, 2000 * 150 + 10_000_000);
        assert_eq!((call.outside.min_ns, call.outside.max_ns), (150, 5_000_150));
        assert_eq!((call.away_ns, call.calls_ns), (10_000_000, 0));
        assert_eq!(call.budget.blocked_ns, sum(|call| call.budget.blocked_ns));
        assert!(call.user.median_ns >= call.kernel.median_ns);
        // The two are drawn, whichever others are chosen.
        let peaks = call.points.iter().filter(|point| point.1 > 5_000_000);
        assert_eq!(peaks.count(), 2);
        assert_eq!(call.largest[1].away_ns, 5_000_000);
        let told: Vec<_> = report
            .findings
            .iter()
            .filter(|finding| finding.kind == FindingKind::UserLevel)
            .collect();
        let [finding] = told.as_slice() else {
            panic!("{told:?}");
        };
        assert_eq!(finding.evidence, "user-level-openat");
        assert!(finding.text.contains("off the CPU"), "{}", finding.text);
    }
}

/// Process 100 has all rows; its number is used again after them. Of process 101 there was no room for a name.
#[test]
fn a_process_has_the_name_of_its_time_and_a_missing_name_is_told() {
    let program = |from_ns, name: &str, place: &str| Process {
        pid: 100,
        from_ns,
        command: vec![name.to_string()],
        place: Some(place.to_string()),
        ..Process::default()
    };
    let mut calls = calls();
    let end_ns = calls.last().map_or(0, |last| last.start_ns + last.wall_ns);
    calls.push(Call {
        pid: 101,
        tid: 101,
        comm: "late".into(),
        ..call("read", end_ns, 5_000, Vec::new())
    });
    let wait = sleep("child process", "process", 500_000_000);
    calls.push(call("wait4", end_ns, 5_000, vec![wait]));
    let meta = Meta {
        processes: vec![
            program(2_000, "first", "first.service"),
            program(end_ns + 1_000, "second", "second.service"),
        ],
        processes_left_out: 3,
        not_recorded: vec!["Not monitored: process 7 is hidden.".to_string()],
        ..common::meta()
    };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.parquet");
    let mut writer = Writer::create(&path, meta, Limits::default()).expect("a file");
    for call in &calls {
        writer.append(call).expect("written");
    }
    writer.finish().expect("written");
    let history = History::open(&[&path]).expect("a history");
    let report = analyze(&history, 2, &|_| {}).expect("a report").report;
    let rows = report.by_process.rows.iter();
    let named: Vec<_> = rows
        .map(|row| (row.pid, row.name.as_str(), row.place.as_deref()))
        .collect();
    assert_eq!(
        named,
        [
            (Some(100), "first", Some("first.service")),
            (Some(101), "late", None)
        ]
    );
    // With several processes, what a parent's children did comes before its wait for them.
    let waits = report.findings.iter();
    let waits: Vec<&str> = waits
        .filter(|finding| finding.kind == FindingKind::Wait)
        .map(|finding| &*finding.text)
        .collect();
    assert!(
        waits.len() > 1 && waits[waits.len() - 1].contains("child process"),
        "{waits:#?}"
    );
    let of_openat = report.waits.iter().find(|wait| wait.call == "openat");
    assert_eq!(of_openat.expect("a wait").waker, "task helper (4711)");
    let places = report.by_unit.rows.iter().map(|row| row.name.as_str());
    assert_eq!(places.collect::<Vec<_>>(), ["first.service", "(not known)"]);
    assert_eq!(report.recording.processes_left_out, 3);
    for caveat in [
        "no room for the names of 3 programs",
        "Not monitored: process 7 is hidden.",
    ] {
        let says = |text: &String| text.contains(caveat);
        assert!(report.caveats.iter().any(says), "{:?}", report.caveats);
    }
}

/// What a thread computes between its calls is in `user_cpu_ns`. A record of the time between two calls has a part of it.
#[test]
fn the_time_of_a_thread_counts_what_it_computes_between_calls_once() {
    let between = Call {
        wall_ns: 1_000_000,
        budget: Budget {
            cpu_ns: 900_000,
            preempted_ns: 100_000,
            ..Budget::default()
        },
        ..call("(user)", 20_000, 0, Vec::new())
    };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.parquet");
    let calls = [call("read", 10_000, 5_000, Vec::new()), between];
    write(&path, &calls, 1 << 18);
    let history = History::open(&[&path]).expect("a history");
    let report = analyze(&history, 2, &|_| {}).expect("a report").report;
    let budget = &report.threads[0].budget;
    assert_eq!(
        (budget.wall_ns, budget.cpu_ns, budget.preempted_ns),
        (105_000, 5_000, 100_000)
    );
    let budget = &report.by_process.rows[0].budget;
    assert_eq!((budget.wall_ns, budget.cpu_ns), (105_000, 5_000));
}

/// `debox/schema/history-report-1.json` allows no field that it does not name, and requires all of
/// them.
#[test]
fn the_json_is_as_its_schema_says() {
    let schema = include_str!("../../schema/history-report-1.json");
    let schema = serde_json::from_str(schema).expect("the schema is JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let base = analyzed(700, 2);
    let mut new = analyzed(700, 2);
    new.compare(&base);
    let json = serde_json::to_value(&new.report).expect("JSON");
    let errors: Vec<String> = validator
        .iter_errors(&json)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// The recorder knows what threads computed between their calls; without it, the headline is about
/// calls.
#[test]
fn the_headline_is_the_recorders_or_of_the_records() {
    let report = analyzed(700, 2).report;
    assert!(!report.headline_is_of_run && report.account.is_none());
    let headline = report.headline.expect("a headline");
    let times = headline.shares.iter().map(|share| share.ns);
    assert_eq!(times.sum::<u64>(), headline.of_ns);
    let between = report.between_calls.as_ref().expect("(user)");
    // For the time between calls, the records have only what was off the CPU.
    let off_cpu = between.budget.wall_ns - between.budget.cpu_ns;
    assert_eq!(
        headline.of_ns + headline.idle_ns,
        report.totals.wall_ns + off_cpu
    );
    assert!(report.headline_text[0].starts_with("in its calls "));

    let totals = Totals {
        wall_ns: 1_000_000_000,
        user_cpu_ns: 970_000_000,
        kernel_cpu_ns: 30_000_000,
        ..Totals::default()
    };
    let thread = debox_model::report::Thread {
        pid: 100,
        tid: 100,
        totals: totals.clone(),
        ..Default::default()
    };
    let fill = debox_model::report::SampledFunction {
        function: "fill".to_string(),
        place: Some("matrix.c:31".to_string()),
        samples: 180,
        ..Default::default()
    };
    let samples = debox_model::report::Samples {
        total: 193,
        functions: vec![fill],
        ..Default::default()
    };
    let of_run = debox_model::report::Report {
        duration_ns: totals.wall_ns,
        totals,
        threads: vec![thread],
        samples: Some(samples.clone()),
        ..Default::default()
    };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.parquet");
    let meta = Meta {
        account: Some(Account::of(&of_run.with_headline())),
        ..common::meta()
    };
    let mut writer = Writer::create(&path, meta, Limits::default()).expect("a file");
    for call in calls() {
        writer.append(&call).expect("written");
    }
    writer.end().expect("written");
    let history = History::open(&[&path]).expect("a history");
    let report = analyze(&history, 1, &|_| {}).expect("a report").report;
    assert!(report.headline_is_of_run);
    assert_eq!(
        report.headline_text[0],
        "mostly computing in the program: 97 % (970 ms), most of it in fill (matrix.c:31): \
         93 % of 193 samples (89 to 96 %)"
    );
    assert_eq!(report.samples, Some(samples));
    let thread = report.threads.iter().find(|thread| thread.tid == 100);
    assert_eq!(thread.expect("it").user_cpu_ns, Some(970_000_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A truncated or modified file gives an error that names it, or a report; never anything else.
    #[test]
    fn damage_does_no_harm(cut in 0.0f64..1.2, changes in prop::collection::vec((0.0f64..1.0, any::<u8>()), 0..8)) {
        static WHOLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("t.parquet");
        let whole = WHOLE.get_or_init(|| {
            write(&path, &calls()[..600], 200);
            fs::read(&path).expect("the file")
        });
        let mut bytes = whole.clone();
        for (at, byte) in changes {
            let at = (bytes.len() as f64 * at) as usize;
            bytes[at] = byte;
        }
        bytes.truncate((bytes.len() as f64 * cut) as usize);
        fs::write(&path, &bytes).expect("the file");
        let result = History::open(&[&path]).and_then(|history| analyze(&history, 2, &|_| {}));
        if let Err(error) = result {
            let text = format!("{error:#}");
            prop_assert!(text.contains("t.parquet"), "{}", text);
        }
    }
}
