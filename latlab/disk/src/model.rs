//! How long a request takes.

use anyhow::{ensure, Result};
use serde::{Deserialize, Serialize};

/// Requests served at the same time, at most.
pub const DEPTH_MAX: u32 = 64;

/// A disk: one queue, first in first out, with `depth` requests in service at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Service time of a request that does not begin where the last one ended.
    pub service_us: u64,
    /// Service time of a request that does.
    pub sequential_us: u64,
    /// Transfer rate, which adds time by the request's size; 0: none is added.
    pub bytes_per_second: u64,
    /// Requests in service at the same time.
    pub depth: u32,
}

impl Parameters {
    /// As fast as the machine allows.
    pub const FAST: Parameters = Parameters {
        service_us: 0,
        sequential_us: 0,
        bytes_per_second: 0,
        depth: DEPTH_MAX,
    };

    pub fn check(&self) -> Result<()> {
        ensure!(
            (1..=DEPTH_MAX).contains(&self.depth),
            "the depth is {}; it can be 1 to {DEPTH_MAX}",
            self.depth
        );
        ensure!(
            self.service_us.max(self.sequential_us) <= 60_000_000,
            "a request may take a minute at most"
        );
        Ok(())
    }

    /// The service time in nanoseconds.
    pub fn service_ns(&self, size: u32, is_sequential: bool) -> u64 {
        let seek = if is_sequential {
            self.sequential_us
        } else {
            self.service_us
        };
        let transfer = (u64::from(size) * 1_000_000_000)
            .checked_div(self.bytes_per_second)
            .unwrap_or(0);
        seek * 1000 + transfer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Parameters = Parameters {
        service_us: 5000,
        sequential_us: 100,
        bytes_per_second: 100_000_000,
        depth: 1,
    };

    #[test]
    fn a_request_takes_its_seek_and_its_transfer() {
        assert_eq!(DISK.service_ns(4096, false), 5_040_960);
        assert_eq!(DISK.service_ns(1 << 20, true), 100_000 + 10_485_760);
        assert_eq!(Parameters::FAST.service_ns(4096, false), 0);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(DISK.check().is_ok());
        assert!(Parameters { depth: 0, ..DISK }.check().is_err());
        assert!(Parameters {
            service_us: u64::MAX,
            ..DISK
        }
        .check()
        .is_err());
    }
}
