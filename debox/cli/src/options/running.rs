// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that name processes that are already running.

use std::path::PathBuf;

use clap::Args;
use debox::targets::Target;

/// The id of the group of these options, for those that need or exclude it.
pub const TARGETS: &str = "Targets";

/// These options.
pub const TARGET_NAMES: [&str; 7] = ["pid", "comm", "user", "cgroup", "unit", "container", "all"];

#[derive(Args)]
#[group(multiple = true)]
pub struct Targets {
    /// Monitor these processes, such as 12,34 or -p 12 -p 34: all their threads, all their descendants, and all
    /// processes that these start from now on
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Monitor all processes of this name (as in `ps -e -o comm`), and those that get it later
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub comm: Vec<String>,
    /// Monitor all processes of this user, by name or number
    #[arg(long, value_name = "USER", value_delimiter = ',')]
    pub user: Vec<String>,
    /// Monitor all processes in this control group and below it, and those that join later: a directory, or a path
    /// such as /system.slice/nginx.service
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<PathBuf>,
    /// Monitor all processes of this systemd unit, such as nginx.service or nginx
    #[arg(long, value_name = "UNIT")]
    pub unit: Vec<String>,
    /// Monitor all processes of this container or pod, by its id (at least 4 digits) or name: Docker, Podman,
    /// containerd, CRI-O, Kubernetes, LXC, systemd-nspawn
    #[arg(long, value_name = "ID|NAME")]
    pub container: Vec<String>,
    /// Monitor all processes of the machine. What this costs is printed first
    #[arg(long)]
    pub all: bool,
}

impl Targets {
    pub fn list(&self) -> Vec<Target> {
        let mut list: Vec<Target> = self.pid.iter().map(|pid| Target::Process(*pid)).collect();
        list.extend(self.comm.iter().cloned().map(Target::Comm));
        list.extend(self.user.iter().cloned().map(Target::User));
        list.extend(self.cgroup.iter().cloned().map(Target::Cgroup));
        list.extend(self.unit.iter().cloned().map(Target::Unit));
        list.extend(self.container.iter().cloned().map(Target::Container));
        list.extend(self.all.then_some(Target::All));
        list
    }

    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }
}
