// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whom a session monitors, as people name it: processes, names, users, control groups, units, containers, the
//! whole machine. [`Members`] finds the processes, and those that come later.

mod arrivals;
mod containers;
mod groups;
mod left_out;
mod members;
mod places;
mod process;
mod rules;
mod spared;

pub(crate) use arrivals::try_arrivals;
pub use containers::container_of;
pub(crate) use left_out::LeftOut;
pub use members::{Joined, Members};
pub use places::{inner_pid, place_of};
pub(crate) use spared::{is_own, is_spared};

use std::path::PathBuf;

/// What is to be monitored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A process, by its id.
    Process(u32),
    /// All processes of this name (`/proc/PID/comm`).
    Comm(String),
    /// All processes of a user, by name or number.
    User(String),
    /// All processes in a control group and the groups below it: a directory, or a path within a hierarchy.
    Cgroup(PathBuf),
    /// All processes of a systemd unit.
    Unit(String),
    /// All processes of a container or pod, by id or name.
    Container(String),
    /// All processes of the machine.
    All,
}

impl Target {
    fn is_container(&self) -> bool {
        matches!(self, Target::Container(_))
    }
}
