// SPDX-License-Identifier: MIT OR Apache-2.0

use debox::live::{Holder, LiveThread};

use super::*;

fn wait(pid: u32, label: &str, class: &str, ns: u64) -> LiveWait {
    LiveWait {
        pid,
        tid: pid,
        comm: "worker".into(),
        call: "read".into(),
        call_number: 0,
        label: label.into(),
        class: class.into(),
        site: "site".into(),
        stack: None,
        resource_kind: None,
        resource: None,
        is_ownable: false,
        holder: None,
        waker: None,
        events_fd: None,
        count: 1,
        blocked_ns: ns,
        max_ns: ns,
        open_ns: None,
    }
}

fn fact(wait: LiveWait, meaning: Meaning) -> Fact {
    Fact {
        wait,
        meaning,
        process: "worker".into(),
        place: "a.service".into(),
    }
}

fn facts() -> Facts {
    let mut held = wait(1, "file lock", "lock", 500);
    held.holder = Some(Holder {
        tid: 9,
        comm: "cron\u{1b}[2J".into(),
        certainty: "exact".into(),
        doing: None,
    });
    let thread = LiveThread {
        pid: 2,
        tid: 2,
        comm: "worker".into(),
        calls: 1,
        cpu_ns: 100,
        blocked_ns: 900,
        runqueue_ns: 40,
        preempted_ns: 2,
        call: None,
        has_ended: false,
    };
    Facts {
        seconds: 1.0,
        waits: vec![
            fact(held, Meaning::Harm),
            fact(wait(2, "pipe empty", "process", 900), Meaning::Peer),
            fact(wait(3, "epoll", "idle", 5_000), Meaning::Rest),
        ],
        threads: vec![ThreadFact {
            thread,
            process: "worker".into(),
            place: "a.service".into(),
            cpu_holder: Some("hog/5".into()),
        }],
        ..Facts::default()
    }
}

fn choice(by: By) -> Choice {
    Choice {
        by,
        sort: SortBy::Wait,
        filter: None,
        with_idle: false,
        within: Vec::new(),
    }
}

#[test]
fn what_holds_up_comes_before_what_is_usual() {
    let rows = rows(&facts(), &choice(By::Process));
    let pids: Vec<_> = rows.iter().map(|row| row.pid.unwrap()).collect();
    assert_eq!(pids, [1, 2], "and who rests is not shown");
    assert_eq!((rows[0].harm_ns, rows[0].waiting_ns), (500, 500));
    assert_eq!(
        &*rows[0].held_by[0].what, "cron\\x1b[2J/9",
        "no name controls the terminal"
    );
    assert_eq!(
        (rows[1].harm_ns, rows[1].waiting_ns, rows[1].cpu_ns),
        (42, 942, 100)
    );
    assert_eq!(&*rows[1].why[0].what, "pipe empty");
    assert_eq!(&*rows[1].held_by[0].what, "hog/5");
}

#[test]
fn every_grouping_has_each_wait_once() {
    for by in [
        By::Process,
        By::Thread,
        By::Unit,
        By::Call,
        By::Label,
        By::Class,
        By::Resource,
        By::Owner,
    ] {
        let all = Choice {
            with_idle: true,
            filter: Some(Predicate::parse("sleeps >= 1").unwrap()),
            ..choice(by)
        };
        let sum: u64 = rows(&facts(), &all).iter().map(|row| row.waiting_ns).sum();
        assert_eq!(sum, 6_400, "{by:?}");
    }
}

#[test]
fn a_filter_and_a_group_leave_out_the_rest() {
    let filtered = Choice {
        filter: Some(Predicate::parse("class == lock && longest > 400ns").unwrap()),
        ..choice(By::Label)
    };
    let names: Vec<String> = rows(&facts(), &filtered)
        .into_iter()
        .map(|row| row.name)
        .collect();
    assert_eq!(names, ["file lock"]);
    let within = Choice {
        within: vec![(By::Process, "2".into())],
        ..choice(By::Label)
    };
    let names: Vec<String> = rows(&facts(), &within)
        .into_iter()
        .map(|row| row.name)
        .collect();
    assert_eq!(names, ["waiting for a CPU", "pipe empty"]);
}
