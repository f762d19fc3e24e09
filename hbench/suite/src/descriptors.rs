// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many descriptors, of which the last is ready.

use std::io;

use crate::benchmark::{verify, Available, Failure};
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

#[inline(always)]
pub fn one_is_ready(ready: io::Result<usize>) -> Result<(), Failure> {
    let ready = ready.available("ask what is ready")?;
    verify(ready == 1, || format!("{ready} descriptors are ready"))
}
