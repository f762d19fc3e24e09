// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records of a client's calls, until the client fetches them.
//!
//! They wait in the kernel, in a ring buffer that only the broker reads, until the client asks for them. What does not
//! fit there is lost, and counted. The client does not get the buffer itself: on some kernels, a process that can write the
//! consumer's position can make the kernel overwrite records that probes are about to complete (CVE-2024-41009).

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use anyhow::{bail, Result};
use libbpf_rs::RingBuffer;

use crate::broker::protocol::RECORDS_AT_ONCE;
use crate::broker::record_data::RecordPart;
use crate::kept::Kept;
use crate::session::Session;
use crate::tables::types;

/// The most bytes of records that may wait, and the fewest.
const WAITING: std::ops::RangeInclusive<u32> = 1 << 16..=16 << 20;

/// How many bytes of records may wait in a session that asks for this many; 0: it keeps no records.
pub(super) fn granted(asked: u32) -> u32 {
    match asked {
        0 => 0,
        _ => asked
            .clamp(*WAITING.start(), *WAITING.end())
            .next_power_of_two(),
    }
}

/// The records that have not been fetched.
pub(super) struct Records {
    ring: RingBuffer<'static>,
    arrived: Rc<RefCell<Vec<RecordPart>>>,
}

/// What was seen at the end of the monitoring.
pub(super) struct Stopped {
    pub at_ns: u64,
    pub tasks: HashMap<u32, types::in_flight>,
}

impl Records {
    /// `None` if the session keeps no records.
    pub fn of(session: &Session) -> Result<Option<Records>> {
        if session.options().history_bytes == 0 {
            return Ok(None);
        }
        let arrived = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&arrived);
        let ring = session.receive_records(move |bytes| {
            let part = Kept::read(bytes).and_then(|kept| RecordPart::of(&kept));
            sink.borrow_mut().extend(part);
        })?;
        Ok(Some(Records { ring, arrived }))
    }

    /// The oldest ones, and whether there are more.
    pub fn take(&self) -> Result<(Vec<RecordPart>, bool)> {
        let came = self.ring.consume_raw_n(RECORDS_AT_ONCE);
        if came < 0 {
            bail!(
                "cannot read the records: {}",
                std::io::Error::from_raw_os_error(-came)
            );
        }
        let parts = std::mem::take(&mut *self.arrived.borrow_mut());
        Ok((parts, came as usize >= RECORDS_AT_ONCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_wait_is_limited() {
        assert_eq!(granted(0), 0);
        assert_eq!(granted(1), 1 << 16);
        assert_eq!(granted(100_000), 1 << 17);
        assert_eq!(granted(u32::MAX), 16 << 20);
    }
}
