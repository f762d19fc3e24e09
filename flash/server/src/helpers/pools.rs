// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pool of helpers for each device, so a device that does not answer keeps no helper from the others.

use std::net::IpAddr;
use std::sync::Arc;

use super::windows::Windows;
use super::{Device, Job, Pool, Work};

/// Devices with pools of their own. Those of further roots share one pair of pools.
pub const MAX_DEVICES: usize = 8;

const OTHERS: &str = "other";

/// The helpers of one device.
pub struct Pair {
    /// As in the metrics: `8:1`, or `other`.
    pub device: String,
    pub names: Arc<Pool>,
    /// For lookups beyond their clients' windows, as those of scanners.
    pub missing: Arc<Pool>,
}

pub struct Pools {
    of_devices: Vec<(u64, Pair)>,
    /// Of what is mounted below a root, and of the roots beyond [`MAX_DEVICES`].
    others: Pair,
    windows: Arc<Windows>,
}

/// Who asks for a name.
#[derive(Clone, Copy, Default)]
pub struct Origin {
    pub peer: Option<IpAddr>,
    /// So many of the names are what it asks for, and those behind them answer for what does not exist.
    pub asked: usize,
    /// The last name that helpers looked up for its connection was found. So a connection through a proxy, which has one
    /// address for all its clients, is not taken for that of a scanner.
    pub has_found: bool,
}

impl Pools {
    /// `devices`: of the roots. `start` makes a pool: of which device, whether it is for names that are missing, and what it
    /// waits for.
    ///
    /// # Errors
    ///
    /// A pool cannot be started.
    pub fn start<E>(
        devices: impl IntoIterator<Item = u64>,
        mut start: impl FnMut(&str, bool, Device) -> Result<Arc<Pool>, E>,
    ) -> Result<Pools, E> {
        let others = Pair {
            device: OTHERS.to_string(),
            names: start(OTHERS, false, Device::default())?,
            missing: start(OTHERS, true, Device::default())?,
        };
        let mut pools = Pools {
            of_devices: Vec::new(),
            others,
            windows: Arc::default(),
        };
        for device in devices {
            let is_known = pools.of_devices.iter().any(|(its, _)| *its == device);
            if is_known || pools.of_devices.len() == MAX_DEVICES {
                continue;
            }
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            let name = format!("{major}:{minor}");
            // Both wait for the same device, so they take turns with each other.
            let turns = Some(Arc::default());
            let of = |elsewhere: &Arc<Pool>, line| Device {
                elsewhere: Some(Arc::clone(elsewhere)),
                turns: turns.clone(),
                line,
            };
            let pair = Pair {
                names: start(&name, false, of(&pools.others.names, 0))?,
                missing: start(&name, true, of(&pools.others.missing, 1))?,
                device: name,
            };
            pools.of_devices.push((device, pair));
        }
        Ok(pools)
    }

    pub fn end(&self) {
        for pair in self.all() {
            pair.names.end();
            pair.missing.end();
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Pair> {
        let own = self.of_devices.iter().map(|(_, pair)| pair);
        own.chain([&self.others])
    }

    /// False: the queue is full.
    pub fn submit(&self, job: Job, origin: Origin) -> bool {
        let Some(device) = job.work.device() else {
            return false;
        };
        let own = self.of_devices.iter().find(|(its, _)| *its == device);
        let pair = own.map_or(&self.others, |(_, pair)| pair);
        if !matches!(job.work, Work::Open { .. }) {
            return pair.names.submit(job);
        }
        let mut asker = self.windows.asker(origin.peer, origin.asked);
        let pool = match origin.has_found || asker.enter() {
            true => &pair.names,
            false => &pair.missing,
        };
        pool.submit_for(Some(asker), job)
    }
}
