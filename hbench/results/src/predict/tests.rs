// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predictions with known answers.

use super::*;
use crate::application::{Component, Recording, Tap, SCHEMA as APPLICATION};
use crate::machine::tests::machine;

/// 1,000 openings, 500 reads of 4 KiB, 10 calls that no primitive stands for, and 10 ms in user mode.
pub(crate) fn some_application(machine: Option<Machine>) -> Application {
    let component = |primitive: &str, size, calls, bytes, each_ns: u64| Component {
        primitive: primitive.to_string(),
        size,
        calls,
        bytes,
        cpu_ns: calls * each_ns,
        sleeps: 0,
    };
    Application {
        schema: APPLICATION.to_string(),
        version: "0.1.0".to_string(),
        command: vec!["a".to_string(), "program".to_string()],
        recording: Recording {
            kernel: "6.18".to_string(),
            cpus: 2,
            elapsed_ns: 20_000_000,
            processes: 1,
            threads: 1,
            calls: 1510,
            user_cpu_ns: 10_000_000 + 1510 * 300,
            kernel_cpu_ns: 1,
            calls_after_work: 0,
            faults_in_calls: 0,
            overlap: 1.0,
            lost: 0,
        },
        components: vec![
            component("file.open", None, 1000, 0, 2070),
            component("file.read", Some(4096), 500, 500 * 4096, 570),
            component("other.ioctl", None, 10, 0, 10_070),
        ],
        waits: vec![Wait {
            kind: "timer".to_string(),
            ns: 5_000_000,
            count: 1,
        }],
        // 10 ms of user mode, 1,510 entries, and what is left of the calls.
        runs: [-1i64, 0, 1]
            .map(|off| Run {
                elapsed_ns: (17_501_000 + off) as u64,
                cpu_ns: (10_000_000 + 151_000 + 2_000_000 + 250_000 + 100_000 + off) as u64,
                faults_minor: 0,
                faults_major: 0,
            })
            .to_vec(),
        tap: Some(Tap {
            inside_ns: 70.0,
            between_ns: 300.0,
        }),
        machine,
    }
}

/// `entry`: ns of a null call; `own`: factor of everything else.
fn with(entry: f64, own: f64) -> Machine {
    let user: Vec<_> = MAPPING
        .user
        .iter()
        .map(|name| (name.as_str(), own, None))
        .collect();
    let units = [
        ("call.null", entry, None),
        ("file.open/hot", 2.0 * entry + 1000.0 * own, None),
        ("file.reread/4K", entry + 300.0 * own, Some(4096)),
    ];
    machine(&[&user[..], &units].concat())
}

fn of(prediction: &Prediction, name: &str) -> OnMachine {
    let found = prediction.machines.iter().find(|one| one.name == name);
    found.expect("it was asked for").clone()
}

#[test]
fn on_its_own_machine_it_takes_what_it_took() {
    let here = with(100.0, 1.0);
    let application = some_application(Some(here.clone()));
    let found = predict(&application, &[("here".to_string(), here)], None).expect("whole");
    let one = &found.machines[0];
    assert!(
        (found.recorded_work_ns - 12_501_000.0).abs() < 1.0,
        "{found:?}"
    );
    assert!((one.elapsed_ns - 17_501_000.0).abs() < 1.0, "{one:?}");
    assert!((one.work_ns - 12_501_000.0).abs() < 1.0, "{one:?}");
    let (low, high) = one.elapsed_interval_ns;
    // An hour later it may be faster or slower.
    let later = (2.0 * STANDARD * LATER).exp();
    assert!(low < one.elapsed_ns && one.elapsed_ns < high);
    assert!((high / low - later).abs() < 0.01, "{low} to {high}");
}

