// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a server is operated: `flash run` with a file, signals, and what it shows of itself.

mod load;
mod log;
mod reload;
mod running;
mod status;
mod systemd;
mod unix;
