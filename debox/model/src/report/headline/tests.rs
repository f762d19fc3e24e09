use super::super::*;
use super::*;

const S: u64 = 1_000_000_000;

fn sleep(label: &str, class: &str, call: &str, count: u64, blocked_ns: u64) -> Sleep {
    Sleep {
        syscall: call.to_string(),
        label: label.to_string(),
        class: class.to_string(),
        count,
        blocked_ns,
        max_ns: blocked_ns / count.max(1),
        ..Sleep::default()
    }
}

fn held(mut sleep: Sleep, by: &str) -> Sleep {
    sleep.owners.push(Owner {
        certainty: Certainty::Exact,
        comm: Some(by.to_string()),
        count: sleep.count,
        blocked_ns: sleep.blocked_ns,
        ..Owner::default()
    });
    sleep
}

/// A report of these processes' threads, which lived the whole run and did only this.
fn report(duration_ns: u64, pids: &[u32], user_cpu_ns: u64, sleeps: Vec<Sleep>) -> Report {
    let threads = pids.iter().zip(1..).map(|(pid, tid)| Thread {
        pid: *pid,
        tid,
        ..Thread::default()
    });
    let blocked_ns = sleeps.iter().map(|sleep| sleep.blocked_ns).sum();
    Report {
        schema: SCHEMA.to_string(),
        duration_ns,
        totals: Totals {
            wall_ns: user_cpu_ns + blocked_ns,
            user_cpu_ns,
            blocked_ns,
            ..Totals::default()
        },
        sleeps,
        threads: threads.collect(),
        ..Report::default()
    }
}

fn causes(report: &Report) -> Vec<(String, u64)> {
    let headline = Headline::of(report).expect("time was seen");
    assert_eq!(headline.of_ns, sum(&headline.shares));
    let pair = |share: Share| (share.cause, share.ns);
    headline.shares.into_iter().map(pair).collect()
}

fn text(cause: &str, ns: u64) -> (String, u64) {
    (cause.to_string(), ns)
}

#[test]
fn nothing_seen_has_no_headline() {
    assert_eq!(Headline::of(&report(S, &[1], 0, Vec::new())), None);
}

#[test]
fn of_one_thread_all_counts() {
    // A retry loop, which spends its time in its own timers.
    let retry = vec![sleep("timer", "idle", "clock_nanosleep", 40, S * 9 / 10)];
    let retry = report(S, &[1], S / 10, retry);
    let expected = [text("timer", S * 9 / 10), text("user CPU", S / 10)];
    assert_eq!(causes(&retry), expected);
    assert!(!Headline::of(&retry).unwrap().is_served);
}

/// The user tap: a stop inside a call is a separate sleep, and its time is outside the call.
#[test]
fn a_stop_outside_a_call_counts_once() {
    let sleeps = vec![
        sleep("pipe empty", "process", "read", 1, S / 5),
        sleep("stopped by a signal", "process", "(user)", 1, S / 10),
    ];
    let mut stopped = report(S, &[1], S, sleeps);
    stopped.totals.blocked_ns = S / 5;
    stopped.totals.outside_ns = Some(S / 10 + 7);
    let expected = [
        text("user CPU", S),
        text("pipe empty", S / 5),
        text("stopped by a signal", S / 10),
        text("outside", 7),
    ];
    assert_eq!(causes(&stopped), expected);
}

fn cpu_wait(kind: &str, comm: Option<&str>, pid: u32, ns: u64) -> CpuWait {
    CpuWait {
        kind: CpuWaitKind::of(kind).expect("a kind"),
        comm: comm.map(str::to_string),
        pid: comm.map(|_| pid),
        group: (kind == "quota").then(|| "limited".to_string()),
        turns: 4,
        ns,
        max_ns: ns / 2,
        ..CpuWait::default()
    }
}

