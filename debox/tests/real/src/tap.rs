// SPDX-License-Identifier: MIT OR Apache-2.0
//! The taps that a program is tried under, and a program under one of them.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::sync::OnceLock;

use debox_tests::skipped;
use debox_tests::Debox;
use debox_tests::Running;
use debox_tests::Scratch;
use debox_tests::HIDDEN_SWITCHES_ATTEMPTS;

use crate::Account;
use crate::Story;

/// How calls are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tap {
    Kernel,
    User,
}

impl Tap {
    /// The option's value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }

    /// Whether this tap works here; says that `test` was skipped if not.
    pub fn works(self, test: &str) -> bool {
        static USER_TAP: OnceLock<bool> = OnceLock::new();

        let works = self == Self::Kernel || *USER_TAP.get_or_init(user_tap_sees_calls);
        if !works {
            skipped(
                &format!("{test} --tap user"),
                "the user tap sees no calls in this build",
            );
        }
        works
    }

    /// Starts a program under this tap.
    #[track_caller]
    pub fn start<S: AsRef<OsStr>>(self, command: &[S]) -> Measurement {
        let scratch = Scratch::new();
        let account = Account::new(scratch.file("times"));
        let command: Vec<OsString> = command
            .iter()
            .map(|word| word.as_ref().to_owned())
            .collect();
        let running = Debox::bare(["run", "--tap", self.name(), "--format", "json", "--output"])
            .options([scratch.file("report.json").as_os_str(), OsStr::new("--")])
            .options(account.wrap(&command))
            .spawn();
        Measurement {
            running,
            account,
            scratch,
        }
    }

    /// Runs a program to its end under this tap and reads the report; again if the machine hid
    /// switches, as what those were cannot be known.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(self, command: &[S]) -> Story {
        for _ in 1..HIDDEN_SWITCHES_ATTEMPTS {
            let measurement = self.start(command);
            let (story, proves_little) = measurement.finish_and_tell();
            if !proves_little {
                return story;
            }
        }
        self.start(command).finish()
    }
}

/// A program that runs under debox. Dropped before its end, it is killed.
#[derive(Debug)]
pub struct Measurement {
    running: Running,
    account: Account,
    scratch: Scratch,
}

impl Measurement {
    /// Waits for the program's end, expects success, and reads and checks the report.
    #[track_caller]
    pub fn finish(self) -> Story {
        self.finish_and_tell().0
    }

    /// The same, and whether the machine hid switches.
    #[track_caller]
    fn finish_and_tell(self) -> (Story, bool) {
        let finished = self.running.finish();
        assert!(finished.status.success(), "{finished}");
        let report = self.scratch.file("report.json");
        let proves_little = finished.proves_little(&report);
        let output = finished.stdout.clone();
        let story = Story::new(finished.measured(&report), output);
        story.cpu_is(self.account.read());
        (story, proves_little)
    }
}

/// Asks for a report of a program that is linked dynamically and makes calls that can be seen.
fn user_tap_sees_calls() -> bool {
    let scratch = Scratch::new();
    let output = scratch.file("report.json");
    let finished = Debox::bare(["run", "--tap", "user", "--format", "json", "--output"])
        .options([output.as_os_str()])
        .options(["--", "/bin/cat", "/etc/passwd"])
        .finish();
    let text = std::fs::read_to_string(output).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let rows = report["syscalls"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    finished.status.success() && rows.iter().any(|row| row["name"] == "openat")
}