#[test]
fn each_part_is_scaled_by_its_own_ratio() {
    let here = with(100.0, 1.0);
    let application = some_application(Some(here.clone()));
    let machines = [
        ("traced".to_string(), with(10_100.0, 1.0)),
        ("half as fast".to_string(), with(200.0, 2.0)),
        ("here".to_string(), here),
    ];
    let found = predict(&application, &machines, None).expect("whole");
    let order: Vec<&str> = found.machines.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(order, ["here", "half as fast", "traced"]);
    // 10 us more for each entry, and nothing else.
    let traced = of(&found, "traced");
    assert!(
        (traced.work_ns - (12_501_000.0 + 1510.0 * 10_000.0)).abs() < 50_000.0,
        "{traced:?}"
    );
    assert!((traced.elapsed_ns - traced.work_ns - 5_000_000.0).abs() < 1.0);
    // The timer waits as long, and no benchmark stands for ioctl.
    let half = of(&found, "half as fast");
    let kept = 100_000.0;
    let wanted = 2.0 * (12_501_000.0 - kept) + kept + 5_000_000.0;
    assert!(
        (half.elapsed_ns - wanted).abs() < 30_000.0,
        "{} {wanted}",
        half.elapsed_ns
    );
    assert!((half.unmapped_share - kept / half.work_ns).abs() < 1e-6);
    let (low, high) = half.elapsed_interval_ns;
    assert!(low <= wanted && wanted <= high);
    assert!((half.baselines.user_ratio_ns - 2.0 * 17_501_000.0).abs() < 1000.0);
    let sum: f64 = half.work.iter().map(|part| part.predicted_ns).sum();
    assert!((sum - half.work_ns).abs() < 1.0);
}

#[test]
fn threads_overlap_as_far_as_there_are_cpus() {
    let here = with(100.0, 1.0);
    let mut application = some_application(Some(here.clone()));
    application.recording.overlap = 2.0;
    application.waits.clear();
    for run in &mut application.runs {
        run.elapsed_ns = 7_000_000;
    }
    let mut alone = here.clone();
    alone.environment.cpus_allowed = vec![0];
    let machines = [("two".to_string(), here), ("one".to_string(), alone)];
    let found = predict(&application, &machines, None).expect("whole");
    let (one, two) = (of(&found, "one"), of(&found, "two"));
    assert!((two.elapsed_ns - 7_000_000.0).abs() < 1.0, "{two:?}");
    // Its threads overlapped by less without recording: one CPU has nothing else to do than the work.
    assert!((one.elapsed_ns - one.work_ns).abs() < 1.0, "{one:?}");
    assert_eq!(one.work_ns, two.work_ns);
    assert!((two.overlap - two.work_ns / 7_000_000.0).abs() < 1e-9);
}

#[test]
fn without_its_machine_it_says_what_to_do() {
    let error = predict(&some_application(None), &[], None).expect_err("no machine");
    assert!(error.to_string().contains("--on"), "{error}");
}

#[test]
fn a_quota_stops_what_does_not_wait_long_enough() {
    let here = with(100.0, 1.0);
    let application = some_application(Some(here.clone()));
    let under = |cpus: f64| {
        let mut machine = here.clone();
        machine.environment.quota_cpus = Some(cpus);
        machine.environment.quota_period_ns = Some(100_000);
        machine
    };
    let machines = [
        ("half".to_string(), under(0.5)),
        ("most".to_string(), under(0.9)),
    ];
    let found = predict(&application, &machines, None).expect("whole");
    // 12.5 ms of work in 17.5 ms are 0.71 CPUs.
    let (half, most) = (of(&found, "half"), of(&found, "most"));
    // It need not wait for the end of its last period.
    assert!(
        (half.elapsed_ns - 2.0 * 12_501_000.0).abs() < 100_000.0,
        "{half:?}"
    );
    assert!((half.elapsed_ns - half.throttled_ns - 17_501_000.0).abs() < 1.0);
    assert_eq!(most.throttled_ns, 0.0);
    assert!((most.elapsed_ns - 17_501_000.0).abs() < 1.0, "{most:?}");
}

