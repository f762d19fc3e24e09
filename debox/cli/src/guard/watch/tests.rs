use debox::history::{Budget, Sleep};

use super::*;

fn call(tid: u32, name: &str, blocked_ns: u64) -> Call {
    Call {
        pid: 10,
        tid,
        comm: "server".into(),
        name: name.into(),
        number: if name == "(user)" { -1 } else { 0 },
        ordinal: 1,
        wall_ns: blocked_ns,
        budget: Budget {
            blocked_ns,
            ..Budget::default()
        },
        ..Call::default()
    }
}

fn watch(threads: LoopThread) -> Watch {
    Watch::new(Rules {
        threads,
        allowed: vec!["sendfile".to_string()],
        max_blocked_ns: 200_000,
        runtimes: Some(Runtimes::builtin().clone()),
    })
}

fn futex(tid: u32, blocked_ns: u64, stack: &str) -> Call {
    Call {
        stack: Some(stack.into()),
        ..call(tid, "futex", blocked_ns)
    }
}

const PARKS: &str =
    "runtime.mcall+0x4e;runtime.park_m+0x279;runtime.schedule+0xb1;runtime.findRunnable+0xd9c;\
     runtime.stopm+0x8c;runtime.notesleep+0x87;runtime.futexsleep+0x30;runtime.futex+0x23";
const TAKES_GIL: &str = "main+0x1;select_epoll_poll+0x120;PyEval_RestoreThread+0x1c;take_gil+0x12e";

#[test]
fn a_worker_that_parks_is_a_loop_where_there_is_one() {
    let mut watch = watch(LoopThread::Auto);
    assert!(!watch.see(futex(11, 5_000_000, PARKS)));
    assert_eq!(watch.threads().count(), 0);
    assert!(!watch.see(call(10, "epoll_wait", 9_000_000)));
    assert!(!watch.see(futex(11, 5_000_000, PARKS)));
    assert!(!watch.see(futex(10, 5_000_000, PARKS)));
    let waits: Vec<u64> = watch.threads().map(|looper| looper.waits).collect();
    assert_eq!(waits, [2, 1]);
    assert!(watch.see(call(11, "fsync", 5_000_000)));
    assert!(watch.see(futex(11, 5_000_000, "main.main+0x1;sync.wait+0x2")));
    let longest = watch.threads().map(|looper| looper.longest_blocked_ns);
    assert_eq!(longest.collect::<Vec<u64>>(), [0, 5_000_000]);
}

#[test]
fn a_runtimes_waits_have_a_limit_in_each_turn() {
    let mut watch = watch(LoopThread::Auto);
    for _ in 0..3 {
        assert!(!watch.see(call(10, "epoll_wait", 9_000_000)));
        assert!(!watch.see(futex(10, 600_000, TAKES_GIL)));
        // Waits that are short enough for any call are in no sum.
        assert!(!watch.see(futex(10, 100_000, TAKES_GIL)));
    }
    assert!(!watch.see(futex(10, 600_000, TAKES_GIL)));
    assert!(watch.violations.is_empty(), "the turn has not ended");
    watch.end();
    let rule = watch.violations[0].rule.expect("a rule");
    assert_eq!(watch.rule(rule).runtime, "CPython");
    let looper = watch.threads().next().unwrap();
    let waits = looper.runtime[&rule];
    assert_eq!(
        (waits.count, waits.blocked_ns, waits.longest_ns),
        (3, 1_800_000, 600_000)
    );
    assert_eq!(looper.longest_blocked_ns, 600_000);
}

#[test]
fn who_ends_a_wait_tells_a_safepoint_from_a_lock() {
    let stack = "0x7f0000001000;libjvm.so+0xf1a3c1;___pthread_cond_wait+0x254";
    let by = |waker: &str| Call {
        sleeps: vec![Sleep {
            blocked_ns: 900_000,
            waker_comm: Some(waker.into()),
            ..Sleep::default()
        }],
        ..futex(10, 900_000, stack)
    };
    let mut watch = watch(LoopThread::Main);
    assert!(!watch.see(call(10, "epoll_wait", 9_000_000)));
    assert!(!watch.see(by("VM Thread")));
    assert!(watch.see(by("pool-1-thread-2")));
}

