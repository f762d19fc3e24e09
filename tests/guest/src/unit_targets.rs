// SPDX-License-Identifier: MIT OR Apache-2.0
//! On a machine booted with systemd, whose control groups are of version 2: debox finds what runs in a unit and in a
//! container, and shows where it belongs.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use serde_json::Value;

use crate::installed::{run, PREFIX};

/// The first digits of a container's id are enough to name it.
const CONTAINER: &str = "3f2a9c1b2d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcd";
const SHORT: &str = "3f2a9c1b2d4e";
const UNIT: &str = "debox-target";

/// A sleeping program in a control group as Podman makes it, and in a PID namespace of its own.
struct Contained {
    outer: Child,
    group: PathBuf,
}

impl Contained {
    fn start() -> Result<Contained> {
        let group = PathBuf::from(format!("/sys/fs/cgroup/libpod-{CONTAINER}.scope"));
        fs::create_dir(&group).context("no control group")?;
        let members = group.join("cgroup.procs");
        let script = format!(
            "echo $$ >{} && exec unshare --pid --fork --kill-child sleep 600",
            members.display()
        );
        let outer = Command::new("sh").args(["-c", &script]).spawn()?;
        Ok(Contained { outer, group })
    }

    /// The two processes: `unshare`, and what it has started.
    fn pids(&self) -> Result<Vec<u64>> {
        for _ in 0..100 {
            let members = fs::read_to_string(self.group.join("cgroup.procs"))?;
            let pids: Vec<u64> = members.lines().filter_map(|pid| pid.parse().ok()).collect();
            if pids.len() == 2 {
                return Ok(pids);
            }
            thread::sleep(Duration::from_millis(100));
        }
        anyhow::bail!("the container does not begin")
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

fn debox(arguments: &[&str]) -> Result<String> {
    run(Command::new(format!("{PREFIX}/bin/debox")).args(arguments))
}

pub fn are_found() -> Result<String> {
    run(Command::new("systemd-run").args(["--unit", UNIT, "--quiet", "sleep", "600"]))?;
    let unit = format!("{UNIT}.service");
    let main = run(Command::new("systemctl").args(["show", "-P", "MainPID", &unit]))?;
    let main: u64 = main.trim().parse().context("no main process")?;
    let contained = Contained::start()?;
    let mut expected = contained.pids()?;
    expected.push(main);
    expected.sort_unstable();

    let report = "/tmp/targets.json";
    let targets = ["--unit", UNIT, "--container", SHORT];
    let attach = [
        "attach", "--for", "2s", "--format", "json", "--output", report,
    ];
    debox(&[&attach[..], &targets].concat())?;
    let report: Value = serde_json::from_str(&fs::read_to_string(report)?)?;
    let threads = report["threads"].as_array().context("no threads")?;
    let mut pids: Vec<u64> = threads
        .iter()
        .filter_map(|one| one["pid"].as_u64())
        .collect();
    pids.sort_unstable();
    ensure!(pids == expected, "{pids:?}, not {expected:?}");

    let looks = [
        "top",
        "--batch",
        "--format",
        "json",
        "--idle",
        "-n",
        "2",
        "--interval",
        "1s",
    ];
    let rows = |more: &[&str]| -> Result<Vec<Value>> {
        let said = debox(&[&looks[..], &targets, more].concat())?;
        let last = said
            .lines()
            .rfind(|line| line.starts_with('{'))
            .context("no look")?;
        let look: Value = serde_json::from_str(last)?;
        Ok(look["rows"].as_array().context("no rows")?.clone())
    };
    let by_unit = rows(&["--by", "unit"])?;
    for name in [unit.as_str(), SHORT] {
        let is_there = by_unit.iter().any(|row| row["name"] == name);
        ensure!(is_there, "no row {name} in {by_unit:?}");
    }
    let by_process = rows(&["--by", "process", "--inside"])?;
    let inner = by_process.iter().find(|row| row["inside"] == 1);
    let inner = inner.context("no process has the number 1 in its container")?;
    ensure!(inner["name"] == "sleep", "{inner:?}");
    run(Command::new("systemctl").args(["stop", &unit]))?;
    Ok(format!("{pids:?}"))
}
