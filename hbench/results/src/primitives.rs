// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which primitive a call is, and how much it transferred.

use debox_model::history::Call;

use crate::families::{Families, Family};
use crate::mapping::MAPPING;

/// The largest transfers of the classes of sizes. What is larger has a class of its own.
pub const CLASSES: [u64; 6] = [64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20];

/// The class of larger transfers.
pub const LARGER: u64 = 1 << 40;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub primitive: String,
    /// The largest transfer of its class; `None` if it transfers nothing.
    pub size: Option<u64>,
}

const O_CREAT: u64 = 0o100;
const ENOENT: i64 = -2;
const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x1_0000;
const F_SETLK: u64 = 6;
const F_SETLKW: u64 = 7;
const F_OFD_SETLK: u64 = 37;
const F_OFD_SETLKW: u64 = 38;

/// The kind of a call, and the bytes that it transferred.
pub fn kind(call: &Call, families: &mut Families) -> (Kind, u64) {
    if call.ia32 {
        return (other(&call.name), 0);
    }
    if let Some(direction) = direction(&call.name) {
        let family = families.of(call.pid, call.args[0]);
        let bytes = u64::try_from(call.ret).unwrap_or(0);
        let primitive = transfer(family, direction);
        let class = CLASSES.iter().find(|class| bytes <= **class);
        let size = Some(class.copied().unwrap_or(LARGER));
        let primitive = primitive.to_string();
        return (Kind { primitive, size }, bytes);
    }
    let named = |name: &str| Kind {
        primitive: name.to_string(),
        size: None,
    };
    let [first, second, third] = call.args;
    let kind = match &*call.name {
        "open" if call.ret >= 0 && second & O_CREAT != 0 => named("file.create"),
        "openat" if call.ret >= 0 && third & O_CREAT != 0 => named("file.create"),
        "fcntl" if matches!(second, F_SETLK | F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW) => {
            named("file.lock")
        }
        "clone" if first & CLONE_THREAD != 0 => named("thread.create"),
        "clone" if first & CLONE_VM != 0 => named("process.spawn"),
        "connect" | "accept" | "accept4" | "shutdown" | "bind" | "listen" => {
            match families.of(call.pid, first) {
                Family::Unix => named("unix.connect"),
                Family::Tcp => named("tcp.connect"),
                Family::Udp => named("udp.send"),
                _ => other(&call.name),
            }
        }
        "socket" | "socketpair" => match first {
            1 => named("unix.connect"),
            2 | 10 => named("tcp.connect"),
            _ => other(&call.name),
        },
        "close" => match families.of(call.pid, first) {
            Family::Tcp => named("tcp.connect"),
            Family::Unix => named("unix.connect"),
            _ => named("file.open"),
        },
        name => match MAPPING.of_call(name) {
            Some("file.open" | "file.stat") if call.ret == ENOENT => named("file.lookup"),
            Some(primitive) => named(primitive),
            None => other(name),
        },
    };
    (kind, 0)
}

/// A call that no primitive stands for.
fn other(name: &str) -> Kind {
    Kind {
        primitive: format!("other.{name}"),
        size: None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

/// Of calls whose first argument is a descriptor, and whose result is what they transferred.
fn direction(name: &str) -> Option<Direction> {
    match name {
        "read" | "pread64" | "readv" | "preadv" | "preadv2" | "recvfrom" | "recvmsg" => {
            Some(Direction::In)
        }
        "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "sendto" | "sendmsg" => {
            Some(Direction::Out)
        }
        _ => None,
    }
}

fn transfer(family: Family, direction: Direction) -> &'static str {
    match (family, direction) {
        (Family::File, Direction::In) => "file.read",
        (Family::File, Direction::Out) => "file.write",
        (Family::Pipe, Direction::In) => "pipe.read",
        (Family::Pipe, Direction::Out) => "pipe.write",
        (Family::Unix, Direction::In) => "unix.receive",
        (Family::Unix, Direction::Out) => "unix.send",
        (Family::Tcp, Direction::In) => "tcp.receive",
        (Family::Tcp, Direction::Out) => "tcp.send",
        (Family::Udp, Direction::In) => "udp.receive",
        (Family::Udp, Direction::Out) => "udp.send",
        (Family::Event | Family::Unknown, Direction::In) => "event.read",
        (Family::Event | Family::Unknown, Direction::Out) => "event.write",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::tests::call;

    #[test]
    fn a_call_is_what_its_arguments_make_it() {
        let mut families = Families::default();
        families.follow(&call(1, "openat", [0, 0, 0], 3));
        families.follow(&call(1, "pipe2", [0; 3], 0));
        families.follow(&call(1, "socket", [2, 1, 0], 6));
        for (name, args, ret, wanted, size, bytes) in [
            ("pread64", [3, 0, 0], 4096, "file.read", Some(4096), 4096),
            ("write", [3, 0, 0], 4097, "file.write", Some(16 << 10), 4097),
            (
                "write",
                [3, 0, 0],
                2 << 20,
                "file.write",
                Some(LARGER),
                2 << 20,
            ),
            ("read", [4, 0, 0], -11, "pipe.read", Some(64), 0),
            ("sendto", [6, 0, 0], 1024, "tcp.send", Some(1024), 1024),
            ("read", [0, 0, 0], 1, "event.read", Some(64), 1),
            ("openat", [0, 0, O_CREAT], 7, "file.create", None, 0),
            ("openat", [0, 0, O_CREAT], -2, "file.lookup", None, 0),
            ("newfstatat", [0, 0, 0], -2, "file.lookup", None, 0),
            (
                "clone",
                [CLONE_THREAD | CLONE_VM, 0, 0],
                9,
                "thread.create",
                None,
                0,
            ),
            ("clone", [17, 0, 0], 9, "process.fork", None, 0),
            ("fcntl", [3, F_SETLKW, 0], 0, "file.lock", None, 0),
            ("fcntl", [3, 1, 0], 0, "call", None, 0),
            ("close", [6, 0, 0], 0, "tcp.connect", None, 0),
            ("accept", [6, 0, 0], 8, "tcp.connect", None, 0),
            ("ioctl", [0, 0, 0], 0, "other.ioctl", None, 0),
        ] {
            let (found, transferred) = kind(&call(1, name, args, ret), &mut families);
            assert_eq!(
                (found.primitive.as_str(), found.size, transferred),
                (wanted, size, bytes),
                "{name}"
            );
            let is_known = MAPPING.primitive(wanted).is_some();
            assert_eq!(is_known, !wanted.starts_with("other."), "{wanted}");
        }
    }
}