#[test]
fn a_thread_that_has_just_begun_is_new() {
    let at = |start_ns: u64, mut call: Call| {
        for sleep in &mut call.sleeps {
            sleep.begin_ns = start_ns;
        }
        Call { start_ns, ..call }
    };
    let started_by = |waker: u32| Call {
        sleeps: vec![Sleep {
            blocked_ns: 900_000,
            waker_tid: Some(waker),
            ..Sleep::default()
        }],
        ..futex(
            10,
            900_000,
            "main+0x1;_PyEval_EvalFrameDefault+0x8f0;PyThread_acquire_lock_timed+0x16f",
        )
    };
    let mut watch = watch(LoopThread::Auto);
    assert!(!watch.see(at(50, call(11, "set_robust_list", 0))));
    assert!(!watch.see(at(100, call(10, "epoll_wait", 9_000_000))));
    assert!(!watch.see(at(9_000_200, call(12, "set_robust_list", 0))));
    assert!(!watch.see(at(9_000_150, started_by(12))));
    assert!(!watch.see(at(9_000_300, call(13, "set_robust_list", 0))));
    assert!(!watch.see(at(9_000_400, call(13, "clock_nanosleep", 800_000))));
    assert!(watch.see(at(9_000_350, started_by(13))));
    // A wait after the thread has ended the loop's sleep does not matter.
    assert!(!watch.see(at(9_000_300, call(14, "set_robust_list", 0))));
    assert!(!watch.see(at(9_950_000, call(14, "clock_nanosleep", 800_000))));
    assert!(!watch.see(at(9_000_350, started_by(14))));
    assert!(watch.see(at(9_900_200, started_by(11))));
    // In the next turn the thread is no longer new.
    assert!(!watch.see(at(10_000_000, call(10, "epoll_wait", 1_000_000))));
    assert!(watch.see(at(12_000_000, started_by(12))));
}

#[test]
fn strictly_there_are_no_runtimes() {
    let mut watch = watch(LoopThread::Auto);
    watch.rules.runtimes = None;
    assert!(!watch.see(call(10, "epoll_wait", 9_000_000)));
    assert!(watch.see(futex(10, 5_000_000, PARKS)));
    assert!(!watch.see(futex(11, 5_000_000, PARKS)));
}

#[test]
fn what_comes_before_the_loop_is_start_up() {
    let mut watch = watch(LoopThread::Auto);
    assert!(!watch.see(call(10, "read", 9_000_000)));
    assert!(!watch.see(call(10, "epoll_wait", 9_000_000_000)));
    assert!(!watch.see(call(10, "read", 200_000)));
    assert!(watch.see(call(10, "read", 200_001)));
    assert!(watch.see(call(10, "(user)", 300_000)));
    assert!(!watch.see(call(10, "sendfile", 300_000)));
    let looper = watch.threads().next().unwrap();
    assert_eq!((looper.waits, looper.calls), (1, 4));
    assert_eq!(looper.longest_blocked_ns, 300_000);
}

#[test]
fn a_thread_that_ends_is_no_loop() {
    const GIVES_BACK: &str =
        "clone3+0x1;start_thread+0x2;std::sys::pal::unix::stack_overflow::imp::drop_handler+0x3;\
         __GI_munmap+0x4";
    let mut watch = watch(LoopThread::Auto);
    assert!(!watch.see(call(10, "epoll_wait", 9_000_000)));
    let munmap = |stack: &str| Call {
        stack: Some(stack.into()),
        ..call(10, "munmap", 300_000)
    };
    assert!(watch.see(munmap("main+0x1;frees+0x2;munmap+0x4")));
    assert!(!watch.see(munmap(GIVES_BACK)));
    assert!(!watch.see(call(10, "exit", 500_000)));
}

#[test]
fn a_loop_inside_the_loop_is_no_wait_for_events() {
    let mut watch = watch(LoopThread::Auto);
    let wait = |descriptor: u64| Call {
        args: [descriptor, 0, 0],
        ..call(10, "epoll_wait", 1_000_000)
    };
    let close = |descriptor: u64| Call {
        args: [descriptor, 0, 0],
        ..call(10, "close", 1_000_000)
    };
    // A thread that ran before the loop, and has ended.
    assert!(!watch.see(wait(4)));
    assert!(!watch.see(close(4)));
    assert!(!watch.see(call(10, "read", 1_000_000)));
    assert!(!watch.see(wait(5)));
    assert!(watch.see(wait(7)));
    assert!(watch.see(close(7)));
    assert!(watch.see(wait(7)));
    // Nor is a poll for one descriptor, once the thread is known to have an epoll.
    assert!(watch.see(call(10, "poll", 1_000_000)));
    assert!(!watch.see(wait(5)));
}

