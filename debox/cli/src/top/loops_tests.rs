// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;

/// A wait of a thread. `at`: the epoll instance.
fn wait(tid: u32, call: &str, label: &str, class: &str, at: Option<u32>) -> LiveWait {
    LiveWait {
        pid: tid / 100 * 100,
        tid,
        comm: "server".into(),
        call: call.into(),
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
        events_fd: at,
        count: 1,
        blocked_ns: 1,
        max_ns: 1,
        open_ns: None,
    }
}

fn epoll(tid: u32, at: u32) -> LiveWait {
    wait(tid, "epoll_wait", "epoll", "idle", Some(at))
}

fn futex(tid: u32) -> LiveWait {
    wait(tid, "futex", "futex", "lock", None)
}

/// Whom instances and threads serve.
#[derive(Default)]
struct Answers {
    instances: HashMap<u32, Serves>,
    threads: HashMap<u32, Serves>,
    asked: u32,
}

impl Asks for Answers {
    fn at_instance(&mut self, _: u32, instance: u32) -> Option<Serves> {
        self.asked += 1;
        self.instances.get(&instance).copied()
    }

    fn of_thread(&mut self, tid: u32) -> Option<Serves> {
        self.asked += 1;
        self.threads.get(&tid).copied()
    }
}

fn places(waits: &[LiveWait], answers: &mut Answers) -> Vec<Place> {
    let mut loops = Loops::default();
    loops.take_in(waits, &[], answers);
    waits.iter().map(|wait| loops.place(wait)).collect()
}

/// Node with execSync: the inner loop waits at an instance of its own.
#[test]
fn whatever_a_loop_waits_for_but_its_events_blocks_it() {
    let waits = [
        epoll(100, 9),
        epoll(100, 20),
        wait(100, "fsync", "fsync writeback", "disk", None),
        wait(100, "clock_nanosleep", "timer", "idle", None),
        wait(100, "poll", "poll", "idle", None),
        futex(100),
        // The system call is the right one, but it is a page fault that waits.
        wait(100, "epoll_wait", "page read", "disk", Some(9)),
        futex(101),
    ];
    use Place::{Events, InnerLoop, Inside, Outside};
    let expected = [
        Events, InnerLoop, Inside, Inside, Inside, Inside, Inside, Outside,
    ];
    for serves in [Some(Serves::Several), None] {
        let mut answers = Answers {
            instances: serves.map(|serves| (9, serves)).into_iter().collect(),
            ..Answers::default()
        };
        answers.instances.insert(20, Serves::NoClient);
        assert_eq!(places(&waits, &mut answers), expected, "{serves:?}");
    }
}

/// A backend of PostgreSQL waits for its client at one instance, and for a row lock at another.
#[test]
fn a_thread_with_one_client_is_no_loop() {
    let waits = [
        epoll(100, 4),
        epoll(100, 7),
        wait(100, "fsync", "fsync writeback", "disk", None),
        // The checkpointer only has its latch.
        epoll(200, 4),
        wait(200, "fsync", "fsync writeback", "disk", None),
    ];
    let mut answers = Answers {
        instances: [(4, Serves::NoClient), (7, Serves::One)]
            .into_iter()
            .collect(),
        ..Answers::default()
    };
    use Place::{Latch, Outside};
    let expected = [Latch, Outside, Outside, Outside, Outside];
    assert_eq!(places(&waits, &mut answers), expected);
}

#[test]
fn a_main_thread_that_polls_for_several_is_a_loop() {
    let select = |count: u64, tid: u32| LiveWait {
        count,
        ..wait(tid, "select", "select", "idle", None)
    };
    let sleep = |tid: u32| wait(tid, "clock_nanosleep", "timer", "idle", None);
    let waits = [
        select(5, 100),
        sleep(100),
        select(2, 200),
        sleep(200),
        select(5, 300),
        sleep(300),
        select(5, 401),
        sleep(401),
    ];
    let mut answers = Answers {
        threads: [100, 200, 401]
            .map(|tid| (tid, Serves::Several))
            .into_iter()
            .collect(),
        ..Answers::default()
    };
    answers.threads.insert(300, Serves::One);
    use Place::{Events, Inside, Outside};
    let expected = [
        Events, Inside, Outside, Outside, Outside, Outside, Outside, Outside,
    ];
    assert_eq!(places(&waits, &mut answers), expected);
}

/// Workers of tokio and Go take turns at one instance; who has no turn sleeps on a futex.
#[test]
fn threads_that_share_their_events_rest_between_turns() {
    let mut contended = futex(102);
    contended.is_ownable = true;
    let waits = [
        epoll(101, 9),
        epoll(102, 9),
        futex(101),
        contended,
        wait(101, "fsync", "fsync writeback", "disk", None),
    ];
    let mut answers = Answers {
        instances: [(9, Serves::Several)].into_iter().collect(),
        ..Answers::default()
    };
    use Place::{Events, Inside, Outside};
    let expected = [Events, Events, Outside, Inside, Inside];
    assert_eq!(places(&waits, &mut answers), expected);
}

#[test]
fn answers_are_kept_and_asked_for_again() {
    let mut loops = Loops::default();
    let mut answers = Answers {
        instances: [(9, Serves::NoClient)].into_iter().collect(),
        ..Answers::default()
    };
    let waits = [epoll(100, 9)];
    for _ in 0..ASKED_AGAIN {
        loops.take_in(&waits, &[], &mut answers);
    }
    assert_eq!(answers.asked, 1);
    assert_eq!(loops.place(&futex(100)), Place::Outside);
    answers.instances.insert(9, Serves::Several);
    loops.take_in(&waits, &[], &mut answers);
    assert_eq!(
        (answers.asked, loops.place(&futex(100))),
        (2, Place::Inside)
    );
    // No look asks for more than so many.
    let many: Vec<LiveWait> = (1..=1000).map(|n| epoll(n * 100, 9)).collect();
    answers.asked = 0;
    Loops::default().take_in(&many, &[], &mut answers);
    assert_eq!(answers.asked as usize, ASKED_MAX);
}
