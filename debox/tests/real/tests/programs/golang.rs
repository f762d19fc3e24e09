// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Go program: goroutines on a few threads, the network and files, no C library.

use std::path::PathBuf;
use std::process::Command;

use debox_real::bare;
use debox_real::require;
use debox_real::take_turn;
use debox_real::Tap;
use debox_tests::Debox;
use debox_tests::Scratch;

const SOURCE: &str = include_str!("echo.go.txt");

/// Builds the program without C code, which makes it static.
fn build(scratch: &Scratch) -> PathBuf {
    let (source, program) = (scratch.file("echo.go"), scratch.file("echo"));
    std::fs::write(&source, SOURCE).expect("scratch directory is writable");
    let output = Command::new(require("go"))
        .args(["build", "-o"])
        .args([&program, &source])
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "")
        .env("GOTOOLCHAIN", "local")
        .env("GOCACHE", scratch.file("cache"))
        .current_dir(scratch.path())
        .output()
        .expect("go was found");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

#[test]
fn go_parks_its_threads() {
    let _turn = take_turn();
    let scratch = Scratch::new();
    let command = [build(&scratch), scratch.path().to_path_buf()];
    let expected = bare(&command, scratch.path());
    let story = Tap::Kernel.run(&command);

    assert_eq!(story.output.as_bytes(), expected.stdout);
    assert_eq!(story.output.trim(), "256000 bytes came back");
    // Every message is written on one side and on the other.
    assert!(story.run.count_of("write") + story.run.count_of("splice") >= 8000);
    story.run.call("fsync").calls(8).errors(0);
    story.all_of_class("fsync", "disk");
    // Go asks the network poller before it lets a thread sleep.
    assert!(
        story.labelled("epoll_pwait", "epoll").count > 0,
        "{:#}",
        story.run.report["sleeps"]
    );
    assert!(
        story.labelled("futex", "futex").count > 0,
        "{:#}",
        story.run.report["sleeps"]
    );
    let threads = story.run.threads("echo").len();
    assert!((3..64).contains(&threads), "{threads} threads");

    Debox::bare(["run", "--tap", "user", "--"])
        .options(&command)
        .finish()
        .refuses_the_user_tap();
}

/// A refusal in words, for programs that have no dynamic linker to load the tap.
pub trait Refusal {
    fn refuses_the_user_tap(self);
}

impl Refusal for debox_tests::Finished {
    #[track_caller]
    fn refuses_the_user_tap(self) {
        assert_eq!(self.stdout, "", "the program ran although it was refused");
        self.code(125).says(&["--tap kernel"]);
    }
}
