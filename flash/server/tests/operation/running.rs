// SPDX-License-Identifier: MIT OR Apache-2.0
//! A `flash run` with its directory.

#[path = "../started/mod.rs"]
mod started;

use std::fs;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use tempfile::TempDir;

use started::Started;
pub use started::{connect, get, wait_until, FLASH, PATIENCE};

/// A directory that everybody may read, with two roots.
pub struct Place(TempDir);

impl Place {
    pub fn new(config: &str) -> Place {
        let place = Place(tempfile::tempdir().expect("a directory"));
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.path(), open).expect("it is ours");
        for name in ["a", "b", "logs"] {
            fs::create_dir(place.at(name)).expect("room");
            fs::write(place.at(name).join("index.html"), format!("of {name}\n")).expect("room");
        }
        fs::write(place.at("a/big"), big()).expect("room");
        place.configure(config);
        place
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Replaces the configuration in one step, as an editor does.
    pub fn configure(&self, config: &str) {
        fs::write(self.at("new"), config).expect("room");
        fs::rename(self.at("new"), self.at("flash.toml")).expect("room");
    }
}

/// `flash run`.
pub fn command(place: &Place) -> Command {
    let mut command = Command::new(FLASH);
    command.arg("run").arg(place.at("flash.toml"));
    command
}

/// What it says when it cannot start.
#[track_caller]
pub fn refusal(mut command: Command) -> String {
    let output = command.output().expect("it can be executed");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn big() -> Vec<u8> {
    (0..8_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

pub struct Running(Started);

impl Running {
    #[track_caller]
    pub fn start(place: &Place) -> Running {
        Running::start_as(command(place))
    }

    /// Starts a command that becomes flash.
    #[track_caller]
    pub fn start_as(command: Command) -> Running {
        Running(Started::start(command))
    }

    /// Loads the configuration again, and waits until that is done or refused.
    pub fn reload(&self) {
        let tries =
            || self.count("flash_reloads_total") + self.count("flash_reloads_refused_total");
        let before = tries();
        self.signal(nix::sys::signal::Signal::SIGHUP);
        wait_until("a reload", || tries() > before);
    }

    pub fn has_landlock(&self) -> bool {
        self.said.iter().any(|line| line.contains("Landlock: on"))
    }

    /// Ends it, and returns what it has said to standard error.
    pub fn end(self) -> (ExitStatus, String) {
        self.0.end()
    }
}

impl Deref for Running {
    type Target = Started;

    fn deref(&self) -> &Started {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Started {
        &mut self.0
    }
}
