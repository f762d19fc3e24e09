// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one user's requests take from others: nobody waits for probes that another user needs, and a flood of
//! connections takes little of the broker's CPU time. SECURITY.md names the tests.

use std::fs;
use std::process::Child;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Instant;

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
    let stat = fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("it lives");
    let (on_cpu, _) = stat.split_once(' ').expect("three numbers");
    on_cpu.parse::<u64>().expect("a number") as f64 / 1e9
}

#[test]
fn a_flood_takes_little_of_the_brokers_cpu_time() {
    let _alone = alone();
    let place = Place::with_broker(&["--cpu-percent", "5"]);
    let spent = || cpu_time(place.broker_pid());
    // What a connection costs the broker on this machine, which may be an emulated one.
    let before = spent();
    ends_well(start(&place, OTHER, "hundred"));
    let each = (spent() - before) / 100.0;

    let (before, begin) = (spent(), Instant::now());
    let floods = [(); 2].map(|()| start(&place, USER, "flood"));
    ends_well(start(&place, OTHER, "greet"));
    let said = floods.map(ends_well);
    let (spent, elapsed) = (spent() - before, begin.elapsed().as_secs_f64());
    // 200 connections, and 50 a second; 5 % of the time for refusals, and 20 ms.
    let allowed = (200.0 + 50.0 * elapsed) * each + 0.05 * elapsed + 0.02;
    // Never more than this, whatever a connection costs.
    let most: f64 = if slowness() > 1 { 1.2 } else { 0.4 };
    assert!(
        spent < most.min(1.25 * allowed + 0.05),
        "{spent} s in {elapsed} s, of {allowed} s and {each} s for a connection: {said:?}"
    );
}
