// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs that tell of arrivals, as the build made them.
#![allow(clippy::all, unused_imports)]

include!(concat!(env!("OUT_DIR"), "/arrivals.skel.rs"));
