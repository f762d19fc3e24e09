// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flash`: a web server whose event loops wait for events, and for nothing else.
//!
//! A loop opens a name with `openat2(RESOLVE_CACHED)`, which answers from the kernel's caches or not at all, and sends
//! bytes that it knows to be in memory. Whatever would wait for a disk is a helper's work.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod access;
pub mod address;
mod answer;
mod candidates;
pub mod check;
mod companions;
pub mod config;
mod connection;
mod contents;
pub mod context;
pub mod control;
mod counts;
mod descriptors;
mod ending;
mod event_loop;
mod files;
mod generation;
mod handover;
mod helpers;
mod histogram;
pub mod http;
pub mod huge_pages;
mod kept;
mod limits;
mod listing;
pub mod log;
mod mapping;
mod meter;
mod network;
pub mod nginx;
mod pace;
pub mod path_server;
mod plan;
mod ports;
mod residency;
pub mod sandbox;
mod sending;
pub mod server;
pub mod sites;
pub mod stages;
mod status;
pub mod systemd;
mod tally;
mod template;
pub mod tls;
mod transport;
pub mod types;
pub mod unix;
pub mod upstream;
pub mod user;