#[test]
fn an_idle_cpu_is_woken_where_there_are_two() {
    let round_trip = |mut machine: Machine, ns: f64| {
        let one = machine.units["call.null"];
        let unit = crate::machine::Unit { ns, ..one };
        let unit = crate::machine::Unit {
            interval_ns: Some((ns, ns)),
            ..unit
        };
        machine
            .units
            .insert("pipe.latency/two-cpus".to_string(), unit);
        machine
    };
    let here = round_trip(with(100.0, 1.0), 10_400.0);
    let mut application = some_application(Some(here.clone()));
    application.waits[0].kind = WAKING.to_string();
    let mut alone = here.clone();
    alone.environment.cpus_allowed = vec![0];
    let machines = [
        ("two".to_string(), here),
        // Its calls take longer, its waking three times as long.
        ("slow".to_string(), round_trip(with(1000.0, 1.0), 34_000.0)),
        ("one".to_string(), alone),
    ];
    let found = predict(&application, &machines, None).expect("whole");
    let waited = |name: &str| of(&found, name).waits[0].predicted_ns;
    assert!((waited("two") - 5e6).abs() < 1.0);
    assert!((waited("slow") - 15e6).abs() < 0.2e6, "{}", waited("slow"));
    assert_eq!(waited("one"), 0.0);
}

#[test]
fn threads_slow_each_other_down_where_they_run_together() {
    let beside = |mut machine: Machine, [user, entry]: [f64; 2]| {
        let together = &MAPPING.together;
        for (names, factor) in [(&together.user, user), (&together.entry, entry)] {
            let entry_ns = machine.units["call.null"].ns;
            for (name, factor) in names.iter().zip([1.0, factor]) {
                let unit = crate::machine::Unit {
                    ns: entry_ns * factor,
                    interval_ns: None,
                    bytes: None,
                };
                // call.null is there already.
                machine.units.entry(name.clone()).or_insert(unit);
            }
        }
        machine
    };
    let here = beside(with(100.0, 1.0), [1.0, 1.0]);
    let mut application = some_application(Some(here.clone()));
    application.recording.overlap = 2.0;
    application.waits.clear();
    for run in &mut application.runs {
        run.elapsed_ns = run.cpu_ns / 2;
    }
    let machines = [
        ("here".to_string(), here.clone()),
        (
            "shared core".to_string(),
            beside(with(100.0, 1.0), [1.5, 1.5]),
        ),
        (
            "one at a time".to_string(),
            beside(with(10_100.0, 1.0), [1.0, 2.0]),
        ),
    ];
    let found = predict(&application, &machines, None).expect("whole");
    let (own, shared) = (of(&found, "here"), of(&found, "shared core"));
    assert!((shared.work_ns / own.work_ns - 1.5).abs() < 1e-6);
    assert!((shared.elapsed_ns / own.elapsed_ns - 1.5).abs() < 1e-3);
    // 1,510 calls of 10.1 us each, one after the other; the rest on two CPUs.
    let queued = of(&found, "one at a time");
    let entries = 1510.0 * 10_100.0;
    let wanted = entries + (own.work_ns - 151_000.0) / 2.0;
    assert!(
        (queued.elapsed_ns - wanted).abs() < 0.02 * wanted,
        "{queued:?}"
    );
    // Who recorded on such a machine and moves to one CPU gains.
    let application = Application {
        machine: Some(beside(with(100.0, 1.0), [1.5, 1.5])),
        ..application
    };
    let mut alone = with(100.0, 1.0);
    alone.environment.cpus_allowed = vec![0];
    let found = predict(&application, &[("one".to_string(), alone)], None).expect("whole");
    assert!((of(&found, "one").work_ns * 1.5 - own.work_ns).abs() < 1000.0);
}

