// SPDX-License-Identifier: MIT OR Apache-2.0
//! What sleeps waited for, roughly.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What kind of thing a sleep waited for. `debox/labels/primitives.toml` says what each one means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Idle,
    Disk,
    Lock,
    Memory,
    Cpu,
    Network,
    Process,
    Other,
}

impl Class {
    pub const ALL: [Class; 8] = [
        Class::Idle,
        Class::Disk,
        Class::Lock,
        Class::Memory,
        Class::Cpu,
        Class::Network,
        Class::Process,
        Class::Other,
    ];

    /// The class as it is written in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Idle => "idle",
            Class::Disk => "disk",
            Class::Lock => "lock",
            Class::Memory => "memory",
            Class::Cpu => "cpu",
            Class::Network => "network",
            Class::Process => "process",
            Class::Other => "other",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}
