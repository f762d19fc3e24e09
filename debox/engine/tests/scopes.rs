//! Scopes from Rust; with more cases they are tested through the C interface
//! (`debox/capi/tests/programs/scopes.c`). Loads probes, so it needs root.

use std::time::Duration;

use debox::inband::{self, Error, Faults, Options, Scope, Sums};

fn parts(sums: &Sums) -> u64 {
    let budget = &sums.budget;
    budget.cpu_ns
        + budget.blocked_ns
        + budget.runqueue_ns
        + budget.preempted_ns
        + budget.irq_ns
        + budget.outside_ns
}

fn call() {
    // SAFETY: getppid takes no arguments and touches no memory.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// One test: the process has one session.
#[test]
fn scopes_sum_up_what_a_thread_does() {
    assert_eq!(debox::scope("request").end(), Err(Error::NotEnabled));
    inband::enable(&Options::default()).expect("enable");

    let outer = debox::scope("outer");
    let inner = debox::scope(format!("inner {}", 1));
    assert_eq!((outer.name(), inner.name()), ("outer", "inner 1"));
    for _ in 0..100_000 {
        call();
    }
    let inner = inner.end().expect("measured");
    let so_far = outer.so_far().expect("measured");
    std::thread::sleep(Duration::from_millis(20));
    let outer = outer.end().expect("measured");
    assert_eq!(
        (inner.calls, so_far.calls, outer.calls),
        (100_000, 100_000, 100_001)
    );
    for sums in [&inner, &so_far, &outer] {
        assert_eq!(parts(sums), sums.wall_ns, "{sums}");
        assert!(sums.cpu_user_ns() > 0 && sums.cpu_kernel_ns() > 0, "{sums}");
    }
    // It may lose its CPU after the timer was set and before it sleeps.
    let away = outer.budget.blocked_ns + outer.budget.preempted_ns;
    assert!(outer.unseen > 0 || away >= 19_000_000, "{outer}");

    let all = Scope::with_faults("faults", Faults::All);
    let memory = std::hint::black_box(vec![1u8; 8 << 20]);
    assert!(all.end().expect("measured").faults_minor > 0);
    drop(memory);

    let others = std::thread::spawn(|| {
        let scope = debox::scope("another thread's");
        call();
        scope.end()
    });
    assert_eq!(
        others.join().expect("it ends").map(|sums| sums.calls),
        Ok(1)
    );

    let cut = debox::scope("cut");
    inband::disable().expect("disable");
    assert_eq!(cut.so_far(), Err(Error::Interrupted));
    inband::enable(&Options::default()).expect("enable");
    assert_eq!(cut.end(), Err(Error::Interrupted));
    inband::disable().expect("disable");
}