#[test]
fn where_nothing_is_stored_nothing_waits_for_it() {
    let on = |file_system: &str, sync_ns: Option<f64>| {
        let mut machine = with(100.0, 1.0);
        machine.environment.file_system = Some(file_system.to_string());
        machine
            .units
            .extend(sync_ns.map(|ns| ("file.sync/fsync".to_string(), unit(ns))));
        machine
    };
    fn unit(ns: f64) -> crate::machine::Unit {
        crate::machine::Unit {
            ns,
            interval_ns: Some((0.99 * ns, 1.01 * ns)),
            bytes: None,
        }
    }
    let (disk, memory) = (on("ext4", Some(100_200.0)), on("tmpfs", None));
    let mut application = some_application(Some(disk.clone()));
    application.components.push(Component {
        primitive: "file.sync".to_string(),
        size: None,
        calls: 10,
        bytes: 0,
        cpu_ns: 10 * 50_070,
        sleeps: 0,
    });
    application.waits[0].kind = "disk.sync".to_string();
    for run in &mut application.runs {
        run.cpu_ns += 10 * 50_100;
        run.elapsed_ns += 10 * 50_100;
    }
    let machines = [
        ("disk".to_string(), disk.clone()),
        ("memory".to_string(), memory.clone()),
        (
            "slow disk".to_string(),
            on("btrfs", Some(100_000.0 * 4.0 + 200.0)),
        ),
    ];
    let found = predict(&application, &machines, None).expect("whole");
    let own_ns = of(&found, "disk").elapsed_ns;
    let gained = own_ns - of(&found, "memory").elapsed_ns;
    assert!(
        (gained - 5_000_000.0 - 500_000.0).abs() < 10_000.0,
        "{gained}"
    );
    // Four times the wait, and four times the work of it.
    let lost = of(&found, "slow disk").elapsed_ns - own_ns;
    assert!((lost - 3.0 * 5_500_000.0).abs() < 200_000.0, "{lost}");

    // Of a program that ran on tmpfs, it is predicted what the disk takes.
    application.machine = Some(memory.clone());
    application.waits.clear();
    let found = predict(
        &application,
        &[("disk".to_string(), disk), ("memory".to_string(), memory)],
        None,
    )
    .expect("whole");
    let (disk, memory) = (of(&found, "disk"), of(&found, "memory"));
    let more = disk.elapsed_ns - memory.elapsed_ns;
    assert!((more - 10.0 * 100_200.0).abs() < 20_000.0, "{more}");
    let part = disk
        .waits
        .iter()
        .find(|part| part.name == "waiting: disk.sync");
    let part = part.expect("it is shown");
    assert_eq!((part.count, part.measured_ns), (10, 0.0));
    let (low, high) = disk.elapsed_interval_ns;
    assert!(high - low > 0.5 * more, "{low} to {high}");
}

#[test]
fn where_a_wait_for_a_disk_is_gone_so_is_the_waking_after_it() {
    let disk = |stores: bool| {
        let mut machine = with(100.0, 1.0);
        let unit = crate::machine::Unit {
            ns: 100_000.0,
            interval_ns: Some((99_000.0, 101_000.0)),
            bytes: None,
        };
        machine.units.insert("file.sync/fsync".to_string(), unit);
        machine.environment.file_system = Some(if stores { "ext4" } else { "tmpfs" }.to_string());
        machine
    };
    let (here, memory) = (disk(true), disk(false));
    let mut application = some_application(Some(here.clone()));
    let wait = |kind: &str, ns, count| Wait {
        kind: kind.to_string(),
        ns,
        count,
    };
    application.waits = vec![
        wait("disk.sync", 3_000_000, 30),
        wait("waking by a device or a timer", 1_000_000, 30),
        wait("timer", 500_000, 10),
    ];
    let machines = [("disk".to_string(), here), ("memory".to_string(), memory)];
    let found = predict(&application, &machines, None).expect("whole");
    // Of 5 ms beside the work, half a millisecond is explained by nothing. The waits for the disk have their part of it.
    let (disk, memory) = (of(&found, "disk"), of(&found, "memory"));
    assert!((disk.elapsed_ns - 17_501_000.0).abs() < 1.0, "{disk:?}");
    let ns = |one: &OnMachine, kind: &str| {
        let part = one
            .waits
            .iter()
            .find(|part| part.name == format!("waiting: {kind}"));
        part.map_or(0.0, |part| part.predicted_ns)
    };
    let longer = 3_000_000.0 * (1.0 + 500_000.0 / (12_501_000.0 + 3_000_000.0));
    assert!((ns(&disk, "disk.sync") - longer).abs() < 1.0, "{disk:?}");
    assert!(ns(&memory, "disk.sync").abs() < 1e-9);
    let waking = "waking by a device or a timer";
    assert!((ns(&disk, waking) - 1_000_000.0).abs() < 1.0);
    assert!((ns(&memory, waking) - 250_000.0).abs() < 1.0, "{memory:?}");
    assert!((ns(&memory, "timer") - 500_000.0).abs() < 1.0);
}
