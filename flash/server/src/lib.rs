//! `flash`: a web server whose event loops wait for events, and for nothing else.
//!
//! A loop opens a name with `openat2(RESOLVE_CACHED)`, which answers from the kernel's caches or not at all, and sends
//! bytes that it knows to be in memory. Whatever would wait for a disk is a helper's work.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod access;
mod answer;
mod candidates;
pub mod config;
mod connection;
pub mod context;
mod counts;
mod event_loop;
mod files;
mod helpers;
pub mod http;
mod listing;
mod log;
mod meter;
mod pace;
mod residency;
pub mod sandbox;
mod sending;
pub mod server;
pub mod sites;
pub mod tls;
mod transport;
pub mod types;
pub mod user;