#[test]
fn helpers_are_no_loops() {
    let mut watch = watch(LoopThread::Auto);
    for _ in 0..10 {
        assert!(!watch.see(call(11, "poll", 1_000_000)));
        assert!(!watch.see(call(12, "futex", 1_000_000)));
    }
    assert_eq!(watch.threads().count(), 0);
    for _ in 0..3 {
        watch.see(call(10, "poll", 1_000_000));
    }
    assert_eq!(watch.threads().count(), 1);
}

#[test]
fn threads_can_be_named() {
    for (threads, sees) in [
        (LoopThread::All, true),
        (LoopThread::Tid(11), true),
        (LoopThread::Tid(12), false),
        (LoopThread::Named("server".into()), true),
        (LoopThread::Named("other".into()), false),
        (LoopThread::Main, false),
    ] {
        let mut watch = watch(threads);
        assert_eq!(watch.see(call(11, "read", 1_000_000)), sees);
    }
}

#[test]
fn a_waker_without_a_cpu_is_late_because_of_the_machine() {
    for (late, ok) in [(12, true), (13, false)] {
        let mut watch = watch(LoopThread::Auto);
        assert!(!watch.see(call(10, "epoll_wait", 0)));
        let gives = |waker_tid: Option<u32>, begin_ns: u64, blocked_ns: u64| Call {
            sleeps: vec![Sleep {
                begin_ns,
                blocked_ns,
                waker_tid,
                ..Sleep::default()
            }],
            ..futex(10, blocked_ns, TAKES_GIL)
        };
        // The first wait ends by its time limit; the thread that ends the second one caused both.
        assert!(!watch.see(gives(None, 1_000_000, 5_000_000)));
        let mut pushed_off = call(late, "(user)", 0);
        pushed_off.start_ns = 500_000;
        pushed_off.wall_ns = 8_000_000;
        pushed_off.budget.preempted_ns = 7_600_000;
        assert!(!watch.see(pushed_off));
        assert!(!watch.see(gives(Some(12), 6_000_000, 2_400_000)));
        assert!(!watch.see(call(10, "epoll_wait", 9_000_000)));
        assert_eq!(watch.violations.is_empty(), ok, "{late}");
        let looper = watch.threads().next().unwrap();
        let without: Vec<u64> = looper
            .runtime
            .values()
            .map(|of| of.without_cpu_ns)
            .collect();
        assert_eq!(without, if ok { vec![7_030_000] } else { Vec::new() });
    }
}

#[test]
fn a_new_thread_that_has_not_run_yet_has_no_cpu() {
    let mut watch = watch(LoopThread::Auto);
    assert!(!watch.see(call(10, "epoll_wait", 0)));
    let mut waits = call(12, "(user)", 0);
    (waits.start_ns, waits.wall_ns) = (1_000_000, 3_600_000);
    waits.budget.runqueue_ns = 3_500_000;
    assert!(!watch.see(waits));
    let mut starts = futex(
        10,
        3_700_000,
        "main+0x1;_PyEval_EvalFrameDefault+0x8f0;PyThread_acquire_lock_timed+0x16f",
    );
    starts.sleeps = vec![Sleep {
        begin_ns: 1_000_000,
        blocked_ns: 3_700_000,
        waker_tid: Some(12),
        ..Sleep::default()
    }];
    assert!(!watch.see(starts));
    watch.end();
    assert!(watch.violations.is_empty(), "{:?}", watch.violations);
}

#[test]
fn a_lock_goes_from_thread_to_thread() {
    let mut watch = watch(LoopThread::Auto);
    assert!(!watch.see(call(10, "epoll_wait", 0)));
    let sleeps = |tid: u32, waker: u32| Call {
        start_ns: 1_000_000,
        sleeps: vec![Sleep {
            begin_ns: 1_000_000,
            blocked_ns: 5_000_000,
            waker_tid: Some(waker),
            ..Sleep::default()
        }],
        ..futex(tid, 5_000_000, TAKES_GIL)
    };
    let mut pushed_off = call(13, "(user)", 0);
    (pushed_off.start_ns, pushed_off.wall_ns) = (900_000, 5_100_000);
    pushed_off.budget.preempted_ns = 4_900_000;
    assert!(!watch.see(pushed_off));
    assert!(!watch.see(sleeps(12, 13)));
    assert!(!watch.see(sleeps(10, 12)));
    watch.end();
    assert!(watch.violations.is_empty(), "{:?}", watch.violations);
}
