//! `debox-floor EVENTS -- COMMAND...`: runs a command while empty programs are attached to events.
//!
//! The command's additional time is the machine's own cost of the events, whatever a tool does with
//! them. `calls`: entry and exit of system calls; `clock`: the same, with a clock reading at each;
//! `switches`: context switches and wake-ups of tasks.

use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

use anyhow::{bail, Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

#[allow(clippy::all, unused_imports)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/floor.skel.rs"));
}

const USAGE: &str = "usage: debox-floor calls|clock|switches -- COMMAND...";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [events, dashes, command, rest @ ..] = arguments.as_slice() else {
        bail!(USAGE);
    };
    if dashes != "--" {
        bail!(USAGE);
    }
    let mut object = MaybeUninit::uninit();
    let open = skeleton::FloorSkelBuilder::default().open(&mut object)?;
    let mut skel = open.load().context("the kernel refused the programs")?;
    let progs = &mut skel.progs;
    let wanted = match events.as_str() {
        "calls" => [&mut progs.exit_nothing, &mut progs.enter_nothing],
        "clock" => [&mut progs.exit_clock, &mut progs.enter_clock],
        "switches" => [&mut progs.switch_nothing, &mut progs.waking_nothing],
        _ => bail!(USAGE),
    };
    let mut links = Vec::new();
    for prog in wanted {
        links.push(prog.attach().context("cannot attach a program")?);
    }
    let status = Command::new(command)
        .args(rest)
        .status()
        .with_context(|| format!("cannot run {command}"))?;
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(code as u8))
}
