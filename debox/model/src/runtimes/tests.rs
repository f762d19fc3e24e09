use super::*;

fn stack(texts: &[&str]) -> Vec<Frame> {
    texts.iter().copied().map(Frame::from).collect()
}

fn of<'a>(rule: &'a Rule, frames: &'a [Frame]) -> Wait<'a> {
    Wait {
        call: rule.example_call.as_deref().unwrap_or("futex"),
        label: "futex",
        frames,
        waker: rule.example_waker.as_deref(),
        waker_is_new: rule.waker_is_new,
    }
}

#[test]
fn each_rule_explains_its_example_and_no_earlier_one_does() {
    let runtimes = Runtimes::builtin();
    for (index, rule) in runtimes.rules().iter().enumerate() {
        let frames: Vec<Frame> = rule.example.iter().cloned().map(Frame::from).collect();
        assert!(!frames.is_empty(), "{}: {}", rule.runtime, rule.why);
        let found = runtimes.find(&of(rule, &frames));
        assert_eq!(found, Some(index), "{}: {}", rule.runtime, rule.why);
    }
}

/// Waits of the programs themselves, in the same threads.
#[test]
fn the_programs_own_waits_are_nobody_elses() {
    let stacks: &[(&str, &[&str])] = &[
        (
            "futex",
            &[
                "syscall+0x19 (syscall.S:38)",
                "std::sys::sync::mutex::futex::Mutex::lock_contended+0x6a (futex.rs:68)",
                "server::answer+0x6c (main.rs:12)",
                "tokio::runtime::task::core::Core<T,S>::poll+0x4d (core.rs:365)",
                "tokio::runtime::scheduler::multi_thread::worker::Context::run_task+0x1c2 (worker.rs:640)",
                "tokio::runtime::scheduler::multi_thread::worker::Context::run+0x5f9 (worker.rs:590)",
                "tokio::runtime::blocking::pool::Inner::run+0x4c2 (pool.rs:540)",
            ],
        ),
        (
            "fsync",
            &[
                "syscall.Syscall+0x30 (syscall_linux.go:73)",
                "os.(*File).Sync+0x4e (file_posix.go:170)",
                "main.save+0x20 (main.go:12)",
            ],
        ),
        (
            "clock_nanosleep",
            &[
                "__GI___clock_nanosleep+0x3f (clock_nanosleep.c:48)",
                "usleep+0x3a (usleep.c:31)",
                "runtime.asmcgocall.abi0+0x7e (asm_amd64.s:924)",
                "runtime.cgocall+0x4b (cgocall.go:185)",
                "main.main+0x12 (main.go:9)",
            ],
        ),
        (
            "futex",
            &[
                "__new_sem_wait_slow64+0x97 (sem_waitcommon.c:183)",
                "PyThread_acquire_lock_timed+0x8d (thread_pthread.h:494)",
                "acquire_timed (inlined) (_threadmodule.c:98)",
                "_PyEval_EvalFrameDefault+0x61d0 (ceval.c:4783)",
            ],
        ),
        (
            "futex",
            &[
                "___pthread_cond_wait+0x254 (pthread_cond_wait.c:618)",
                "uv_cond_wait+0x9",
                "wait_for_it+0x22 (addon.c:20)",
                "node::Environment::CleanupHandles()+0x3",
                "uv__run_check+0x10",
            ],
        ),
        (
            "futex",
            &[
                "___pthread_mutex_lock+0x112 (pthread_mutex_lock.c:93)",
                "answer+0x12 (server.c:30)",
                "event_process_active_single_queue+0x5d1 (event.c:1691)",
                "event_base_loop+0x5d1 (event.c:2040)",
            ],
        ),
    ];
    let runtimes = Runtimes::builtin();
    for (call, frames) in stacks {
        let frames = stack(frames);
        for waker in [None, Some("server"), Some("VM Thread")] {
            let wait = Wait {
                call,
                label: "futex",
                frames: &frames,
                waker,
                waker_is_new: false,
            };
            let found = runtimes.find(&wait).map(|index| &runtimes.rules()[index]);
            assert!(found.is_none(), "{frames:#?}: {found:#?}");
        }
    }
}

