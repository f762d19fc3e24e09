//! `debox broker`: serves programs without privilege.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use debox::broker::{self, Broker as Server};

use crate::options::Broker;

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

pub fn broker(arguments: Broker) -> Result<u8> {
    let handler = stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler only stores to an atomic. Without SA_RESTART the wait ends.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut());
        libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut());
    }
    let mut server = Server::start(&broker::Options {
        socket: arguments.socket.clone(),
        limits: arguments.limits(),
        subordinates: arguments.subordinates.clone(),
    })?;
    kit_console::say!("debox broker: listening at {}", arguments.socket.display());
    server.serve(&STOP)?;
    Ok(0)
}
