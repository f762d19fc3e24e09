//! Snapshots of what users see: after a change of the layout, review the difference.

use super::doctor::{self, Finding, Standing};
use super::*;
use debox::report::{InFlight, Totals};
use insta::assert_snapshot;

const PLAIN: TableOptions = TableOptions {
    color: false,
    width: 100,
    all: false,
};

fn shown_with(report: &Report, options: &TableOptions) -> String {
    let mut out = Vec::new();
    print(&mut out, report, options).expect("memory takes everything");
    String::from_utf8(out).expect("a report is UTF-8")
}

#[test]
fn a_deadlock_comes_before_all_else() {
    let text = shown_with(&sample::stuck(), &PLAIN);
    let lines: Vec<&str> = text.lines().map(str::trim_end).take(6).collect();
    assert_eq!(
        lines,
        [
            "deadlock of 2 threads: each waits for what the next one holds; 3 more threads wait for these",
            "  worker1 (4101) waits for mutex accounts (server), held by worker2 (4102), at take_accounts+0x1a",
            "  (server.c:4101)",
            "  worker2 (4102) waits for mutex journal (server), held by worker1 (4101), at take_journal+0x1a",
            "  (server.c:4102)",
            "ran 0 ns: 0 user CPU, 0 kernel CPU, 0 asleep, 0 waiting for a CPU",
        ]
    );
}

/// Sleep of calls that were in flight at the end is in the sum of all sleep, but in no row of sleeps.
#[test]
fn calls_in_flight_have_slept_where_they_are() {
    let report = Report {
        duration_ns: 1_000_000_000,
        totals: Totals {
            wall_ns: 1_000_000_000,
            blocked_ns: 900_000_000,
            ..Totals::default()
        },
        in_flight: vec![InFlight {
            label: "futex".into(),
            for_ns: 800_000_000,
            ..InFlight::default()
        }],
        ..sample::empty()
    };
    let text = shown_with(&report, &PLAIN);
    let asleep = text.lines().find(|line| line.starts_with("asleep: "));
    assert_eq!(
        asleep,
        Some("asleep: 0.80 in calls that had not returned, 0.10 without a site")
    );
}