#[test]
fn stacks_without_names_have_no_runtime() {
    let runtimes = Runtimes::builtin();
    let stacks: [&[&str]; 5] = [
        &[],
        &["0x7f0000001000"],
        &["server+0x1000", "server+0x2000"],
        &["libc.so.6+0x9a000"],
        &["(further frames: the stack was lost)"],
    ];
    for frames in stacks {
        let frames = stack(frames);
        assert!(!runtimes.are_parking(&frames), "{frames:?}");
        assert!(!runtimes.have_names(&frames), "{frames:?}");
        let wait = Wait {
            call: "futex",
            label: "futex",
            frames: &frames,
            waker: Some("VM Thread"),
            waker_is_new: true,
        };
        assert_eq!(runtimes.find(&wait), None, "{frames:?}");
    }
}

#[test]
fn names_are_seen() {
    let runtimes = Runtimes::builtin();
    assert!(runtimes.have_names(&stack(&["syscall+0x19 (syscall.S:38)", "main+0x1"])));
    assert!(runtimes.have_names(&stack(&["server+0x19", "server+0x21", "main+0x1"])));
}

#[test]
fn a_frame_is_cut_where_its_name_ends() {
    for (frame, name) in [
        ("uv_cond_wait+0x9 (thread.c:883)", "uv_cond_wait"),
        (
            "<T as server::Answer>::poll (inlined) (main.rs:1)",
            "<T as server::Answer>::poll",
        ),
        (
            "(anonymous namespace)::wait+0x1",
            "(anonymous namespace)::wait",
        ),
        ("operator+0x", "operator+0x"),
        ("+0x12", "+0x12"),
        ("libjvm.so+0xd0f2bc", "libjvm.so"),
        (
            "os.(*File).Sync+0x4e (file_posix.go:170)",
            "os.(*File).Sync",
        ),
        ("0x1234 (process 7 ended before it could be read)", "0x1234"),
        ("", ""),
    ] {
        assert_eq!(Frame::from(frame).function, name);
    }
}

#[test]
fn what_was_built_into_a_function_is_that_functions() {
    let runtimes = Runtimes::builtin();
    let parks = [
        "syscall (syscall.S:37)",
        "<std::sys::sync::condvar::futex::Condvar>::wait_optional_timeout (futex.rs:49)",
        "wait_timeout<tokio::runtime::blocking::pool::LockedInner> (inlined) (condvar.rs:330)",
        "run_worker (inlined) (pool.rs:671)",
        "<tokio::runtime::blocking::pool::Inner>::run (pool.rs:764)",
    ];
    assert!(runtimes.are_parking(&stack(&parks)));
    // A function with its whole name is the site, and so is one that nothing was inlined into.
    let own = [
        "server::Pool::run_worker (inlined) (pool.rs:671)",
        "run_worker (pool.rs:671)",
    ];
    for own in own {
        let mut waits = parks;
        waits[3] = own;
        assert!(!runtimes.are_parking(&stack(&waits)), "{own}");
    }
}

