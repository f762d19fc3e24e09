// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread that fails takes the server with it: a server with fewer loops or helpers would look well and leave a part of its
//! clients without an answer.

use rustix::process::{getpid, kill_process, Signal};

pub fn end_the_server() {
    let _ = kill_process(getpid(), Signal::TERM);
}

/// Ends the server when its thread panics.
pub struct PanicGuard;

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            end_the_server();
        }
    }
}
