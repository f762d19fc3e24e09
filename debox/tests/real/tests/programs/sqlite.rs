// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sqlite3` with one transaction for each insert: it promises that each is on the disk before the
//! next begins, and waits for that.

use std::fmt::Write;

use debox_real::bare;
use debox_real::require;
use debox_real::take_turn;
use debox_real::Tap;
use debox_tests::skipped;
use debox_tests::Scratch;

const INSERTS: u64 = 200;

fn statements() -> String {
    let mut text =
        String::from("PRAGMA synchronous = FULL;\nDROP TABLE IF EXISTS t;\nCREATE TABLE t (n INTEGER, s TEXT);\n");
    for number in 0..INSERTS {
        writeln!(text, "INSERT INTO t VALUES ({number}, 'row {number}');").expect("a string");
    }
    text.push_str("SELECT count(*), sum(n) FROM t;\n");
    text
}

fn inserts(tap: Tap) {
    let _turn = take_turn();
    if !tap.works("sqlite_waits_for_the_disk") {
        return;
    }
    let sqlite = require("sqlite3").display().to_string();
    let scratch = Scratch::new();
    std::fs::write(scratch.file("in.sql"), statements()).expect("scratch directory is writable");
    let read = format!(".read {}", scratch.file("in.sql").display());
    let command = |name| {
        [
            sqlite.clone(),
            scratch.file(name).display().to_string(),
            read.clone(),
        ]
    };
    let expected = bare(&command("bare.db"), scratch.path());
    let story = tap.run(&command("debox.db"));

    assert_eq!(story.output.as_bytes(), expected.stdout);
    assert_eq!(
        story.output.trim(),
        format!("{INSERTS}|{}", INSERTS * (INSERTS - 1) / 2)
    );
    let sync = story.run.call("fdatasync");
    // The journal and the database file, for each transaction.
    assert!(sync.number("calls") >= 2 * INSERTS);
    let blocked = sync.number("blocked_ns");
    if blocked == 0 {
        return skipped(
            "sqlite_waits_for_the_disk",
            "fdatasync does not sleep on this file system",
        );
    }
    if tap == Tap::Kernel {
        story.all_of_class("fdatasync", "disk");
        let (disk, asleep) = (story.class("disk"), story.total("blocked_ns"));
        let shell = story.class("process").blocked_ns;
        story.at_least(
            90,
            disk.blocked_ns,
            asleep - shell,
            "sqlite3 waits for nothing but the disk",
        );
        story.at_least(50, blocked, disk.blocked_ns, "fdatasync is what waits");
    }
}

#[test]
fn sqlite_waits_for_the_disk() {
    inserts(Tap::Kernel);
}

#[test]
fn sqlite_waits_for_the_disk_user_tap() {
    inserts(Tap::User);
}