#[test]
fn a_wait_for_a_cpu_has_a_cause_of_its_own() {
    let mut waited = report(S, &[1], S / 10, Vec::new());
    waited.totals.preempted_ns = S * 9 / 10;
    let hogs = [
        cpu_wait("task", Some("hog"), 7, S / 5),
        cpu_wait("task", Some("hog"), 8, S / 5),
    ];
    waited.cpu_waits = hogs.to_vec();
    waited.cpu_waits.push(cpu_wait("quota", None, 0, S / 2));
    let headline = Headline::of(&waited).unwrap();
    let expected = [
        text("CPU quota", S / 2),
        text("waiting for a CPU", S * 4 / 10),
        text("user CPU", S / 10),
    ];
    assert_eq!(causes(&waited), expected);
    let [quota, had, _] = &headline.shares[..] else {
        panic!("{headline:?}")
    };
    let group = quota
        .resource
        .as_ref()
        .and_then(|group| group.name.as_deref());
    assert_eq!((group, quota.count), (Some("limited"), Some(4)));
    assert_eq!(had.owner.as_deref(), Some("hog (2 processes)"));

    // A process that was only one of many taking turns is not named.
    waited.cpu_waits = (0..5)
        .map(|at| cpu_wait("task", Some(&format!("p{at}")), at, S * 9 / 50))
        .collect();
    let headline = Headline::of(&waited).unwrap();
    assert_eq!(
        (&*headline.shares[0].cause, &headline.shares[0].owner),
        ("waiting for a CPU", &None)
    );
    // Rows with more time than was waited do not make the shares larger.
    waited.cpu_waits = vec![cpu_wait("quota", None, 0, 5 * S)];
    let expected = [text("CPU quota", S * 9 / 10), text("user CPU", S / 10)];
    assert_eq!(causes(&waited), expected);
}

#[test]
fn a_wait_for_children_is_theirs() {
    let child = vec![
        sleep("child process", "process", "wait4", 1, S * 19 / 20),
        sleep("timer", "idle", "clock_nanosleep", 1, S / 2),
    ];
    let shell = report(S, &[1, 2], S / 2, child.clone());
    assert_eq!(
        causes(&shell),
        [text("timer", S / 2), text("user CPU", S / 2)]
    );
    // Nothing else is known of a child that is not monitored.
    let attached = report(S, &[1], 0, child);
    assert_eq!(causes(&attached)[0], text("child process", S * 19 / 20));
}

#[test]
fn idle_threads_stand_aside_while_others_work() {
    let pool = || {
        vec![
            sleep("futex", "lock", "futex", 8, 8 * S),
            sleep("epoll", "idle", "epoll_wait", 10, S),
        ]
    };
    let busy = report(S, &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1], S, pool());
    assert_eq!(causes(&busy), [text("user CPU", S)]);
    assert_eq!(Headline::of(&busy).unwrap().idle_ns, 9 * S);
    // Without work, the headline is about the thread that waits for it, not about its pool.
    let idle = report(S, &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1], S / 100, pool());
    assert_eq!(causes(&idle)[0], text("epoll", S));
    assert_eq!(Headline::of(&idle).unwrap().idle_ns, 8 * S);
    // Nor is it about a helper thread that only its own process wakes.
    let mut helper = sleep("epoll", "idle", "epoll_pwait", 1, S);
    helper.resources.push(ResourceShare {
        resource: Resource {
            kind: "eventfd".to_string(),
            name: None,
        },
        count: 1,
        blocked_ns: S,
    });
    let ticks = sleep("timer", "idle", "epoll_pwait", 20, S * 9 / 10);
    let loops = report(S, &[1, 1], S / 100, vec![helper, ticks]);
    assert_eq!(causes(&loops)[0], text("timer", S * 9 / 10));
}

#[test]
fn locks_that_are_held_or_short_are_no_rest() {
    let long = sleep("futex", "lock", "futex", 8, 8 * S);
    let kept = report(S, &[1; 9], S, vec![held(long, "holder")]);
    assert_eq!(causes(&kept)[0], text("futex", 8 * S));
    let short = sleep("futex", "lock", "futex", 8000, 8 * S);
    let contended = report(S, &[1; 9], S, vec![short]);
    assert_eq!(causes(&contended)[0], text("futex", 8 * S));
}

