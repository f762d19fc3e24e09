// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes, by their numbers. The crate `procfs` parses; here is what the systems ask of it.

pub mod pidfd;

use std::fs;

pub use procfs::process::Stat;
use procfs::process::{FDTarget, Process};

/// The numbers of all processes that are visible.
pub fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// /proc/PID/stat. `None`: there is no such process. It may have ended, without having been waited for.
pub fn stat(pid: u32) -> Option<Stat> {
    process(pid)?.stat().ok()
}

/// As [`stat`], of a process that has not ended.
pub fn running(pid: u32) -> Option<Stat> {
    stat(pid).filter(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// The inodes of the sockets that a process has open; empty if the caller may not see them.
pub fn sockets(pid: u32) -> Vec<u64> {
    let descriptors = process(pid).and_then(|process| process.fd().ok());
    let descriptors = descriptors.into_iter().flatten().flatten();
    descriptors
        .filter_map(|descriptor| match descriptor.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        })
        .collect()
}

/// Nanoseconds on a CPU and nanoseconds of waiting for one, of a process's main thread. `None`: there is no such
/// process, or the kernel does not count.
pub fn scheduled_ns(pid: u32) -> Option<(u64, u64)> {
    let counted = process(pid)?.schedstat().ok()?;
    Some((counted.sum_exec_runtime, counted.run_delay))
}

fn process(pid: u32) -> Option<Process> {
    Process::new(i32::try_from(pid).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn this_process_is_found_and_runs() {
        let own = std::process::id();
        assert!(pids().any(|pid| pid == own));
        let stat = running(own).expect("this process");
        assert_eq!(stat.pid as u32, own);
        assert!(running(0).is_none());
        assert!(running(u32::MAX).is_none());
        assert!(scheduled_ns(own).is_none_or(|(on_cpu, _)| on_cpu > 0));
    }

    #[test]
    fn names_with_parentheses_are_read_whole() {
        let set = "echo -n 'a) (b' >/proc/$$/comm && echo ready && read line";
        let mut shell = Command::new("/bin/sh")
            .args(["-c", set])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut ready = [0; 6];
        let output = shell.stdout.as_mut().expect("a pipe");
        std::io::Read::read_exact(output, &mut ready).expect("it is ready");
        let stat = running(shell.id()).expect("it runs");
        assert_eq!(
            (stat.comm.as_str(), stat.ppid as u32),
            ("a) (b", std::process::id())
        );
        shell.kill().expect("it is there");
        // Without being waited for, it has ended and still has its number.
        while running(shell.id()).is_some() {
            std::thread::yield_now();
        }
        assert!(stat_is_left(shell.id()));
        shell.wait().expect("it has ended");
        assert!(!stat_is_left(shell.id()));
    }

    fn stat_is_left(pid: u32) -> bool {
        stat(pid).is_some()
    }

    #[test]
    fn open_sockets_have_their_inodes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let link = format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&listener)
        );
        let inode = fs::metadata(link).expect("it is open").ino();
        assert!(sockets(std::process::id()).contains(&inode));
    }
}
