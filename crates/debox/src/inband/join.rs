//! A program that runs under `debox run --tap user` reads the records of that session instead of
//! opening one of its own: the preload shim is in the process already and takes the stamps.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore, MapHandle};
use nix::sys::socket::{
    self, sockopt, AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
};
use nix::sys::time::TimeVal;

use crate::record::VERSION;

/// The environment variable of the shim (`DEBOX_TAP_VARIABLE` of attach.h).
const VARIABLE: &str = "DEBOX_TAP";

/// A session that another process has open.
pub(super) struct Joined {
    /// The map of the slots.
    pub slots: OwnedFd,
    pub slot_count: usize,
    pub slots_id: u32,
    /// The session's kernel stacks, once they were asked for.
    stacks: Option<MapHandle>,
}

/// Asks the session that the environment names for its slots; `None` if there is no such session, or
/// this process is none of its own.
pub(super) fn find() -> Option<Joined> {
    let address = std::env::var(VARIABLE).ok()?;
    // What follows a colon is of no concern here.
    let name = address.split(':').next()?;
    let socket = socket::socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .ok()?;
    let limit = TimeVal::new(5, 0);
    socket::setsockopt(&socket, sockopt::ReceiveTimeout, &limit).ok()?;
    let name = UnixAddr::new_abstract(name.as_bytes()).ok()?;
    socket::connect(socket.as_raw_fd(), &name).ok()?;
    receive(&socket)
}

/// `struct debox_tap_welcome`, with the descriptors of slots, thread ids and rows.
fn receive(socket: &OwnedFd) -> Option<Joined> {
    let mut message = [0u8; 8];
    let mut data = [IoSliceMut::new(&mut message)];
    let mut control = nix::cmsg_space!([i32; 3]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received =
        socket::recvmsg::<()>(socket.as_raw_fd(), &mut data, Some(&mut control), flags).ok()?;
    let bytes = received.bytes;
    let mut fds = Vec::new();
    for part in received.cmsgs().ok()? {
        if let ControlMessageOwned::ScmRights(passed) = part {
            // SAFETY: the kernel has just made these descriptors for us.
            fds.extend(
                passed
                    .into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
    }
    let word = |at: usize| u32::from_ne_bytes(message[at..at + 4].try_into().expect("four bytes"));
    if bytes != message.len() || fds.len() != 3 || word(0) != u32::from(VERSION) {
        return None;
    }
    let slots = fds.swap_remove(0);
    let slots_id = super::map_id_of(slots.as_raw_fd());
    (slots_id != 0).then_some(Joined {
        slots,
        slot_count: word(4) as usize,
        slots_id,
        stacks: None,
    })
}

impl Joined {
    /// The session's table of kernel stacks; `None` without the privilege to find it.
    pub fn stacks(&mut self) -> Option<&MapHandle> {
        if self.stacks.is_none() {
            self.stacks = find_stacks(self.slots_id);
        }
        self.stacks.as_ref()
    }
}

/// The map of that name that a program uses together with the slots.
fn find_stacks(slots_id: u32) -> Option<MapHandle> {
    ProgInfoIter::with_query_opts(
        libbpf_rs::query::ProgInfoQueryOptions::default().include_map_ids(true),
    )
    .filter(|program| program.map_ids.contains(&slots_id))
    .flat_map(|program| program.map_ids)
    .filter_map(|id| MapHandle::from_map_id(id).ok())
    .find(|map| map.name() == "kernel_stacks")
}
