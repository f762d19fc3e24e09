// SPDX-License-Identifier: MIT OR Apache-2.0
//! redis-server under redis-benchmark: one thread for all clients. With a log that is synchronous,
//! every client waits while this thread waits for the disk; the report must show that this sleep is
//! another than the idle one.

use debox_real::bare;
use debox_real::free_port;
use debox_real::require;
use debox_real::take_turn;
use debox_real::Tap;
use debox_tests::skipped;
use debox_tests::Scratch;

const REQUESTS: u64 = 10_000;

fn redis(tap: Tap, synchronous: bool) {
    let _turn = take_turn();
    if !tap.works("redis") {
        return;
    }
    let (scratch, port) = (Scratch::new(), free_port().to_string());
    let path = |name| require(name).display().to_string();
    let directory = scratch.path().display().to_string();
    let (server, load, client) = (
        path("redis-server"),
        path("redis-benchmark"),
        path("redis-cli"),
    );
    let append = if synchronous { "yes" } else { "no" };
    let command: [&str; 13] = [
        &server,
        "--bind",
        "127.0.0.1",
        "--port",
        &port,
        "--dir",
        &directory,
        "--save",
        "",
        "--appendonly",
        append,
        "--appendfsync",
        "always",
    ];
    let ask = |command: &[&str]| {
        let words = [&[client.as_str(), "-p", &port], command].concat();
        String::from_utf8_lossy(&bare(&words, scratch.path()).stdout)
            .trim()
            .to_string()
    };
    let requests = REQUESTS.to_string();
    let story = tap.serve(&command, port.parse().expect("a port"), || {
        assert_eq!(ask(&["set", "name", "value"]), "OK");
        let words = [
            &load, "-p", &port, "-n", &requests, "-c", "20", "-t", "set,get", "-q",
        ];
        bare(&words, scratch.path());
        assert_eq!(ask(&["get", "name"]), "value");
        ask(&["shutdown"]);
    });

    // A request is read, and its answer is written.
    assert!(story.run.call("read").number("calls") >= 2 * REQUESTS);
    assert!(story.run.call("write").number("calls") >= 2 * REQUESTS);
    if tap == Tap::User {
        return;
    }
    let idle = story.run.call("epoll_wait").sleep("epoll").class("idle");
    assert!(idle.number("count") > 10, "{idle:#?}");
    let sync = story.run.count_of("fdatasync");
    if !synchronous {
        assert_eq!(sync, 0, "redis-server synced although it was told not to");
        return;
    }
    assert!(sync > 100, "{sync} calls of fdatasync");
    let blocked = story.run.call("fdatasync").number("blocked_ns");
    if blocked == 0 {
        return skipped(
            "redis fdatasync",
            "fdatasync does not sleep on this file system",
        );
    }
    story.all_of_class("fdatasync", "disk");
}

#[test]
fn redis_is_idle_in_one_place() {
    redis(Tap::Kernel, false);
}

#[test]
fn redis_waits_for_its_log() {
    redis(Tap::Kernel, true);
}

#[test]
fn redis_waits_for_its_log_user_tap() {
    redis(Tap::User, true);
}