/// A pool whose threads sometimes contend for a lock still waits for work.
#[test]
fn a_lock_among_many_waits_for_work_is_not_what_they_wait_for() {
    let mut mixed = sleep("futex", "lock", "futex", 8, 8 * S);
    mixed.owners.push(Owner {
        certainty: Certainty::Exact,
        comm: Some("holder".to_string()),
        count: 1,
        blocked_ns: S / 1000,
        ..Owner::default()
    });
    let pool = report(S, &[1; 9], S, vec![mixed]);
    assert_eq!(causes(&pool), [text("user CPU", S)]);
    assert_eq!(Headline::of(&pool).unwrap().idle_ns, 8 * S);
}

/// Connections' threads wait for work, and two of them in a request.
#[test]
fn a_wait_in_a_request_is_told_apart_from_waits_for_work() {
    let site = |function: &str, count: u64, blocked_ns: u64| {
        let frame = Frame {
            function: function.to_string(),
            ..Frame::default()
        };
        SleepCallSite {
            frames: vec![frame.clone()],
            caller: Some(frame),
            count,
            blocked_ns,
        }
    };
    let mut pool = sleep("futex", "lock", "futex", 10, 10 * S);
    pool.call_sites = vec![
        site("work", 8, 7 * S),
        site("dispatch_command(THD*)", 2, 3 * S),
    ];
    let report = report(2 * S, &[1; 9], S, vec![pool]);
    let headline = Headline::of(&report).unwrap();
    assert_eq!(causes(&report), [text("futex", 3 * S), text("user CPU", S)]);
    assert_eq!(headline.idle_ns, 7 * S);
    let words = headline_words::what_matters(&headline).unwrap();
    assert_eq!(
        words,
        "mostly futex in futex: 75 % (3.00 s in 2 sleeps), called from dispatch_command(THD*)"
    );
}

#[test]
fn a_server_waits_for_requests_and_a_client_for_its_own() {
    let waits = || vec![sleep("poll", "idle", "poll", 3, S)];
    let client = report(S, &[1], 0, waits());
    assert!(!Headline::of(&client).unwrap().is_served);
    let mut server = report(S, &[1], 0, waits());
    server.syscalls.push(Syscall {
        name: "listen".to_string(),
        calls: 1,
        ..Syscall::default()
    });
    assert!(Headline::of(&server).unwrap().is_served);
}

#[test]
fn what_is_not_known_is_a_share_of_its_own() {
    let mut unknown = report(S, &[1], 0, Vec::new());
    unknown.totals.blocked_ns = S / 2;
    unknown.totals.runqueue_ns = S / 8;
    unknown.totals.preempted_ns = S / 8;
    unknown.totals.kernel_cpu_ns = S / 4;
    unknown.syscalls = vec![Syscall {
        name: "read".to_string(),
        cpu_ns: S / 4,
        ..Syscall::default()
    }];
    let headline = Headline::of(&unknown).unwrap();
    assert_eq!(headline.shares[0].cause, "asleep");
    let kernel = headline
        .shares
        .iter()
        .find(|share| share.cause == "kernel CPU");
    assert_eq!(kernel.unwrap().call.as_deref(), Some("read"));
    assert_eq!(headline.of_ns, S);
}

#[test]
fn waits_for_time_count_in_a_pipeline_and_not_in_a_pool() {
    let waits = || {
        vec![
            sleep("timer", "idle", "clock_nanosleep", 1, S),
            sleep("pipe full", "process", "write", 900, S * 3 / 2),
        ]
    };
    let pipeline = report(S, &[1, 2, 3], 0, waits());
    assert_eq!(Headline::of(&pipeline).unwrap().idle_ns, 0);
    let pool = report(S, &[1, 1, 1], 0, waits());
    assert_eq!(Headline::of(&pool).unwrap().idle_ns, S);
}

#[test]
fn what_still_sleeps_is_told() {
    let mut stuck = report(S, &[1, 1], 0, Vec::new());
    stuck.totals.blocked_ns = 2 * S;
    let call = |label: &str, for_ns| InFlight {
        syscall: "futex".to_string(),
        label: label.to_string(),
        class: "lock".to_string(),
        for_ns,
        ..InFlight::default()
    };
    // One has waited since before the start, so its call is longer than the time that was observed.
    stuck.in_flight = vec![call("futex", 3 * S), call("futex", S), call("running", S)];
    assert_eq!(causes(&stuck), [text("futex", 2 * S)]);
    let headline = Headline::of(&stuck).unwrap();
    assert_eq!(headline.shares[0].count, Some(2));
    // Time that no call explains stays unknown.
    stuck.in_flight = vec![call("inode lock", S / 2)];
    let expected = [text("asleep", S * 3 / 2), text("inode lock", S / 2)];
    assert_eq!(causes(&stuck), expected);
}

