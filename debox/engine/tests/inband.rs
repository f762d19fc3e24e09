//! In-band reading from Rust. What the probes write is checked here and, with more cases, through
//! the C interface (`debox/capi/tests`). Loading probes needs root.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use debox::inband::{self, Error, Options};
use debox::labels::Class;
use debox::record::{self, CpuOwner, Record, ResourceKind, Waker, HISTORY_MAX};
use debox::{Detail, Tap};

/// A session of the test's own: the process has but one.
struct Enabled {
    _alone: MutexGuard<'static, ()>,
}

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn enabled() -> Enabled {
    let alone = alone();
    inband::enable(&Options {
        max_threads: 64,
        ..Options::default()
    })
    .expect("enable");
    Enabled { _alone: alone }
}

fn enabled_tap() -> Enabled {
    let alone = alone();
    inband::enable(&Options {
        max_threads: 64,
        tap: Some(Tap::User),
        ..Options::default()
    })
    .expect("enable");
    Enabled { _alone: alone }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        inband::disable().expect("disable");
    }
}

/// A call that nothing else makes, with a number to know it by.
fn call(mark: u64) {
    // SAFETY: getppid takes no arguments and touches no memory.
    unsafe { libc::syscall(libc::SYS_getppid, mark) };
}

fn sleep_ms(ms: i64) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: ms * 1_000_000,
    };
    // SAFETY: `time` is a valid timespec, and no remainder is wanted.
    unsafe { libc::syscall(libc::SYS_nanosleep, &time, 0) };
}

/// Puts the calling thread on the first CPU that it may use.
fn pin() {
    // SAFETY: zeros are an empty set, and each call has room for one.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        let size = std::mem::size_of_val(&allowed);
        assert_eq!(libc::sched_getaffinity(0, size, &mut allowed), 0);
        let mut cpus = 0..libc::CPU_SETSIZE as usize;
        let first = cpus.find(|cpu| libc::CPU_ISSET(*cpu, &allowed));
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(first.expect("a CPU"), &mut one);
        assert_eq!(libc::sched_setaffinity(0, size, &one), 0);
    }
}

/// A call that computes for tens of milliseconds.
fn long_call(buffer: &mut [u8]) -> Record {
    // SAFETY: there is room for as much.
    let got = unsafe { libc::syscall(libc::SYS_getrandom, buffer.as_mut_ptr(), buffer.len(), 0) };
    assert_eq!(got, buffer.len() as i64);
    let last = inband::last().expect("a record").copy();
    assert_eq!(last.call, libc::SYS_getrandom as i32);
    last
}

