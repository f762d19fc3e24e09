//! Options that name processes that are already running.

use anyhow::Result;
use clap::Args;

#[derive(Args)]
pub struct Running {
    /// The processes to monitor, such as 12,34 or -p 12 -p 34: all their threads, all their descendants,
    /// and all processes that these start from now on
    #[arg(
        short,
        long,
        value_name = "PID",
        required = true,
        value_delimiter = ','
    )]
    pub pid: Vec<u32>,
    /// Monitor only the named processes, without their children
    #[arg(long)]
    pub only: bool,
}

impl Running {
    pub fn require(&self) -> Result<()> {
        require(&self.pid)
    }
}

/// Fails, with an explanation, unless all of them can be monitored.
pub fn require(pids: &[u32]) -> Result<()> {
    pids.iter()
        .try_for_each(|pid| debox::kernel::require_process(*pid))
}