#[test]
fn a_stack_that_ends_within_the_wait_is_known_by_its_last_function() {
    let runtimes = Runtimes::builtin();
    let go = [
        "runtime.futex+0x23 (sys_linux_amd64.s:570)",
        "runtime.futexsleep+0x30 (os_linux.go:73)",
    ];
    assert!(runtimes.are_parking(&stack(&go)));
    assert!(!runtimes.are_parking(&stack(&go[..1])));
    let locks = ["__lll_lock_wait+0x30", "pthread_mutex_lock+0x1"];
    assert!(!runtimes.are_parking(&stack(&locks)));
    assert!(!runtimes.are_parking(&[]));
    // A frame further out decides.
    let locked = [go[0], go[1], "runtime.lock2+0x18e (lock_futex.go:107)"];
    assert!(!runtimes.are_parking(&stack(&locked)));
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    let refused = |text: &str| {
        let error = Runtimes::default().add("own.toml", text).unwrap_err();
        error.to_string()
    };
    for (text, says) in [
        ("", "own.toml is not a rule file"),
        ("runtime = ' '", "own.toml: the runtime has no name"),
        (
            "runtime = 'x'\n[[rule]]\nphase = 'parking'",
            "own.toml: rule 1: missing field",
        ),
        (
            "runtime = 'x'\n[[rule]]\nphase = 'parking'\nwhy = 'w'\nexample = []",
            "give `site` or `within`",
        ),
        (
            "runtime = 'x'\n[[rule]]\nphase = 'sleeping'\nwhy = 'w'",
            "unknown variant `sleeping`",
        ),
        (
            "runtime = 'x'\n[[rule]]\nphase = 'parking'\nwhy = ''\nsite = ['a']",
            "it does not say why",
        ),
        (
            "runtime = 'x'\n[[rule]]\nphase = 'parking'\nwhy = 'w'\nsite = ['a b']",
            "is not a pattern",
        ),
        (
            "runtime = 'x'\n[[rule]]\nphase = 'parking'\nwhy = 'w'\nsite = ['a']\nup_to_us = 0",
            "up_to_us is 0",
        ),
        (
            "runtime = 'x'\n[[rule]]\nphase = 'parking'\nwhy = 'w'\nsite = ['a']\nup_to = '1ms'",
            "unknown field `up_to`",
        ),
    ] {
        assert!(refused(text).contains(says), "{text}: {}", refused(text));
    }
}

#[test]
fn own_rules_come_after_the_others() {
    let mut runtimes = Runtimes::builtin().clone();
    let before = runtimes.rules().len();
    let own = "runtime = 'mine'\n[[rule]]\nphase = 'parking'\nwhy = 'idle'\nsite = ['my_pool::*']";
    runtimes.add("own.toml", own).unwrap();
    let frames = ["syscall+0x19", "my_pool::wait+0x3 (pool.rs:3)", "main+0x1"];
    assert!(runtimes.are_parking(&stack(&frames)));
    assert_eq!(runtimes.rules().len(), before + 1);
    assert_eq!(runtimes.rules()[before].runtime, "mine");
}

/// Stacks as glibc's debug symbols show them.
#[test]
fn what_is_built_into_a_lock_is_part_of_it() {
    let runtimes = Runtimes::builtin();
    let frames = [
        "futex_wait (inlined) (futex-internal.h:146)",
        "__GI___lll_lock_wait (lowlevellock.c:49)",
        "lll_mutex_lock_optimized (inlined) (pthread_mutex_lock.c:48)",
        "___pthread_mutex_lock (pthread_mutex_lock.c:93)",
        "uv_mutex_lock (thread.c:344)",
        "uv__work_done (threadpool.c:317)",
        "uv__async_io (async.c:176)",
    ];
    let frames = stack(&frames);
    let wait = Wait {
        call: "futex",
        label: "futex",
        frames: &frames,
        waker: None,
        waker_is_new: false,
    };
    let found = runtimes
        .find(&wait)
        .map(|index| &*runtimes.rules()[index].runtime);
    assert_eq!(found, Some("libuv"));
}

#[test]
fn the_end_of_a_pool_joins_its_threads() {
    let runtimes = Runtimes::builtin();
    let frames = [
        "__pthread_clockjoin_ex (pthread_join_common.c:102)",
        "<std::sys::thread::unix::Thread>::join (unix.rs:126)",
        "std::thread::lifecycle::JoinInner<T>::join (library/std/src/thread/lifecycle.rs:241)",
        "tokio::runtime::blocking::pool::BlockingPool::shutdown (pool.rs:337)",
        "server::main (main.rs:181)",
    ];
    let frames = stack(&frames);
    let wait = Wait {
        call: "futex",
        label: "futex",
        frames: &frames,
        waker: None,
        waker_is_new: false,
    };
    let found = runtimes
        .find(&wait)
        .map(|index| runtimes.rules()[index].phase);
    assert_eq!(found, Some(Phase::Shutdown));
}

