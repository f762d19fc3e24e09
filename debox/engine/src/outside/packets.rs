//! Packets from any process that has connected, or that listens at the name that was connected to.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nix::poll::PollTimeout;
use nix::sys::socket::{self, AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType};

use crate::broker::protocol::{self, Admission, Reply, Request, REPLY_MAX, REQUEST_MAX};
use crate::broker::record_data::RecordPart;
use crate::broker::{channel, reconnect};
use crate::inband;
use crate::tables::types;
use crate::trigger::{Fired, Trigger};

/// Receives a packet that a client sends to the broker, with so many descriptors.
pub fn request(packet: &[u8], descriptors: usize) {
    let sent = passed(packet, descriptors, REQUEST_MAX);
    let is_whole = !packet.is_empty() && packet.len() <= REQUEST_MAX && descriptors < 2;
    assert_eq!(sent.is_some(), is_whole);
    let request = sent.and_then(|bytes| protocol::decode::<Request>(&bytes));
    if let Some(request) = request {
        // A decoded request must stay the same when encoded and decoded again.
        let again = protocol::encode(&request);
        assert!(again.len() <= REQUEST_MAX);
        assert_eq!(protocol::decode::<Request>(&again).as_ref(), Some(&request));
        if let Request::Run { wish, .. } = &request {
            wish.triggers.iter().for_each(|text| trigger(text));
        }
    }
}

/// Reads a trigger that a client asks for.
fn trigger(text: &str) {
    if let Ok(trigger) = text.parse::<Trigger>() {
        // Whether it can be compiled is another question.
        let _ = trigger.predicate.compile();
        // As it is printed it may be too long.
        if let Ok(again) = trigger.to_string().parse::<Trigger>() {
            assert_eq!(again, trigger);
        }
    }
}

/// Receives a packet that a program gets from a supposed broker.
pub fn reply(packet: &[u8], descriptors: usize) {
    let got = passed(packet, descriptors, REPLY_MAX);
    let reply = got.and_then(|bytes| protocol::decode::<Reply>(&bytes));
    if let Some(reply) = reply {
        let again = protocol::decode::<Reply>(&protocol::encode(&reply));
        assert_eq!(again.as_ref(), Some(&reply));
        match &reply {
            Reply::Records { parts, .. } => {
                for part in parts {
                    assert_eq!(
                        RecordPart::of(&part.kept()).map(|part| part.kept().tid()),
                        Some(part.kept().tid())
                    );
                }
            }
            Reply::Events { fired, .. } => {
                for call in fired {
                    let fired = Fired::new(&types::trigger_fired::from(call));
                    assert_eq!(fired.call, types::trigger_fired::from(call).call);
                }
            }
            _ => {}
        }
    }
}

/// The same for a program that finds the broker again.
pub fn admission(packet: &[u8], descriptors: usize) {
    let (to, from) = pair();
    let Some(()) = send(&to, packet, descriptors) else {
        return;
    };
    let before = next_descriptor();
    if let Ok((admission, given)) = reconnect::hear(&from, PollTimeout::ZERO) {
        assert!(given.iter().flatten().count() == descriptors);
        let reply = protocol::decode::<Reply>(packet);
        assert!(match (admission, reply) {
            (Admission::Welcome { nonce, .. }, Some(Reply::Welcome { nonce: same, .. })) =>
                nonce == same,
            (Admission::Enabled { slots }, Some(Reply::Enabled { slots: same })) => slots == same,
            _ => false,
        });
    }
    assert!(cfg!(test) || next_descriptor() == before, "left open");
}

/// Sends a packet through a socket and returns it as the broker's code receives it, if it does.
fn passed(packet: &[u8], descriptors: usize, limit: usize) -> Option<Vec<u8>> {
    let (to, from) = pair();
    send(&to, packet, descriptors)?;
    let before = next_descriptor();
    let received = channel::receive(from.as_fd(), limit, MsgFlags::MSG_DONTWAIT);
    let taken = received.map(|packet| (packet.bytes, packet.descriptor.is_some()));
    assert!(cfg!(test) || next_descriptor() == before, "left open");
    let (bytes, has_descriptor) = taken.ok()?;
    assert!(bytes == packet && has_descriptor == (descriptors == 1));
    Some(bytes)
}

/// Receives a session's answer to a program that joins it, with so many descriptors.
pub fn welcome(packet: &[u8], descriptors: usize) {
    let (to, from) = pair();
    let Some(()) = send(&to, packet, descriptors) else {
        return;
    };
    // The descriptors are not maps and must be closed.
    let before = next_descriptor();
    assert!(!inband::is_welcome(&from, 0));
    assert!(cfg!(test) || next_descriptor() == before, "left open");
}

/// The number of the next descriptor. Tests open descriptors in parallel.
fn next_descriptor() -> RawFd {
    let file = File::open("/dev/null").expect("a device");
    file.as_raw_fd()
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (unix, packets) = (AddressFamily::Unix, SockType::SeqPacket);
    socket::socketpair(unix, packets, None, SockFlag::SOCK_CLOEXEC).expect("two sockets")
}

/// `None` if the kernel does not send it.
fn send(to: &OwnedFd, packet: &[u8], descriptors: usize) -> Option<()> {
    let fds: Vec<RawFd> = vec![to.as_raw_fd(); descriptors];
    let control = [ControlMessage::ScmRights(&fds)];
    let control = if fds.is_empty() { &[] } else { &control[..] };
    let data = [std::io::IoSlice::new(packet)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    socket::sendmsg::<()>(to.as_raw_fd(), &data, control, flags, None).ok()?;
    Some(())
}
