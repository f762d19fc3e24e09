// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locations that other programs answer: with upstreams of these tests, which do what no program should, and with real ones.

mod abuse;
mod fastcgi;
mod programs;
mod proxied;
mod scripts;
mod support;
