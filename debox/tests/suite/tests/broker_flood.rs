// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one user's requests take from others: nobody waits for probes that another user needs, and a flood of
//! connections takes little of the broker's CPU time. SECURITY.md names the tests.

use std::fs;
use std::process::Child;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use debox_tests::brokered::Place;
use debox_tests::brokered::OTHER;
use debox_tests::brokered::USER;
use debox_tests::program;
use debox_tests::slowness;

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());

    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(place: &Place, user: u32, what: &str) -> Child {
    let client = place.path().join("broker_client");
    if !client.exists() {
        place.copy(&program("broker_client"));
    }
    let socket = place.socket();
    let [client, socket] = [&client, &socket].map(|path| path.to_str().expect("plain text"));
    place.start(user, &[client, what, socket])
}

#[track_caller]
fn ends_well(client: Child) -> String {
    let output = client.wait_with_output().expect("own child");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn others_are_answered_while_probes_are_loaded() {
    let _alone = alone();
    let place = Place::with_broker(&[]);
    ends_well(start(&place, USER, "beside"));
}

/// In seconds.
fn cpu_time(pid: i32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, rest) = stat.rsplit_once(") ").expect("a name");
    let ticks = rest.split(' ').skip(11).take(2);
    let ticks: u64 = ticks
        .map(|ticks| ticks.parse::<u64>().expect("a number"))
        .sum();
    // SAFETY: takes and returns numbers.
    ticks as f64 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
}

#[test]
fn a_flood_takes_little_of_the_brokers_cpu_time() {
    let _alone = alone();
    let place = Place::with_broker(&["--cpu-percent", "5"]);
    let before = cpu_time(place.broker_pid());
    let floods = [(); 2].map(|()| start(&place, USER, "flood"));
    ends_well(start(&place, OTHER, "greet"));
    let said = floods.map(ends_well);
    let spent = cpu_time(place.broker_pid()) - before;
    // 5 % of two seconds, and what else the broker does meanwhile, which takes longer where it is emulated.
    let most = if slowness() > 1 { 1.2 } else { 0.4 };
    assert!(spent < most, "{spent} s for {said:?}");
}
