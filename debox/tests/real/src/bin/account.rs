// SPDX-License-Identifier: MIT OR Apache-2.0
//! `account FILE CMD...` runs a command and writes to FILE what the kernel says that it took, with
//! all children it waited for: CPU time in microseconds, and how often it left a CPU.
//!
//! The command has the output, the signals' effects and the exit status that it has without.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let [_, file, command, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: account FILE CMD...");
        return ExitCode::from(2);
    };
    let status = match Command::new(command).args(rest).status() {
        Ok(status) => status,
        Err(error) => {
            eprintln!("account: {}: {error}", command.to_string_lossy());
            return ExitCode::from(127);
        }
    };
    // SAFETY: all-zero is a valid rusage, which getrusage fills in.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writing.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    let us = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
    let cpu = us(usage.ru_utime) + us(usage.ru_stime);
    let text = format!("{cpu} {}\n", usage.ru_nvcsw + usage.ru_nivcsw);
    if let Err(error) = std::fs::write(file, text) {
        eprintln!("account: {}: {error}", file.to_string_lossy());
        return ExitCode::FAILURE;
    }
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(code as u8)
}