#[test]
fn a_threaded_server_on_a_slow_disk() {
    assert_snapshot!(shown_with(&sample::rich(), &PLAIN), @r#"
    mostly computing in the program: 76 % (23.9 s)
    of 31.3 s: 76 % computing in the program, 13 % page read, 4 % inode read, 2 % computing in the kernel, 2 % futex, 1 % inode lock; threads waited 9.05 s for work beside it
    ran 10.2 s: 23.9 user CPU, 0.7 kernel CPU, 15.5 asleep, 0.2 waiting for a CPU, 0.1 in interrupts; 4 threads lived 40.3 s together
    asleep: 5.4 disk, 1.0 lock, 9.1 idle, 0.1 in calls that the user tap does not see
    the hypervisor took 330 ms from this machine's CPUs meanwhile
    the command ended with status 130 (128 + signal 2)

    Per call
      call               calls errors   wall    cpu blocked runqueue   irq   read    p99    max
      epoll_wait        48,120      0  9.10s 45.0ms   9.05s   5.00ms     -      -  567us 2.27ms
      pread64           91,004      0  4.20s  279ms   3.89s   31.0ms     - 355MiB  138us  554us
      openat            12,611     17  1.70s 81.0ms   1.61s   9.00ms     -      -  404us 1.62ms
      futex              3,204      0  650ms 45.0ms   600ms   5.00ms     -      -  609us 2.43ms
      write          1,204,113      0  210ms  189ms       0   21.0ms     -      -  522ns 2.09us
      syscall_500           10      0  100us 90.0us       0   10.0us     -      - 30.0us  120us
      syscall_501           10      0 99.0us 89.1us       0   9.90us     -      - 29.7us  119us
      syscall_502           10      0 98.0us 88.2us       0   9.80us     -      - 29.4us  118us
      syscall_503           10      0 97.0us 87.3us       0   9.70us     -      - 29.1us  116us
      syscall_504           10      0 96.0us 86.4us       0   9.60us     -      - 28.8us  115us
      syscall_505           10      0 95.0us 85.5us       0   9.50us     -      - 28.5us  114us
      syscall_506           10      0 94.0us 84.6us       0   9.40us     -      - 28.2us  113us
      syscall_507           10      0 93.0us 83.7us       0   9.30us     -      - 27.9us  112us
      syscall_508           10      0 92.0us 82.8us       0   9.20us     -      - 27.6us  110us
      syscall_509           10      0 91.0us 81.9us       0   9.10us     -      - 27.3us  109us
      … 4 more calls        40      0  354us  319us       0   35.4us     -      -
      (user)                 -      -  24.4s  21.7s   300ms    2.41s     -      -      -  293ms
      total          1,359,192     17  40.3s  24.6s   15.5s    160ms 100ms 355MiB
      left out to fit 100 columns: restarts, spin, faults+major, p50, preempted

    Why it slept
      label       class  sleeps   time  call/sleeps
      page read   disk      846  4.19s  pread64/843, (user)/3
      inode read  disk      160  1.20s  openat/160
      futex       lock    1,100  600ms  futex/1,100
      inode lock  lock       28  410ms  openat/28
      epoll       idle   48,120  9.05s  epoll_wait/48,120

    Where in the kernel it slept, and who ended it
      label      call       sleeps  time longest waiters site                      woken by
      page read  pread64       843 3.89s  38.9ms         folio_wait_bit_common     softirq×840,
                                                         (mm/filemap.c:1312)       hardirq×3
      inode read openat        160 1.20s  12.0ms         io_schedule               softirq×1
      futex      futex       1,100 600ms  6.00ms 2 / 1*  futex_wait_queue          worker/802×1,100
      inode lock openat         28 410ms  4.10ms 4 / 3   rwsem_down_write_slowpath worker/803×27,
                                                                                   unknown×1
      page read  (user)          3 300ms  3.00ms         io_schedule               softirq×1
      epoll      epoll_wait 48,120 9.05s  90.5ms         ep_poll                   worker/801×40,000,
                                                         (fs/eventpoll.c:2095)     softirq×8,000, 2 more
      left out to fit 100 columns: class
      waiters: most at a sleep's start, itself included / left at its end (* among the watched threads)

    What it waited on, and who held it
      label       call     time  waited on                               held, when it began, by
      inode lock  openat  410ms  rwsem inode lock of /srv/spool, 1 more  worker/803×27 (direct I/O), not
                                                                         known×1

    Who waited for whom
      worker/801, 27 times, waited 410 ms (inode lock) for worker/803, which waited 405 ms (futex) for
      logger/804, which was on CPU
      worker/802 waited 9.00 ms (flock) for backup/77, which is not watched and at first was: page read
      worker/801 waited 5.00 ms (futex) for worker/802, which waited 5.00 ms (futex) for one of these
      again

    Inside the calls
      samples of the stack, one each 100 us on a CPU: how often, not how long; function probes: fentry
      refused by this kernel

      pread64: 91,004 calls, 200 samples
      share  samples  function
        99%      198  vfs_read
        95%      190    filemap_read
      1 more below 2 % (--all-rows shows them)
      passed: block_rq_issue×843

    Which process and thread
      pid  tid  name    calls   wall  user CPU  kernel CPU  asleep  waiting  interrupts
      800  800  server    100  10.2s     6.12s       1.02s   2.04s    1.02s      25.0ms
      800  801  worker    100  10.1s     6.06s       1.01s   2.02s    1.01s      25.0ms
      800  802  worker    100  10.1s     6.06s       1.01s   2.02s    1.01s      25.0ms
      800  803  worker    100  10.1s     6.06s       1.01s   2.02s    1.01s      25.0ms

    From where it slept
      call     label      sleeps   time  from
      pread64  page read     840  3.89s  read_block+0x52 (store.c:210)

    From where it called
      call      calls   wall  blocked  from
      pread64  90,900  4.19s    3.89s  read_block+0x52 (store.c:210) < serve+0x1ce (server.c:88) <
                                       worker+0x3f (server.c:140) < …

    Still running when the report was made
      pid  tid  name    call           for  now                waits for           kernel stack
      800  802  writer  openat      ≥3.10s  inode lock (lock)  rwsem inode lock    open_last_lookups
                                                               of /srv/store,
                                                               held by worker/801
                                                               (page read)
      800  801  worker  pread64     21.0ms  page read (disk)   file                folio_wait_bit_common
                                                               /srv/store/index    < filemap_get_pages
      800  800  server  epoll_wait  ≥10.2s  epoll (idle)                           ep_poll

    Slept unseen by the user tap
      call   label           sleeps    time
      fsync  journal commit       4  81.0ms

    What could not be seen
      The kernel has no debug information here, so sites have no file and line.

    Linux 6.12.0, kernel tap, detail basic, sleeps, callsites, irq, io
    "#);
}

#[test]
fn one_thread_for_less_than_a_second() {
    assert_snapshot!(shown_with(&sample::short(), &PLAIN), @r#"
    more than anything else computing in the program: 50 % (6.10 ms)
    of 12.3 ms: 50 % computing in the program, 33 % inode read, 16 % computing in the kernel
    ran 12.3 ms: 6.1 user CPU, 2.0 kernel CPU, 4.1 asleep, 0.1 waiting for a CPU
    asleep: 4.1 disk
    the command ended with status 3

    Per call
      call   calls errors   wall    cpu blocked runqueue preempted faults    p50    p99    max
      openat     1      0 4.20ms 90.0us  4.10ms   10.0us         0      0 2.10ms 12.6ms 50.4ms
      mmap      30      0 1.90ms 1.71ms       0    190us         0      0 31.7us  190us  760us
      (user)     -      - 6.20ms 5.58ms       0    620us         0      0      -      - 74.4us
      total     31      0 12.3ms 8.10ms  4.10ms   90.0us    10.0us      0

    Why it slept
      label       class  sleeps    time  call/sleeps
      inode read  disk        1  4.10ms  openat/1

    Where in the kernel it slept, and who ended it
      label       class  call    sleeps    time  longest  site         woken by
      inode read  disk   openat       1  4.10ms   4.10ms  io_schedule  softirq×1

    Which process and thread
      pid  tid  name  calls    wall  user CPU  kernel CPU  asleep  waiting
       77   77  true     31  12.3ms    6.10ms      2.00ms  4.10ms    100us

    Linux 6.12.0, kernel tap, detail basic, sleeps; interrupts count as CPU time
    "#);
}

#[test]
fn a_session_that_saw_nothing() {
    assert_snapshot!(shown_with(&sample::empty(), &PLAIN), @r#"
    ran 0 ns: 0 user CPU, 0 kernel CPU, 0 asleep, 0 waiting for a CPU

    Per call
      no call ended while it was watched

    Linux 6.12.0, kernel tap, detail basic, sleeps; interrupts count as CPU time
    "#);
}

#[test]
fn attached_the_present_comes_first() {
    let report = Report {
        command: Vec::new(),
        exit_status: None,
        ..sample::rich()
    };
    let text = shown_with(&report, &PLAIN);
    let headings: Vec<&str> = text
        .split("\n\n")
        .skip(1)
        .filter_map(|section| section.lines().next())
        .collect();
    assert_eq!(
        headings[..2],
        ["Still running when the report was made", "Per call"]
    );
    assert_eq!(text.matches(headings[0]).count(), 1);
}

#[test]
fn losses_are_told_in_words() {
    let text = shown_with(&sample::lossy(), &PLAIN);
    let losses = text
        .split("\n\n")
        .find(|section| section.starts_with("What could not"));
    assert_snapshot!(losses.expect("a section of losses"), @r#"
    What could not be seen
      lost: 1 record was not written
      lost: 1,204 sleeps have no site here; the time is in the calls
      lost: 7 stacks were not taken
      lost: 2 threads were not watched, or ended without totals
      lost: 33 rows of a table (wakers, call sites) did not fit
      lost: 5 times the kernel skipped a probe
      refused: 3 counts that programs keep of their own calls cannot be true
      The kernel has no debug information here, so sites have no file and line.
    "#);
}

#[test]
fn many_short_lived_children_are_one_line() {
    let text = shown_with(&sample::build(), &PLAIN);
    let threads = text
        .split("\n\n")
        .find(|section| section.starts_with("Which process"));
    assert_snapshot!(threads.expect("a section of threads"), @r#"
    Which process and thread
      pid  tid  name      calls   wall  user CPU  kernel CPU  asleep  waiting
       10   10  make        100  5.00s     3.00s       500ms   1.00s    500ms
                cc1 ×60   6,000  3.60s     2.16s       360ms   720ms    360ms
                sh ×120  12,000  1.20s     720ms       120ms   240ms    120ms
      400  400  ld          100  200ms     120ms      20.0ms  40.0ms   20.0ms
      401  401  ld          100  200ms     120ms      20.0ms  40.0ms   20.0ms
    "#);
}

#[test]
fn the_doctor_names_costs_and_remedies() {
    let finding = |need: &str, standing, found: &str, cost: &str, remedy: &str| Finding {
        need: need.to_string(),
        standing,
        found: found.to_string(),
        cost: cost.to_string(),
        remedy: remedy.to_string(),
    };
    let findings = [
        finding("kernel 6.1 or later", Standing::Met, "6.12.0", "", ""),
        finding(
            "kernel debug information",
            Standing::Limits,
            "none",
            "Sites are shown as function and offset, without file and line.",
            "install the kernel's debug symbols",
        ),
    ];
    let mut out = Vec::new();
    doctor::print(&mut out, &findings, &PLAIN).expect("memory takes everything");
    assert_snapshot!(String::from_utf8(out).expect("UTF-8"), @r#"
      yes      kernel 6.1 or later       6.12.0
      limited  kernel debug information  none
                                         Sites are shown as function and offset, without file and line.
                                         Remedy: install the kernel's debug symbols

    debox works here, within 1 limit
    "#);
}

#[test]
fn a_broken_run_says_so_first() {
    let why = "The broker ended during the run (x): what happened from 1.0 s to 2.0 s is missing.";
    let incomplete = |report: Report| Report {
        incomplete: Some(why.to_string()),
        unseen: vec![why.to_string()],
        ..report
    };
    let text = shown_with(&incomplete(sample::rich()), &PLAIN);
    assert!(text.starts_with(&format!("{why}\nmostly ")), "{text}");
    assert_eq!(text.matches(why).count(), 1);

    let nothing = Report {
        duration_ns: 3_200_000_000,
        exit_status: Some(7),
        ..incomplete(sample::empty())
    };
    let text = shown_with(&nothing, &PLAIN);
    let lines: Vec<&str> = text.lines().take(3).collect();
    let expected = [
        why,
        "the command ran 3.20 s",
        "the command ended with status 7",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn colours_come_only_when_asked_for() {
    let report = sample::lossy();
    let colored = shown_with(
        &report,
        &TableOptions {
            color: true,
            ..PLAIN
        },
    );
    let plain = shown_with(&report, &PLAIN);
    assert!(colored.contains('\u{1b}'));
    assert!(!plain.contains('\u{1b}'));
    let bare = anstream::adapter::strip_str(&colored).to_string();
    let trimmed = |text: &str| {
        text.lines()
            .map(|line| line.trim_end().to_string())
            .collect()
    };
    let (bare, plain): (Vec<String>, Vec<String>) = (trimmed(&bare), trimmed(&plain));
    assert_eq!(bare, plain);
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [80, 100, 132, 200] {
        for all in [false, true] {
            let text = shown_with(
                &sample::lossy(),
                &TableOptions {
                    color: false,
                    width,
                    all,
                },
            );
            let tables = text.lines().filter(|line| line.starts_with("  "));
            for line in tables {
                assert!(
                    line.chars().count() <= width,
                    "{width} columns, {all}: {line}"
                );
            }
        }
    }
}

#[test]
fn a_tiny_terminal_does_not_panic() {
    for width in 0..30 {
        shown_with(
            &sample::rich(),
            &TableOptions {
                color: true,
                width,
                all: true,
            },
        );
    }
}

#[test]
fn all_means_all() {
    let text = shown_with(&sample::rich(), &TableOptions { all: true, ..PLAIN });
    assert!(text.contains("syscall_513"));
    assert!(!text.contains(" more"));
}

#[test]
fn a_program_cannot_steer_the_terminal_by_its_name() {
    let mut report = sample::short();
    report.threads[0].comm = "\u{1b}[2Jx\ny".to_string();
    let text = shown_with(&report, &PLAIN);
    assert!(!text.contains('\u{1b}'));
    assert!(text.contains("\\x1b[2Jx\\ny"));
}

#[test]
fn functions_that_were_probed() {
    let report = Report {
        trace: Some(sample::exact_trace()),
        ..sample::rich()
    };
    let mut out = Vec::new();
    trace::print(&mut out, &report, &PLAIN).expect("memory takes everything");
    assert_snapshot!(String::from_utf8(out).expect("a report is UTF-8"), @r"

    Inside the calls
      1,204 kernel functions, entry and return of each (kprobe.session); their time includes what
      watching costs

      openat: 12,611 calls, 1.70 s in these functions
      share   time    self  asleep  entered  function
       100%  1.70s  40.0ms   1.61s   12,611  do_sys_openat2
        96%  1.63s  90.0ms   1.61s   12,611    do_filp_open
      1 more below 2 % (--all-rows shows them)

      lost: 12 functions entered deeper than --trace-depth
      3 in interrupts on top of calls are not the calls' and left out
      functions that were not probed: 2 never returns
    ");
}

#[test]
fn a_trigger_lists_what_it_fired_for() {
    let mut out = Vec::new();
    triggers::print(&mut out, &sample::lossy(), &PLAIN).expect("memory takes everything");
    let text = String::from_utf8(out).expect("UTF-8");
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    for wanted in [
        "Trigger: syscall == open* && blocked > 1ms",
        "Fired for 12 calls; 1 of them late, after the program had gone on; 3 kept back by the \
         limit on firings; 1 could not be decided; signals \
         that could not be sent: 1; listed are the first 1.",
        "120ms 4712 worker openat -2 12.1ms 12.0ms inode lock load (cache.c:88) late",
    ] {
        assert!(text.contains(wanted), "`{wanted}` in {text}");
    }
}
