// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the probes of the call tree attached.

use std::os::fd::OwnedFd;

use libbpf_rs::Link;

/// The links and programs that keep the probes attached.
#[derive(Default)]
pub(super) struct Attached {
    pub links: Vec<Link>,
    pub descriptors: Vec<OwnedFd>,
    /// Programs loaded beside the skeleton's.
    pub programs: Vec<OwnedFd>,
}
