// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tar` through `gzip`: two processes and a pipe, of which the compressor is the slow end.

use debox_real::bare;
use debox_real::require;
use debox_real::take_turn;
use debox_real::Tap;
use debox_tests::Scratch;

/// A tree that every machine which can build this has: the kernel's headers.
const TREE: &str = "/usr/include/linux";

fn archive(tap: Tap) {
    let _turn = take_turn();
    if !tap.works("tar_waits_for_gzip") {
        return;
    }
    require("tar");
    require("gzip");
    let scratch = Scratch::new();
    let command = |name| {
        let file = scratch.file(name).display().to_string();
        ["/bin/tar", "--sort=name", "-C", TREE, "-czf", &file, "."].map(String::from)
    };
    bare(&command("bare.tgz"), scratch.path());
    let story = tap.run(&command("debox.tgz"));

    let read = |name| std::fs::read(scratch.file(name)).expect("tar made an archive");
    assert!(read("bare.tgz") == read("debox.tgz"), "the archives differ");
    // What the kernel does for tar takes longer when files and pages are cold.
    story.at_least(
        80,
        story.thread_sum("gzip", "user_cpu_ns"),
        story.total("user_cpu_ns"),
        "gzip computes",
    );
    if tap == Tap::Kernel {
        // What tar cannot do because gzip is slow it spends before a full pipe, and gzip ends that.
        let full = story.labelled("write", "pipe full");
        let asleep = story.thread_sum("tar", "blocked_ns");
        let at_work = story.thread_sum("tar", "kernel_cpu_ns");
        story.at_least(85, full.blocked_ns, asleep, "tar waits for nothing else");
        story.at_least(50, full.blocked_ns, asleep + at_work, "tar waits for gzip");
        assert_eq!(story.woke("gzip", "pipe full"), full.count);
    }
}

#[test]
fn tar_waits_for_gzip() {
    archive(Tap::Kernel);
}

#[test]
fn tar_waits_for_gzip_user_tap() {
    archive(Tap::User);
}
