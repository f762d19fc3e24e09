// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probes, as the build made them.
#![allow(clippy::all, unused_imports)]

include!(concat!(env!("OUT_DIR"), "/debox.skel.rs"));
