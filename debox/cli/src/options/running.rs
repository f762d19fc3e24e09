//! Which processes are meant, of those that run already.

use anyhow::Result;
use clap::Args;

#[derive(Args)]
pub struct Running {
    /// The processes to monitor, as in 12,34 or -p 12 -p 34: all their threads, all processes that descend
    /// from them, and what these start from now on
    #[arg(
        short,
        long,
        value_name = "PID",
        required = true,
        value_delimiter = ','
    )]
    pub pid: Vec<u32>,
    /// Monitor the named processes alone, without their children
    #[arg(long)]
    pub only: bool,
}

impl Running {
    pub fn require(&self) -> Result<()> {
        require(&self.pid)
    }
}

/// Fails, in words, unless all of them can be monitored.
pub fn require(pids: &[u32]) -> Result<()> {
    pids.iter()
        .try_for_each(|pid| debox::kernel::require_process(*pid))
}
