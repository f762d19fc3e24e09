// SPDX-License-Identifier: MIT OR Apache-2.0
//! An account of CPU time by somebody else: the kernel's `getrusage`, asked by the program in
//! `bin/account.rs` around the one that is measured.

use std::ffi::OsString;
use std::path::PathBuf;

/// The account of one run, to be read after it.
#[derive(Debug)]
pub struct Account {
    file: PathBuf,
}

/// What the kernel says of a program and all children it waited for.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    pub cpu_ns: u64,
    /// How often its threads left a CPU.
    pub switches: u64,
}

impl Account {
    /// The name under which the accountant appears among the threads.
    pub const COMM: &str = "account";

    /// The account will be kept in `file`.
    pub fn new(file: PathBuf) -> Self {
        Self { file }
    }

    /// The command line that runs `command` and keeps its account.
    #[track_caller]
    pub fn wrap(&self, command: &[OsString]) -> Vec<OsString> {
        let own = std::env::current_exe().expect("a test program knows its own path");
        // target/PROFILE/deps/NAME
        let accountant = own
            .ancestors()
            .nth(2)
            .expect("cargo's layout")
            .join(Self::COMM);
        [accountant.into(), self.file.clone().into()]
            .into_iter()
            .chain(command.to_vec())
            .collect()
    }

    /// Reads the account.
    #[track_caller]
    pub fn read(&self) -> Known {
        let text = std::fs::read_to_string(&self.file)
            .unwrap_or_else(|error| panic!("no account at {}: {error}", self.file.display()));
        let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>());
        match (numbers.next(), numbers.next()) {
            (Some(Ok(us)), Some(Ok(switches))) => Known {
                cpu_ns: us * 1000,
                switches,
            },
            _ => panic!("no account in `{text}`"),
        }
    }
}
