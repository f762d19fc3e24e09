// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time on the CPU, waiting for it, and faults taken on it.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use debox_tests::ms;
use debox_tests::skipped;
use debox_tests::slowness;
use debox_tests::Debox;

/// Two threads that only compute share one CPU: each runs half the time and waits, able to run,
/// the other half; nobody sleeps.
#[test]
fn two_threads_share_one_cpu() {
    let run = Debox::run("one_core").args(["2", "1000"]).report();
    let (mut cpu, mut waited, mut lives) = (0, 0, 0);
    for spinner in run.threads("spinner") {
        let part = |name: &str| spinner[name].as_u64().expect("a number");
        cpu += part("user_cpu_ns") + part("kernel_cpu_ns");
        waited += part("runqueue_ns") + part("preempted_ns");
        lives += part("wall_ns") - part("blocked_ns");
    }
    let around = lives - run.fact("section_wall_ns");
    assert_eq!(run.threads("spinner").len(), 2);
    for (what, value) in [("cpu", cpu), ("delay", waited)] {
        let known = run.fact(&format!("section_{what}_ns"));
        let slack = (known * 3 / 100).max(ms(5) * slowness());
        assert!(
            (known - slack..=known + slack + around).contains(&value),
            "{what}: {value} ns, by the scheduler's account {known} ns, in {:#}",
            run.report["threads"]
        );
    }
    // Pushed off the CPU while computing is the time between calls' own part.
    run.call("(user)")
        .between("preempted_ns", waited / 2, waited + ms(50));
}

#[test]
fn faults_inside_read_are_reads() {
    let run = Debox::run("fault_in_read").args(["2000"]).report();
    let known = run.fact("read_faults_minor");
    assert_eq!(known, 2_000, "every page was fresh");
    // The loader reads its libraries' headers too, into memory that may be fresh.
    run.call("read")
        .between("faults_minor", known, known + 4)
        .exactly("faults_major", 0);
    run.call("read")
        .between("calls", run.fact("reads"), run.fact("reads") + 4);
}

/// Interrupts, taken out of the CPU time, are part of what the scheduler counts.
#[test]
fn interrupts_are_measured_on_request() {
    let run = Debox::run("one_core")
        .args(["2", "500"])
        .options(["--detail", "sleeps,irq"])
        .report();
    assert!(
        run.report["totals"]["irq_ns"].is_u64(),
        "{:#}",
        run.report["totals"]
    );
    let run = Debox::run("one_core").args(["1", "100"]).report();
    assert!(
        run.report["totals"]["irq_ns"].is_null(),
        "{:#}",
        run.report["totals"]
    );
}

/// Whether this kernel tells of spinning on spinlocks, as some virtual machines' do not: counted in
/// a tracing buffer of its own, without debox.
fn tells_of_spinning(program: &Path) -> Result<(), &'static str> {
    let Some(buffer) = TraceBuffer::new() else {
        return Err("no tracefs at /sys/kernel/tracing");
    };
    let event = buffer.0.join("events/lock/contention_begin");
    std::fs::write(event.join("filter"), "flags == 1").map_err(|_| "no event contention_begin")?;
    std::fs::write(event.join("enable"), "1").map_err(|_| "no event contention_begin")?;
    let status = Command::new(program).stdout(Stdio::null()).status();
    assert!(status.expect("a truth program").success());
    let trace = std::fs::read(buffer.0.join("trace")).expect("a tracing buffer");
    let seen = String::from_utf8_lossy(&trace)
        .lines()
        .filter(|line| line.trim_start().starts_with("spinlock-"))
        .count();
    if seen < 100 {
        return Err("this kernel tells too seldom of spinning on spinlocks");
    }
    Ok(())
}

/// Removed when it is dropped.
struct TraceBuffer(PathBuf);

impl TraceBuffer {
    fn new() -> Option<TraceBuffer> {
        let name = format!("debox-test-{}", std::process::id());
        let path = Path::new("/sys/kernel/tracing/instances").join(name);
        if !path.parent()?.is_dir() {
            mount_tracefs();
        }
        std::fs::create_dir(&path).ok()?;
        Some(TraceBuffer(path))
    }
}

/// For this thread alone: it goes with it.
fn mount_tracefs() {
    // SAFETY: the names are C strings, and no data is passed.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) != 0 {
            return;
        }
        let none = std::ptr::null();
        let whole = libc::MS_REC | libc::MS_PRIVATE;
        libc::mount(none, c"/".as_ptr(), none, whole, none.cast());
        let (kind, place) = (c"tracefs".as_ptr(), c"/sys/kernel/tracing".as_ptr());
        libc::mount(kind, place, kind, 0, none.cast());
    }
}