fn waited_on(mut sleep: Sleep, name: &str, part: f64) -> Sleep {
    let blocked_ns = (sleep.blocked_ns as f64 * part) as u64;
    sleep.resources.push(ResourceShare {
        resource: Resource {
            kind: "socket".to_string(),
            name: Some(name.to_string()),
        },
        count: 1,
        blocked_ns,
    });
    sleep
}

fn resource(sleep: Sleep) -> Option<String> {
    let headline = Headline::of(&report(S, &[1], 0, vec![sleep])).expect("time was seen");
    headline.shares[0].resource.clone()?.name
}

#[test]
fn all_connections_to_a_peer_are_one() {
    let receive = || sleep("TCP receive", "network", "recvfrom", 10, S);
    let one = waited_on(receive(), "tcp 10.0.0.1:4000 to 10.0.0.2:80", 1.0);
    assert_eq!(
        resource(one).as_deref(),
        Some("tcp 10.0.0.1:4000 to 10.0.0.2:80")
    );
    let several = (0..4).fold(receive(), |sleep, port| {
        waited_on(sleep, &format!("tcp 10.0.0.1:{port} to 10.0.0.2:80"), 0.25)
    });
    assert_eq!(resource(several).as_deref(), Some("tcp to 10.0.0.2:80"));
    // A peer that is only one of many is not named.
    let clients = (0..4).fold(receive(), |sleep, port| {
        waited_on(sleep, &format!("tcp 10.0.0.1:80 to 10.0.0.{port}:80"), 0.25)
    });
    assert_eq!(resource(clients), None);
}

#[test]
fn what_one_call_does_for_several_reasons_is_named_by_the_call() {
    let disk = |label: &str, part: u64| sleep(label, "disk", "fsync", 100, S * part / 100);
    let mut syncs = report(
        S,
        &[1],
        S / 10,
        vec![disk("block flush", 25), disk("journal", 30)],
    );
    syncs.totals.kernel_cpu_ns = S * 35 / 100;
    syncs.syscalls = vec![Syscall {
        name: "fsync".to_string(),
        cpu_ns: S * 35 / 100,
        ..Syscall::default()
    }];
    let headline = Headline::of(&syncs).unwrap();
    let call = headline.in_call.expect("most of the time");
    assert_eq!((&*call.call, call.ns), ("fsync", S * 9 / 10));
    let parts: Vec<&str> = call.shares.iter().map(|part| &*part.cause).collect();
    assert_eq!(parts, ["kernel CPU", "journal", "block flush"]);
    // If one cause has most of the time, the call is not named.
    syncs.sleeps[0].blocked_ns = 2 * S;
    assert_eq!(Headline::of(&syncs).unwrap().in_call, None);
}

#[test]
fn waits_for_the_same_in_several_calls_are_one_share() {
    let lock = |call: &str, part: u64| sleep("mmap lock", "lock", call, 10, S * part / 100);
    let maps = report(
        S,
        &[1],
        S / 10,
        vec![lock("mmap", 30), lock("munmap", 31), lock("brk", 29)],
    );
    let headline = Headline::of(&maps).unwrap();
    let first = &headline.shares[0];
    assert_eq!(
        (&*first.cause, first.ns, first.count),
        ("mmap lock", S * 9 / 10, Some(30))
    );
    assert_eq!(first.call, None);
}

#[test]
fn many_short_lives_are_counted() {
    let pids: Vec<u32> = (1..=40).collect();
    let mut storm = report(S, &pids, S, Vec::new());
    for thread in &mut storm.threads {
        thread.totals.wall_ns = S / 40;
    }
    let short = Headline::of(&storm).unwrap().short_lived.expect("many");
    assert_eq!((short.processes, short.mean_ns), (40, S / 40));
    storm.threads.truncate(10);
    assert_eq!(Headline::of(&storm).unwrap().short_lived, None);
}
