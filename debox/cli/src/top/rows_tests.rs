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
        device: None,
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
        disk_user: None,
        process: "worker".into(),
        place: "a.service".into(),
        inside: None,
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
            inside: Some((12, 13)),
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

/// A process that mostly waits for a peer, but is held up for a ninth of the time.
#[test]
fn what_holds_a_row_up_is_told_first_unless_it_is_little() {
    let mut facts = facts();
    facts.threads.clear();
    facts.waits = vec![
        fact(wait(2, "pipe empty", "process", 800), Meaning::Peer),
        fact(wait(2, "page read", "disk", 100), Meaning::Harm),
    ];
    let why = |facts: &Facts| {
        let row = rows(facts, &choice(By::Process)).remove(0);
        row.why[0].what.to_string()
    };
    assert_eq!(why(&facts), "page read");
    facts.waits[1].wait.blocked_ns = 50;
    assert_eq!(why(&facts), "pipe empty");
}

/// The time of requests to a disk is that of who fills its queue.
#[test]
fn who_keeps_a_disk_busy_holds_the_others_up() {
    let mut facts = facts();
    facts.threads.clear();
    let mut other = fact(wait(3, "page read", "disk", 100), Meaning::Harm);
    other.disk_user = Some(crate::top::facts::DiskUser {
        pid: 7,
        name: "tar".into(),
    });
    facts.waits = vec![other];
    let row = rows(&facts, &choice(By::Process)).remove(0);
    assert_eq!(
        (&*row.held_by[0].what, &*row.held_by[0].kind),
        ("tar/7", "user")
    );
    let by_owner = rows(&facts, &choice(By::Owner)).remove(0);
    assert_eq!(by_owner.name, "tar/7");
}
