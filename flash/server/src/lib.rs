//! `flash`: a web server whose event loops wait for events, and for nothing else.
//!
//! A loop opens a name with `openat2(RESOLVE_CACHED)`, which answers from the kernel's caches or not at all, and sends
//! bytes that it knows to be in memory. Whatever would wait for a disk is a helper's work.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod answer;
mod candidates;
pub mod config;
mod connection;
pub mod context;
pub mod control;
mod counts;
mod event_loop;
mod files;
mod generation;
mod handover;
mod helpers;
pub mod http;
mod limits;
mod listing;
mod log;
mod pace;
mod ports;
mod residency;
pub mod sandbox;
mod sending;
pub mod server;
pub mod sites;
pub mod tls;
mod transport;
pub mod user;
