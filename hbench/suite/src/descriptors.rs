// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many descriptors, of which the last is ready.

use std::io::{self, Write};
use std::net::TcpStream;

use crate::benchmark::{verify, Available, Failure};
use crate::stream;
use crate::sys::EventFd;

pub fn events(variant: &str) -> Result<Vec<EventFd>, Failure> {
    let count = variant.parse().unwrap_or(0);
    let events: io::Result<Vec<EventFd>> = (0..count).map(|_| EventFd::new()).collect();
    let events = events.available("eventfd")?;
    if let Some(last) = events.last() {
        last.add().available("write to an eventfd")?;
    }
    Ok(events)
}

/// Descriptors of TCP connections, of which the last has data.
#[derive(Debug)]
pub struct Connections {
    pub own: Vec<TcpStream>,
    /// They keep the connections open.
    _others: [TcpStream; 2],
}

impl Connections {
    pub fn new(count: &str) -> Result<Connections, Failure> {
        let count: usize = count.parse().unwrap_or(1);
        let (idle, idle_other) = stream::tcp_pair()?;
        let (last, mut last_other) = stream::tcp_pair()?;
        last_other.write_all(&[1]).available("write")?;
        // A network stack may deliver it later.
        last.peek(&mut [0]).available("receive")?;
        // All but one may be descriptors of one connection: the kernel asks each.
        let idle = (1..count).map(|_| idle.try_clone());
        let own: io::Result<Vec<TcpStream>> = idle.chain([Ok(last)]).collect();
        Ok(Connections {
            own: own.available("dup")?,
            _others: [idle_other, last_other],
        })
    }
}

#[inline(always)]
pub fn one_is_ready(ready: io::Result<usize>) -> Result<(), Failure> {
    let ready = ready.available("ask what is ready")?;
    verify(ready == 1, || format!("{ready} descriptors are ready"))
}
