//! Property test: any report can be printed at any width.

// Fields that are added to the report later need not be generated here at once.
#![allow(clippy::needless_update)]

use debox::frame::Frame;
use debox::report::{CallSite, InFlight, Lost, Report, Sleep, SleepCallSite, Syscall, Thread};
use debox::report::{Totals, Untapped, WaitersScope, Waker, WakerKind};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{print, sample, TableOptions};

/// Small, ordinary and extreme numbers.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..1_000u64, any::<u64>(), Just(u64::MAX)]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![2 => "[a-z_]{0,12}", 1 => "\\PC{0,30}", 1 => "(?s).{0,8}"]
}

fn totals() -> impl Strategy<Value = Totals> {
    (vec(number(), 6), vec(option::of(number()), 3)).prop_map(|(n, o)| Totals {
        wall_ns: n[0],
        user_cpu_ns: n[1],
        kernel_cpu_ns: n[2],
        blocked_ns: n[3],
        runqueue_ns: n[4],
        preempted_ns: n[5],
        irq_ns: o[0],
        outside_ns: o[1],
        stolen_ns: o[2],
        ..Totals::default()
    })
}

fn syscall() -> impl Strategy<Value = Syscall> {
    (text(), vec(number(), 10), vec(option::of(number()), 8)).prop_map(|(name, n, o)| Syscall {
        name,
        calls: n[0],
        errors: n[1],
        restarts: n[2],
        wall_ns: n[3],
        cpu_ns: n[4],
        blocked_ns: n[5],
        runqueue_ns: n[6],
        preempted_ns: n[7],
        faults_minor: n[8],
        max_ns: n[9],
        irq_ns: o[0],
        outside_ns: o[1],
        faults_major: o[2],
        p50_ns: o[3],
        p99_ns: o[4],
        spin_ns: o[5],
        read_bytes: o[6],
        write_bytes: o[7],
        ..Syscall::default()
    })
}

fn frame() -> impl Strategy<Value = Frame> {
    text().prop_map(Frame::from)
}

fn sleep() -> impl Strategy<Value = Sleep> {
    let waker = (
        select(WakerKind::ALL),
        option::of(text()),
        option::of(any::<u32>()),
        number(),
    )
        .prop_map(|(kind, comm, tid, count)| Waker {
            kind,
            comm,
            tid,
            count,
        });
    let site = (vec(frame(), 0..3), number(), number()).prop_map(|(frames, count, blocked_ns)| {
        SleepCallSite {
            frames,
            caller: None,
            count,
            blocked_ns,
        }
    });
    let waiters = vec(option::of(number()), 2);
    let rows = (vec(waker, 0..3), vec(site, 0..3), vec(frame(), 0..3));
    (vec(text(), 4), vec(number(), 3), waiters, rows).prop_map(|(t, n, o, rows)| {
        let (wakers, call_sites, frames) = rows;
        Sleep {
            syscall: t[0].clone(),
            label: t[1].clone(),
            class: t[2].clone(),
            site: t[3].clone().into(),
            count: n[0],
            blocked_ns: n[1],
            max_ns: n[2],
            frames,
            wakers,
            waiters_entry_max: o[0],
            waiters_exit_max: o[1],
            waiters_scope: o[0].map(|_| WaitersScope::All),
            call_sites,
            ..Sleep::default()
        }
    })
}

fn thread() -> impl Strategy<Value = Thread> {
    (any::<[u32; 2]>(), text(), number(), totals()).prop_map(|(id, comm, calls, totals)| Thread {
        pid: id[0],
        tid: id[1],
        comm,
        calls,
        totals,
        ..Thread::default()
    })
}

fn rest() -> impl Strategy<Value = Report> {
    let in_flight =
        (vec(text(), 4), number(), any::<bool>()).prop_map(|(t, for_ns, at_least)| InFlight {
            comm: t[0].clone(),
            syscall: t[1].clone(),
            label: t[2].clone(),
            class: t[3].clone(),
            for_ns,
            at_least,
            frames: t.into_iter().map(Frame::from).collect(),
            ..InFlight::default()
        });
    let call_site =
        (text(), vec(frame(), 0..3), vec(number(), 3)).prop_map(|(syscall, frames, n)| CallSite {
            syscall,
            frames,
            calls: n[0],
            wall_ns: n[1],
            blocked_ns: n[2],
            ..CallSite::default()
        });
    let untapped =
        (text(), text(), number(), number()).prop_map(|(syscall, label, count, blocked_ns)| {
            Untapped {
                syscall,
                label,
                count,
                blocked_ns,
                ..Untapped::default()
            }
        });
    let tables = (
        vec(in_flight, 0..3),
        vec(call_site, 0..3),
        vec(untapped, 0..3),
    );
    let texts = (
        vec(text(), 0..3),
        vec(text(), 0..3),
        text(),
        vec(text(), 0..3),
    );
    let numbers = (
        vec(number(), 7),
        option::of(any::<i32>()),
        option::of(number()),
    );
    (tables, texts, numbers, totals()).prop_map(|(tables, texts, numbers, totals)| Report {
        command: texts.0,
        detail: texts.1,
        kernel: texts.2,
        unseen: texts.3,
        duration_ns: numbers.0[0],
        exit_status: numbers.1,
        steal_ns: numbers.2,
        unseen_wait_ns: numbers.0[6],
        totals,
        lost: Lost {
            records: numbers.0[1],
            sleeps: numbers.0[2],
            stacks: numbers.0[3],
            threads: numbers.0[4],
            rows: numbers.0[5],
            probe_misses: numbers.0[6],
            refused: numbers.0[5],
            ..Lost::default()
        },
        in_flight: tables.0,
        call_sites: tables.1,
        untapped: tables.2,
        ..sample::empty()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn is_printed(
        rest in rest(),
        syscalls in vec(syscall(), 0..5),
        sleeps in vec(sleep(), 0..5),
        threads in vec(thread(), 0..4),
        width in 0usize..300,
        all: bool,
        color: bool,
    ) {
        let report = Report { syscalls, sleeps, threads, ..rest }.with_headline();
        let mut out = Vec::new();
        print(&mut out, &report, &TableOptions { color, width, all }).expect("memory takes it");
        prop_assert!(String::from_utf8(out).is_ok_and(|text| text.ends_with('\n')));
    }
}
