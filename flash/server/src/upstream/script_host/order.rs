// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is needed to start a script, as a loop writes it (`scripts::Options::order`).

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

pub struct Order {
    pub time: Duration,
    pub root: PathBuf,
    /// The location's path.
    pub location: Vec<u8>,
    pub path: Vec<u8>,
    pub variables: Vec<Vec<u8>>,
    pub input: OwnedFd,
    pub output: OwnedFd,
    pub life: OwnedFd,
}

impl Order {
    /// # Errors
    ///
    /// It is none.
    pub fn read(bytes: &[u8], [input, output, life]: [OwnedFd; 3]) -> Result<Order> {
        let (time, rest) = bytes
            .split_first_chunk::<4>()
            .context("an order without a time")?;
        let mut parts = rest.split(|byte| *byte == 0).map(<[u8]>::to_vec);
        let mut next = || parts.next().context("an order that is cut off");
        let (root, location, path) = (next()?, next()?, next()?);
        Ok(Order {
            time: Duration::from_millis(u64::from(u32::from_le_bytes(*time))),
            root: PathBuf::from(OsStr::from_bytes(&root)),
            location,
            path,
            variables: parts.filter(|part| !part.is_empty()).collect(),
            input,
            output,
            life,
        })
    }
}