impl Drop for TraceBuffer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Two threads contend for the spinlock of their descriptor table: they spin in their calls, where
/// it is CPU time.
#[test]
fn spinning_on_a_spinlock_is_shown() {
    let program = debox_tests::program("spinlock");
    if std::thread::available_parallelism().map_or(1, |cpus| cpus.get()) < 2 {
        return skipped("spinning_on_a_spinlock_is_shown", "one CPU only");
    }
    // It may change the mounts that it sees, and debox is to see what others do.
    let told = std::thread::spawn(move || tells_of_spinning(&program)).join();
    if let Err(reason) = told.expect("it does not panic") {
        return skipped("spinning_on_a_spinlock_is_shown", reason);
    }
    let run = Debox::run("spinlock").args(["200000"]).report();
    let spun = |call: &str| {
        let call = run.call(call).between("calls", 400_000, 400_100);
        (call.number("spin_ns"), call.number("cpu_ns"))
    };
    for call in ["dup", "close"] {
        let (spun, cpu) = spun(call);
        assert!(spun > 0 && spun < cpu, "{call}: {spun} ns of {cpu} ns");
        // Which lock it was shows in the function that took it.
        let spins = run.report["spins"].as_array().expect("a list");
        let own = spins.iter().filter(|spin| spin["syscall"] == call);
        let longest = own.max_by_key(|spin| spin["spin_ns"].as_u64());
        let longest = longest.expect("a lock");
        let site = longest["site"].as_str().expect("text");
        assert!(site.contains("fd"), "{longest:#}");
        assert!(longest["spin_ns"].as_u64() <= Some(spun), "{longest:#}");
    }
}

/// A recording has the same locks, and they have no more time than its calls.
#[test]
fn a_recording_names_the_locks_that_calls_spun_on() {
    let program = debox_tests::program("spinlock");
    let name = "a_recording_names_the_locks_that_calls_spun_on";
    if std::thread::available_parallelism().map_or(1, |cpus| cpus.get()) < 2 {
        return skipped(name, "one CPU only");
    }
    let of_program = program.clone();
    let told = std::thread::spawn(move || tells_of_spinning(&of_program)).join();
    if let Err(reason) = told.expect("it does not panic") {
        return skipped(name, reason);
    }
    let scratch = debox_tests::Scratch::new();
    let file = scratch.file("trace.parquet");
    let debox = |arguments: &[&std::ffi::OsStr]| {
        let done = std::process::Command::new(debox_tests::debox_binary())
            .args(arguments)
            .output()
            .expect("debox can be executed");
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).expect("text")
    };
    debox(&[
        "record".as_ref(),
        "-o".as_ref(),
        file.as_os_str(),
        "--".as_ref(),
        program.as_os_str(),
        "100000".as_ref(),
    ]);
    let json = debox(&["report".as_ref(), file.as_os_str(), "--json".as_ref()]);
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let spins = report["spins"].as_array().expect("a list");
    let history = debox_history::History::open(&[&file]).expect("a history");
    for name in ["dup", "close"] {
        let own = spins.iter().filter(|spin| spin["syscall"] == name);
        let ns = |spin: &serde_json::Value| spin["spin_ns"].as_u64().expect("a number");
        assert!(
            own.clone().any(|spin| spin["site"]
                .as_str()
                .is_some_and(|site| site.contains("fd"))),
            "{spins:#?}"
        );
        let of_locks: u64 = own.map(ns).sum();
        let calls = history.calls().map(|call| call.expect("a row").1);
        let of_calls: u64 = calls
            .filter(|call| &*call.name == name)
            .map(|call| call.spin_ns)
            .sum();
        // A call whose record was lost is among the locks only.
        let lost = report["recording"]["lost"]["records"].as_u64() != Some(0);
        assert!(
            of_locks > 0 && (lost || of_locks <= of_calls),
            "{name}: {of_locks} {of_calls}"
        );
    }
    let text = debox(&["report".as_ref(), file.as_os_str(), "--all".as_ref()]);
    assert!(
        text.contains("For which locks of the kernel it spun"),
        "{text}"
    );
}

/// Where it is not measured it is null, and not 0.
#[test]
fn spinning_is_not_measured_by_the_user_tap() {
    for options in [["--tap", "user"], ["--detail", "basic"]] {
        let run = Debox::run("count").options(options).report();
        let calls = run.report["syscalls"].as_array().expect("a list");
        assert!(calls.iter().all(|call| call["spin_ns"].is_null()));
    }
}
