//! A program under `debox run --tap user` reads the records of that session instead of opening one of its
//! own: the preload shim is already in the process and takes the stamps.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore, MapHandle};
use nix::sys::socket::MsgFlags;

use crate::broker::{channel, has_other_rights};
use crate::record::VERSION;
use crate::usertap::Address;

/// The environment variable of the shim (`DEBOX_TAP_VARIABLE` of attach.h).
const VARIABLE: &str = "DEBOX_TAP";

const PATIENCE: Duration = Duration::from_secs(5);

/// A session that another process has open.
pub(super) struct Joined {
    /// The map of the slots.
    pub slots: OwnedFd,
    pub slot_count: usize,
    pub slots_id: u32,
    /// The session's kernel stacks, once they have been requested.
    stacks: Option<MapHandle>,
}

/// Asks the session that the environment names for its slots; `None` if there is no such session, or this
/// process is not one of its processes.
pub(super) fn find() -> Option<Joined> {
    if has_other_rights() {
        return None;
    }
    let address = Address::parse(&std::env::var(VARIABLE).ok()?)?;
    // A recording only takes the shim's stamps: its records are incomplete.
    if address.sees_calls {
        return None;
    }
    let socket = channel::connect(&address.path, PATIENCE).ok()?;
    receive(&socket, address.secret)
}

/// `struct debox_tap_welcome`, with the descriptors of slots, thread ids and rows. A peer that knows the
/// secret is the session; its user id may not be mapped here.
fn receive(socket: &OwnedFd, secret: u64) -> Option<Joined> {
    let (message, fds, _) = channel::receive_all(socket.as_fd(), 16, MsgFlags::empty()).ok()?;
    let (words, shown) = message.split_at_checked(8)?;
    let [version, slot_count] = two_words(words)?;
    let [slots, _tids, _rows] = <[OwnedFd; 3]>::try_from(fds).ok()?;
    if version != u32::from(VERSION) || shown != secret.to_ne_bytes() {
        return None;
    }
    let slots_id = super::map_id::map_id_of(slots.as_raw_fd());
    (slots_id != 0).then_some(Joined {
        slots,
        slot_count: slot_count as usize,
        slots_id,
        stacks: None,
    })
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn is_welcome(socket: &OwnedFd, secret: u64) -> bool {
    receive(socket, secret).is_some()
}

fn two_words(message: &[u8]) -> Option<[u32; 2]> {
    let (first, second) = message.split_at_checked(4)?;
    let word = |bytes: &[u8]| Some(u32::from_ne_bytes(bytes.try_into().ok()?));
    Some([word(first)?, word(second)?])
}

impl Joined {
    /// Whether the session's kernel stacks have been found.
    pub fn has_stacks(&self) -> bool {
        self.stacks.is_some()
    }

    /// The session's table of kernel stacks; `None` without the privilege to find it.
    pub fn stacks(&mut self) -> Option<&MapHandle> {
        if self.stacks.is_none() {
            self.stacks = find_stacks(self.slots_id);
        }
        self.stacks.as_ref()
    }
}

/// The map of kernel stacks that a program uses together with the slots.
fn find_stacks(slots_id: u32) -> Option<MapHandle> {
    ProgInfoIter::with_query_opts(
        libbpf_rs::query::ProgInfoQueryOptions::default().include_map_ids(true),
    )
    .filter(|program| program.map_ids.contains(&slots_id))
    .flat_map(|program| program.map_ids)
    .filter_map(|id| MapHandle::from_map_id(id).ok())
    .find(|map| map.name() == "kernel_stacks")
}