/// The program's code may call the engine's own lock, but is not called by it.
#[test]
fn the_engines_platform_is_asked_by_the_program() {
    let runtimes = Runtimes::builtin();
    let frames = [
        "___pthread_cond_signal (pthread_cond_signal.c:77)",
        "uv_cond_signal (thread.c:783)",
        "node::TaskQueue<v8::Task>::Push(std::unique_ptr<v8::Task, std::default_delete<v8::Task> >)+0x62 (node)",
        "node::NodePlatform::CallOnWorkerThread(std::unique_ptr<v8::Task, std::default_delete<v8::Task> >)+0x23 (node)",
        "v8::internal::OptimizingCompileDispatcher::QueueForOptimization(v8::internal::TurbofanCompilationJob*)+0xac (node)",
        "Builtins_ArrayFrom+0xd18 (node)",
    ];
    let find = |frames: &[&str]| {
        let found = runtimes.find(&Wait {
            call: "futex",
            label: "futex",
            frames: &stack(frames),
            waker: None,
            waker_is_new: false,
        });
        found.map(|index| runtimes.rules()[index].phase)
    };
    assert_eq!(find(&frames), Some(Phase::Scheduling));
    let own = [
        "___pthread_mutex_lock (pthread_mutex_lock.c:93)",
        "finalize+0x22 (addon.c:20)",
        "Builtins_CallFunction_ReceiverIsAny+0x10 (node)",
        "node::PerIsolatePlatformData::RunForegroundTask(std::unique_ptr<v8::Task>)+0x3 (node)",
    ];
    assert_eq!(find(&own), None);
}

#[test]
fn functions_that_get_locks_are_known() {
    let runtimes = Runtimes::builtin();
    let of = |frames: &[&str]| runtimes.purpose(&stack(frames));
    let parked = [
        "___pthread_cond_wait (pthread_cond_wait.c:618)",
        "os::PlatformEvent::park()+0x6b (libjvm.so)",
    ];
    let monitor = [
        "ObjectMonitor::EnterI(JavaThread*)+0x1ba (libjvm.so)",
        "InterpreterRuntime::monitorenter(JavaThread*, BasicObjectLock*)+0x80 (libjvm.so)",
    ];
    assert_eq!(of(&[parked, monitor].concat()), Purpose::Lock);
    let wait = [
        "ObjectMonitor::wait(long, bool, JavaThread*)+0x1c2 (libjvm.so)",
        "JVM_MonitorWait+0xc1 (libjvm.so)",
    ];
    assert_eq!(of(&[parked, wait].concat()), Purpose::Unknown);
    let queue = [
        "Parker::park(bool, long)+0x6b (libjvm.so)",
        "Unsafe_Park+0x9e (libjvm.so)",
    ];
    assert_eq!(of(&[parked, queue].concat()), Purpose::Unknown);
    assert_eq!(
        of(&[
            "__futex_abstimed_wait_common64 (inlined) (futex-internal.c:57)",
            "___pthread_rwlock_wrlock (pthread_rwlock_wrlock.c:26)"
        ]),
        Purpose::LockWord
    );
    assert_eq!(
        of(&[
            "syscall (syscall.S:38)",
            "std::sys::sync::mutex::futex::Mutex::lock_contended+0x6a (futex.rs:79)"
        ]),
        Purpose::LockWord
    );
    assert_eq!(
        of(&[
            "syscall+0x19 (syscall.S:38)",
            "parking_lot::raw_mutex::RawMutex::lock_slow+0x2b1 (raw_mutex.rs:262)"
        ]),
        Purpose::Lock
    );
    assert_eq!(
        of(&[
            "__new_sem_wait_slow64 (sem_waitcommon.c:183)",
            "_multiprocessing_SemLock_acquire_impl+0x258 (semaphore.c:352)"
        ]),
        Purpose::Unknown,
        "may be a queue's"
    );
    assert_eq!(
        of(&["___pthread_cond_wait (pthread_cond_wait.c:618)", "main+0x1"]),
        Purpose::Unknown
    );
    assert_eq!(of(&[]), Purpose::Unknown);
    let statement = [
        "___pthread_cond_timedwait64 (pthread_cond_wait.c:643)",
        "mariadbd+0xd5b024",
        "handler::ha_index_read_map(unsigned char*, unsigned char const*, unsigned long, ha_rkey_function)+0x308 (mariadbd)",
        "dispatch_command(enum_server_command, THD*, char*, unsigned int, bool)+0x16e5 (mariadbd)",
    ];
    assert_eq!(of(&statement), Purpose::Request);
}
