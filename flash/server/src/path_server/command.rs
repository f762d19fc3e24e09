// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flash path-server`.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use kit_console::{say, Allowed};
use nix::sys::signal::{SigSet, Signal};

use super::{PathServer, Plan};
use crate::plan::HELPERS;
use crate::user::{self, Identity};

/// Options of `flash path-server`.
#[derive(Args)]
pub struct PathServerOptions {
    /// Socket to listen at; a file that must not exist, unless it is the socket of a path server that has ended
    #[arg(long, value_name = "unix:PATH", value_parser = socket)]
    listen: PathBuf,
    /// Directory below which files are opened, as clients name it; can be given more than once
    #[arg(long, value_name = "DIR", required = true)]
    root: Vec<PathBuf>,
    /// User, and group, whose rights the path server has: those of its clients. For a start as root
    #[arg(long, value_name = "NAME[:GROUP]")]
    user: Option<Identity>,
    /// Threads that may wait for a disk, at most, for each device
    #[arg(long, value_name = "N", default_value_t = HELPERS as u16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    helpers: u16,
    /// Names kept open, so that their inodes stay in memory; 30 to 60 s since the disk brought them, and 0 for none
    #[arg(long, value_name = "N", default_value_t = 4096)]
    keep: u32,
    /// Serve counters in the format of Prometheus at this address, as /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Do not limit the threads to the files and system calls that they need
    #[arg(long)]
    no_sandbox: bool,
}

fn socket(text: &str) -> Result<PathBuf, String> {
    match text.strip_prefix("unix:") {
        Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => Err("it is written as unix:/run/flash-paths.sock".to_string()),
    }
}

/// # Errors
///
/// It cannot start, or its loop has failed.
pub fn run(options: PathServerOptions) -> Result<()> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
        .into_iter()
        .collect();
    // Before any other thread starts, so none of them takes one.
    signals.thread_block().context("cannot block signals")?;
    let listen = options.listen.clone();
    let server = PathServer::start(Plan {
        listen: options.listen,
        roots: options.root,
        user: options.user,
        helpers: usize::from(options.helpers),
        keep: options.keep as usize,
        metrics: options.metrics,
        is_sandboxed: !options.no_sandbox,
    })?;
    if user::is_root() {
        say!("runs as root, so it answers root only: --user NAME makes it the user of its clients");
    }
    kit_console::print(Allowed::Text, |out| {
        writeln!(out, "answering at unix:{}", listen.display())?;
        if let Some(address) = server.metrics() {
            writeln!(out, "counters at http://{address}/metrics")?;
        }
        writeln!(out, "sandbox: {}", server.sandbox())
    })?;
    while signals.wait().context("cannot wait for signals")? == Signal::SIGHUP {
        server.forget();
    }
    server.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_an_absolute_path() {
        assert_eq!(socket("unix:/run/a"), Ok(PathBuf::from("/run/a")));
        for wrong in ["/run/a", "unix:a", "unix:", "127.0.0.1:1"] {
            socket(wrong).expect_err(wrong);
        }
    }
}