#[test]
fn a_record_names_who_had_the_cpu() {
    let alone = alone();
    inband::enable(&Options {
        max_threads: 64,
        detail: Detail {
            cpu: true,
            ..Options::default().detail
        },
        ..Options::default()
    })
    .expect("enable");
    let _session = Enabled { _alone: alone };
    let stop = AtomicBool::new(false);
    let records: Vec<Record> = thread::scope(|scope| {
        scope.spawn(|| {
            pin();
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let caller = scope.spawn(|| {
            pin();
            let mut buffer = vec![1; 16 << 20];
            (0..10).map(|_| long_call(&mut buffer)).collect()
        });
        let records = caller.join();
        stop.store(true, Ordering::Relaxed);
        records.expect("records")
    });
    let (mut waited, mut own) = (0, 0);
    for record in &records {
        let its = record.budget.runqueue_ns + record.budget.preempted_ns;
        assert!(record.flags & record::CPU_MEASURED != 0);
        assert!(
            record.throttled_ns + record.cpu_owner_ns <= its,
            "{record:?}"
        );
        assert_eq!(
            record.cpu_owner() == CpuOwner::None,
            its == record.throttled_ns,
            "{record:?}"
        );
        waited += its;
        if record.cpu_owner() == CpuOwner::Own {
            assert_eq!(record.cpu_owner_pid, std::process::id(), "{record:?}");
            assert!(!record.cpu_owner_comm().is_empty());
            own += record.cpu_owner_ns;
        }
    }
    // Other work on the machine has its turns, too.
    assert!(
        waited > 10_000_000 && own * 2 >= waited,
        "{own} of {waited} in {records:#?}"
    );
}

#[test]
fn who_had_the_cpu_is_not_measured_unless_asked_for() {
    let _session = enabled();
    sleep_ms(5);
    let record = inband::last().expect("a record").copy();
    assert_eq!(record.flags & record::CPU_MEASURED, 0);
    assert_eq!(
        (record.throttled_ns, record.cpu_owner()),
        (0, CpuOwner::None)
    );
}

#[test]
fn a_known_wait_is_measured_and_explained() {
    let _session = enabled();
    sleep_ms(50);
    let last = inband::last().expect("a record");
    assert_eq!(last.call(), libc::SYS_nanosleep);
    let record = last.copy();
    assert_eq!(record.call_name(), "nanosleep");
    assert_eq!(record.budget.total_ns(), record.wall_ns);
    let blocked = Duration::from_nanos(record.budget.blocked_ns);
    assert!(blocked >= Duration::from_millis(50), "{blocked:?}");
    assert!(blocked < Duration::from_millis(60), "{blocked:?}");
    let [sleep] = record.sleeps() else {
        panic!("{record:?}")
    };
    assert_eq!(sleep.count, 1);
    assert_eq!(sleep.waker(), Waker::HardIrq);
    assert_eq!(sleep.resource_kind(), ResourceKind::Timer);

    let explained = inband::explain(&record, 0).expect("explain");
    assert_eq!(explained.class, Class::Idle);
    assert!(explained.function.contains("nanosleep"), "{explained:?}");
    assert!(explained
        .frames
        .iter()
        .any(|frame| frame.to_string().starts_with(&explained.site())));
    assert!(matches!(
        inband::explain(&record, 1),
        Err(Error::Argument(_))
    ));
    // Explaining has not pushed the record out.
    assert_eq!(inband::last().expect("a record").number(), record.number);
}

#[test]
fn values_are_the_calls_own() {
    let _session = enabled();
    let file = File::open("/proc/self/exe").unwrap();
    let mut buffer = [0; 512];
    assert_eq!(file.read_at(&mut buffer, 64).unwrap(), 512);
    let last = inband::last().expect("a record");
    assert_eq!((last.call(), last.ret()), (libc::SYS_pread64, 512));
    assert_eq!(
        last.args(),
        [file.as_raw_fd() as u64, buffer.as_ptr() as u64, 512]
    );
    assert_eq!((last.sleeps_used(), last.budget().blocked_ns), (0, 0));
    assert_eq!(last.budget().total_ns(), last.wall_ns());
    assert!(File::open("/no/such/file").is_err());
    assert_eq!(
        inband::last().expect("a record").copy().errno(),
        Some(libc::ENOENT)
    );
}

#[test]
fn history_is_newest_first() {
    let _session = enabled();
    (0..20).for_each(call);
    let mut records = [Record::default(); HISTORY_MAX + 1];
    assert_eq!(inband::history(&mut records), Ok(HISTORY_MAX));
    for (back, record) in records[..HISTORY_MAX].iter().enumerate() {
        assert_eq!(
            (record.call_name(), record.args[0]),
            ("getppid".into(), 19 - back as u64)
        );
    }
    assert_eq!(inband::history(&mut records[..3]), Ok(3));
    assert_eq!(inband::history(&mut []), Ok(0));
}

#[test]
fn a_thread_sees_its_own_calls_from_the_start() {
    let _session = enabled();
    assert!(inband::last().is_none(), "what enabling did is shown");
    call(1);
    let threads: Vec<_> = (0..8)
        .map(|index| {
            thread::spawn(move || {
                call(100 + index);
                let first = inband::last().expect("a record");
                assert_eq!(first.args()[0], 100 + index);
                call(200 + index);
                assert_eq!(inband::last().expect("a record").args()[0], 200 + index);
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn looking_is_no_call() {
    let _session = enabled();
    call(1);
    let before = inband::last().expect("a record").number();
    let mut records = [Record::default(); HISTORY_MAX];
    for _ in 0..10_000 {
        assert_eq!(inband::last().expect("a record").number(), before);
        inband::history(&mut records).unwrap();
    }
    call(2);
    assert_eq!(inband::last().expect("a record").number(), before + 1);
}

#[test]
fn pause_and_limits_are_the_threads_own() {
    let _session = enabled();
    call(1);
    inband::pause().unwrap();
    call(2);
    assert_eq!(inband::last().expect("a record").args()[0], 1);
    thread::spawn(|| {
        sleep_ms(10); // longer than an emulated processor's turn
        assert_eq!(inband::last().expect("a record").sleeps_used(), 1);
    })
    .join()
    .unwrap();
    inband::resume().unwrap();
    inband::set_limits(0, 0).unwrap();
    sleep_ms(10);
    let record = inband::last().expect("a record").copy();
    assert_eq!((record.sleeps().len(), record.sleeps_lost), (0, 1));
    assert!(record.budget.blocked_ns >= 10_000_000);
}

#[test]
fn other_threads_read_whole_records() {
    let _session = enabled();
    let (stop, tid) = (AtomicBool::new(false), AtomicI32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: gettid takes no arguments and touches no memory.
            tid.store(unsafe { libc::gettid() }, Ordering::Relaxed);
            while !stop.load(Ordering::Relaxed) {
                (0..1000).for_each(call);
            }
        });
        while tid.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        let mut records = [Record::default(); HISTORY_MAX];
        let (mut newest, mut read) = (0, 0);
        for _ in 0..20_000 {
            let copied = inband::history_of(tid.load(Ordering::Relaxed), &mut records).unwrap();
            for record in &records[..copied] {
                assert_eq!(record.budget.total_ns(), record.wall_ns, "{record:?}");
            }
            assert!(records[..copied].is_sorted_by(|a, b| a.number > b.number));
            if let Some(record) = records[..copied].first() {
                assert!(record.number >= newest);
                newest = record.number;
            }
            read += copied;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(read > 1000, "{read} records of {newest} calls");
    });
    assert_eq!(inband::history_of(0, &mut []), Err(Error::NoSuchThread(0)));
}

#[test]
fn a_session_has_a_beginning_and_an_end() {
    {
        let _session = enabled();
        assert!(inband::is_enabled());
        assert_eq!(
            inband::enable(&Options::default()),
            Err(Error::AlreadyEnabled)
        );
        call(1);
    }
    let _alone = alone();
    assert!(!inband::is_enabled());
    assert!(inband::last().is_none());
    assert_eq!(inband::disable(), Err(Error::NotEnabled));
    assert_eq!(inband::history(&mut []), Err(Error::NotEnabled));
    assert_eq!(inband::pause(), Err(Error::NotEnabled));
    let record = Record {
        sleeps_used: 1,
        ..Record::default()
    };
    assert_eq!(inband::explain(&record, 0), Err(Error::NotEnabled));
    let none = Options {
        max_threads: 0,
        ..Options::default()
    };
    assert!(matches!(inband::enable(&none), Err(Error::Argument(_))));
}

/// A timer of this thread's that fires every millisecond, and the count of its signals.
struct Ticks(libc::timer_t);

static TICKS: AtomicI32 = AtomicI32::new(0);

impl Ticks {
    fn start() -> Ticks {
        extern "C" fn tick(_: libc::c_int) {
            TICKS.fetch_add(1, Ordering::Relaxed);
        }
        TICKS.store(0, Ordering::Relaxed);
        let millisecond = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        let every = libc::itimerspec {
            it_interval: millisecond,
            it_value: millisecond,
        };
        let handler = tick as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: all that is pointed to is valid; the handler only adds to a number.
        unsafe {
            let mut to_whom: libc::sigevent = std::mem::zeroed();
            to_whom.sigev_notify = libc::SIGEV_THREAD_ID;
            to_whom.sigev_signo = libc::SIGUSR1;
            to_whom.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = std::mem::zeroed();
            libc::signal(libc::SIGUSR1, handler);
            let made = libc::timer_create(libc::CLOCK_MONOTONIC, &mut to_whom, &mut timer);
            assert_eq!(made, 0, "a timer");
            libc::timer_settime(timer, 0, &every, std::ptr::null_mut());
            Ticks(timer)
        }
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        // SAFETY: the timer is there.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// The kernel does not verify probes to the end in a thread to which a signal is delivered.
#[test]
fn a_session_begins_in_a_thread_that_gets_signals_all_the_time() {
    let ticks = Ticks::start();
    let _session = enabled();
    let before = TICKS.load(Ordering::Relaxed);
    while TICKS.load(Ordering::Relaxed) < before + 3 {
        std::hint::spin_loop();
    }
    drop(ticks);
}

/// Of the slots those are mapped that threads need; each finds its own, a child's only one too.
#[test]
fn slots_are_mapped_as_they_are_needed() {
    const THREADS: usize = 100;
    let session = Enabled { _alone: alone() };
    inband::enable(&Options {
        max_threads: 512,
        ..Options::default()
    })
    .expect("enable");
    call(1);
    assert_eq!(inband::last().expect("a record").args()[0], 1);
    let at_first = mapped_bytes();
    let (all_there, done) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    thread::scope(|scope| {
        for mark in 0..THREADS as u64 {
            let (all_there, done) = (&all_there, &done);
            scope.spawn(move || {
                call(1000 + mark);
                let last = inband::last().map(|last| last.args()[0]);
                all_there.wait();
                done.wait();
                assert_eq!(last, Some(1000 + mark));
            });
        }
        all_there.wait();
        let slots = (mapped_bytes() - at_first) / std::mem::size_of::<record::Slot>();
        // SAFETY: the child makes calls of its own and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            call(7);
            let is_seen = inband::last().is_some_and(|last| last.args()[0] == 7);
            // SAFETY: ends the child without running what is the parent's.
            unsafe { libc::_exit(i32::from(!is_seen)) };
        }
        let mut status = -1;
        // SAFETY: `status` is valid for writing.
        unsafe { libc::waitpid(child, &mut status, 0) };
        done.wait();
        assert_eq!(status, 0, "the child has no record");
        assert!(
            (69..=224).contains(&slots),
            "{slots} more slots were mapped"
        );
    });
    drop(session);
}

/// Of maps of the kernel, in this process.
fn mapped_bytes() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a list of mappings");
    let bpf = maps.lines().filter(|line| line.ends_with("bpf-map"));
    let sizes = bpf.map(|line| {
        let (from, rest) = line.split_once('-').expect("a range");
        let to = rest.split_once(' ').expect("a range").0;
        let address = |text| usize::from_str_radix(text, 16).expect("an address");
        address(to) - address(from)
    });
    sizes.sum()
}

#[test]
fn tapped_calls_have_records() {
    let _session = enabled_tap();
    call(1);
    assert!(inband::last().is_none(), "an ordinary call has a record");
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    // SAFETY: `time` is a valid timespec, and no remainder is wanted.
    let ret = unsafe { inband::call(libc::SYS_nanosleep, [&raw const time as u64, 0, 0, 0, 0, 0]) };
    assert_eq!(ret, 0);
    let record = inband::last().expect("a record").copy();
    assert_eq!(
        (record.call_name().as_str(), record.number),
        ("nanosleep", 1)
    );
    assert_eq!(record.flags, record::USER_TAP);
    assert_eq!(record.budget.total_ns(), record.wall_ns);
    assert!(record.budget.blocked_ns >= 20_000_000, "{record:?}");
    let [sleep] = record.sleeps() else {
        panic!("{record:?}")
    };
    assert_eq!((sleep.count, sleep.waker()), (1, Waker::HardIrq));
    let explained = inband::explain(&record, 0).expect("explain");
    assert_eq!(explained.class, Class::Idle);

    let mut ends = [0; 2];
    let room = ends.as_mut_ptr();
    // SAFETY: there is room for both descriptors.
    let ret = inband::tap(libc::SYS_pipe2, [room as u64, 0, 0], || unsafe {
        libc::pipe2(room, libc::O_CLOEXEC)
    });
    let last = inband::last().expect("a record");
    assert_eq!((ret, last.call(), last.ret()), (0, libc::SYS_pipe2, 0));
    assert_eq!(last.args()[0], room as u64);
    let failed = inband::tap(libc::SYS_openat, [0; 3], || {
        File::open("/no/such/file").map(drop)
    });
    assert_eq!(failed.unwrap_err().raw_os_error(), Some(libc::ENOENT));
    assert_eq!(
        inband::last().expect("a record").copy().errno(),
        Some(libc::ENOENT)
    );
}

#[test]
fn a_panic_ends_the_tapped_call() {
    let _session = enabled_tap();
    let panicked = std::panic::catch_unwind(|| {
        inband::tap(libc::SYS_read, [0; 3], || -> i32 { panic!("on purpose") })
    });
    assert!(panicked.is_err());
    let record = inband::last().expect("a record").copy();
    assert_eq!(
        (record.call_name().as_str(), record.errno()),
        ("read", Some(libc::EINTR))
    );
    inband::tap(libc::SYS_getppid, [9, 0, 0], || {
        call(9);
        0
    });
    let last = inband::last().expect("a record");
    assert_eq!((last.args()[0], last.flags()), (9, record::USER_TAP));
}

#[test]
fn tapped_threads_count_for_themselves() {
    let _session = enabled_tap();
    let count = |mark: u64| {
        for i in 0..2000 {
            // SAFETY: getppid takes no arguments.
            unsafe { inband::call(libc::SYS_getppid, [mark, i, 0, 0, 0, 0]) };
            let last = inband::last().expect("a record");
            assert_eq!((last.args(), last.number()), ([mark, i, 0], i + 1));
        }
    };
    thread::scope(|scope| {
        (1..9).for_each(|mark| {
            scope.spawn(move || count(mark));
        });
    });
}
