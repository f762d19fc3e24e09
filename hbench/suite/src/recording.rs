// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a command: alone, which shows what it takes, and under `debox record`, which shows what it does.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use hbench::signals::interrupted;
use hbench_results::application::Run;
use kit_proc::pidfd;

/// Lines of what a failed recorder said.
const SAID_MAX: usize = 3;
/// How often signals are looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Where the recorder is: as named, beside this program, or in PATH.
///
/// # Errors
///
/// It is nowhere.
pub fn find_debox(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = named {
        ensure!(is_program(path), "{} is no program", path.display());
        return Ok(path.to_path_buf());
    }
    let own = std::env::current_exe().ok();
    let beside = own.map(|own| own.with_file_name("debox"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|directory| directory.join("debox"));
    let found = beside
        .into_iter()
        .chain(in_path)
        .find(|path| is_program(path));
    found.context(
        "debox is missing, which records what a command does: build it with `cargo build --release --package debox-cli`, \
         or name it with --debox",
    )
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Runs the command to its end. `shows_errors`: to this program's standard error.
///
/// # Errors
///
/// It cannot be started, fails, or was interrupted.
pub fn run(command: &[OsString], shows_errors: bool) -> Result<Run> {
    let (program, arguments) = command.split_first().context("no command was named")?;
    let name = || program.to_string_lossy().into_owned();
    let errors = match shows_errors {
        true => Stdio::inherit(),
        false => Stdio::null(),
    };
    let start = Instant::now();
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .with_context(|| format!("cannot start {}", name()))?;
    let pid = i32::try_from(child.id()).context("a process id is too large")?;
    wait_for_end(child.id());
    let (status, usage) = wait(pid).with_context(|| format!("cannot wait for {}", name()))?;
    let elapsed = start.elapsed();
    ensure!(!interrupted(), "interrupted: there is no vector");
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0 {
        let how = match libc::WIFSIGNALED(status) {
            true => format!("was ended by signal {}", libc::WTERMSIG(status)),
            false => format!("ended with status {}", libc::WEXITSTATUS(status)),
        };
        bail!("{} {how}: a vector is made of runs that succeed", name());
    }
    let ns = |time: libc::timeval| {
        let (seconds, micros) = (time.tv_sec.max(0) as u64, time.tv_usec.max(0) as u64);
        seconds * 1_000_000_000 + micros * 1000
    };
    let count = |number: libc::c_long| u64::try_from(number).unwrap_or(0);
    Ok(Run {
        elapsed_ns: u64::try_from(elapsed.as_nanos())?.max(1),
        cpu_ns: (ns(usage.ru_utime) + ns(usage.ru_stime)).max(1),
        faults_minor: count(usage.ru_minflt),
        faults_major: count(usage.ru_majflt),
    })
}

/// Waits until a child has ended. A signal that only this process got is passed on. Does nothing where the kernel has no
/// descriptors of processes.
fn wait_for_end(pid: u32) {
    let Ok(process) = pidfd::open(pid) else {
        return;
    };
    let mut is_told = false;
    while !pidfd::ends_within(process.as_fd(), LOOK) {
        if interrupted() && !is_told {
            is_told = true;
            pidfd::ask_to_end(process.as_fd());
        }
    }
}

/// The exit status of a child, and what it and its own children used.
fn wait(pid: i32) -> io::Result<(i32, libc::rusage)> {
    loop {
        // SAFETY: all fields of rusage may be zero; the kernel writes no more than an int and an rusage.
        let (done, status, usage) = unsafe {
            let (mut status, mut usage) = (0, std::mem::zeroed());
            (libc::wait4(pid, &mut status, 0, &mut usage), status, usage)
        };
        if done == pid {
            return Ok((status, usage));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Records the command to a file.
///
/// # Errors
///
/// The recorder may not record, or the command fails.
pub fn record(debox: &Path, command: &[OsString], to: &Path) -> Result<()> {
    let words: Vec<&OsStr> = vec![
        "record".as_ref(),
        // Stacks are not read.
        "--stacks-from".as_ref(),
        "1h".as_ref(),
        "-o".as_ref(),
        to.as_os_str(),
        "--".as_ref(),
    ];
    let mut child = Command::new(debox)
        .args(words)
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", debox.display()))?;
    let errors = child.stderr.take();
    let said = std::thread::spawn(move || {
        let mut said = Vec::new();
        if let Some(mut errors) = errors {
            let _ = errors.read_to_end(&mut said);
        }
        said
    });
    wait_for_end(child.id());
    let status = child.wait();
    let status = status.with_context(|| format!("cannot wait for {}", debox.display()))?;
    ensure!(!interrupted(), "interrupted: there is no vector");
    if !status.success() {
        let said = said.join().unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let said: Vec<&str> = said.lines().take(SAID_MAX).collect();
        bail!(
            "`debox record` cannot record the command: {}",
            kit_console::printable(&said.join("; "))
        );
    }
    Ok(())
}

/// Makes so many calls that do nothing.
pub fn call(count: u32) {
    for _ in 0..count {
        // SAFETY: no memory is passed. Not getppid(): a C library might remember the answer.
        std::hint::black_box(unsafe { libc::syscall(libc::SYS_getppid) });
    }
}
