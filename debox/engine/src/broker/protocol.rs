//! The messages between a client and the broker: one packet each, encoded by postcard.
//!
//! The broker reads packets of at most [`REQUEST_MAX`] bytes, with at most one descriptor, and closes the
//! connection at the first one that it does not understand.

use serde::{Deserialize, Serialize};

use super::probe_data::{CallSite, Life, Resource, Shape, ShapeKey, Stack, Title};
use super::record_data::{FiredCall, RecordPart};
use super::wire::rows::{ResourceKey, ResourceRow};
use crate::options::{Detail, Options, Tap};
use crate::symbols::Frame;
use crate::trigger::Trigger;

/// The version of the messages. C programs of the tests include the same file.
pub const VERSION: u32 = include!("version.h");

/// The longest request; a longer packet is refused unread.
pub const REQUEST_MAX: usize = 1024;
/// The longest reply.
pub const REPLY_MAX: usize = 64 * 1024;
/// Data that does not fit into one reply follows it in packets of this size.
pub const BULK: usize = 64 * 1024;

/// The most events of each kind in one reply.
pub const BATCH: usize = 16;
/// The most records in one reply.
pub const RECORDS_AT_ONCE: usize = 240;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first message: checks that the broker uses this protocol version.
    Hello { version: u32 },
    /// Monitor the sender's process. `nonce` comes from the broker and proves that the sender is alive.
    Enable { nonce: u64, wish: Wish },
    /// Return the functions of the kernel stack, or otherwise of the site, with this name.
    Frames { stack: u64 },
    /// Open a session of the sender's own, for its children. The requests below are only valid in such a session.
    Run { nonce: u64, wish: RunWish },
    /// Monitor the process of the descriptor that is sent along: a descendant of the sender or, in a session that
    /// attaches, any process that the sender may inspect. `is_running`: from now on, otherwise from its next
    /// `execve` on.
    Enrol { is_running: bool },
    /// Return what has been seen since the last time and has to be looked up. The answer comes at once if there
    /// is anything, otherwise after `wait_ms` at the latest.
    Events { wait_ms: u16 },
    /// Tell the broker where the wrapper at an address of a process keeps its return address. No answer.
    Wrapper {
        tgid: u32,
        ip: u64,
        offset: i32,
        rule: u32,
    },
    /// Return how many threads of a process are monitored; 0: of all processes.
    Alive { tgid: u32 },
    /// Return what was measured so far; with `is_last` the session ends.
    Report { is_last: bool },
    /// Tell the probes how to recognise a user stack. No answer.
    Shape { key: ShapeKey, shape: Shape },
    /// Return the oldest records that have arrived. Only in a session that keeps them, as are the next two.
    Records,
    /// Return the functions of the kernel stack with this name, and the arguments that its label depends on.
    Place { stack: u64 },
    /// Return what the probes saw of a resource that was waited for: the names that identify it.
    Named { key: ResourceKey },
    /// Stop monitoring. What has been seen until then can still be fetched.
    Stop,
    /// Return what has happened since the last look. Only in a session that is looked at, as is the next one.
    Look,
    /// Return the calls that threads have been asleep in since `from_ns` or later, with their stacks: once for each look.
    Asleep { from_ns: u64 },
}

/// A session as a client wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// The user tap, instead of the kernel tap.
    pub user_tap: bool,
    pub sleeps: bool,
    pub irq: bool,
    /// The most threads monitored at the same time. The broker may grant fewer.
    pub max_threads: u32,
}

impl Wish {
    pub fn new(tap: Tap, detail: Detail, max_threads: u32) -> Wish {
        Wish {
            user_tap: tap == Tap::User,
            sleeps: detail.sleeps,
            irq: detail.irq,
            max_threads,
        }
    }

    pub fn tap(&self) -> Tap {
        if self.user_tap {
            Tap::User
        } else {
            Tap::Kernel
        }
    }
}

/// A session for one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunWish {
    pub asked: Wish,
    pub io: bool,
    pub callsites: bool,
    pub cpu: bool,
    /// Calls shorter than this are left out of the profile by call site.
    pub slow_ns: u64,
    /// The session is for processes that are already running, not for a command.
    pub attaches: bool,
    /// Leave out the children that the processes start.
    pub one_process: bool,
    /// How many bytes of records may wait to be fetched; 0: no records are kept. The broker may grant less.
    pub history_bytes: u32,
    /// As on the command line.
    pub triggers: Vec<String>,
    /// The session is looked at while it runs: its waits are summed from one look to the next.
    pub live: bool,
}

impl RunWish {
    pub fn new(options: &Options) -> RunWish {
        RunWish {
            asked: Wish::new(options.tap, options.detail, options.max_threads),
            io: options.detail.io,
            callsites: options.detail.callsites,
            cpu: options.detail.cpu,
            slow_ns: options.slow_ns,
            attaches: options.adopts_sleeps,
            one_process: options.one_process,
            history_bytes: options.history_bytes,
            triggers: options.triggers.iter().map(Trigger::to_string).collect(),
            live: options.live,
        }
    }

    pub fn detail(&self) -> Detail {
        Detail {
            sleeps: self.asked.sleeps,
            callsites: self.callsites,
            irq: self.asked.irq,
            io: self.io,
            cpu: self.cpu,
            samples: false,
        }
    }
}

/// The broker's replies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To a hello: the nonce has to be returned with the next request.
    Welcome { version: u32, nonce: u64 },
    /// To `Enable`, with the descriptors of the slots and of the broker's page (`presence.rs`).
    Enabled { slots: u32 },
    /// To `Frames`: innermost first; empty if the broker does not know the stack (any more).
    Frames(Vec<FrameText>),
    /// The request was refused for this reason; the connection is closed.
    Refused(String),
    /// To `Run`. Under the user tap it comes with the descriptor of so many slots, and a second such reply with
    /// that of the table of their threads.
    Running { slots: u32 },
    /// To `Enrol`: how many of its threads were not monitored before.
    Enrolled { threads: u32 },
    /// To `Events`.
    Events {
        ended: Vec<Life>,
        call_sites: Vec<CallSite>,
        resources: Vec<Resource>,
        titles: Vec<Title>,
        fired: Vec<FiredCall>,
        is_more: bool,
    },
    /// To `Alive`.
    Alive { count: u32 },
    /// To `Report`, `Look` and `Asleep`: so many bytes follow (`wire.rs`).
    Report { size: u64 },
    /// Also to `Events`: a user stack to be unwound. There may be more.
    Stack(Box<Stack>),
    /// To `Enrol`, in a session that attaches: refused for this reason. The session continues.
    NotEnrolled(String),
    /// To `Records`. `lost_calls`, `lost_sleeps`: for which there was no room, since the beginning.
    Records {
        parts: Vec<RecordPart>,
        lost_calls: u64,
        lost_sleeps: u64,
        is_more: bool,
    },
    /// To `Place`: innermost first; empty if the broker does not know the stack.
    Place {
        frames: Vec<FrameText>,
        args: Option<[u64; 3]>,
    },
    /// To `Named`.
    Named(Box<ResourceRow>),
    /// To `Stop`.
    Stopped { at_ns: u64 },
}

/// The first variants of [`Reply`], with the same encoding, for decoding without allocating.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Admission {
    Welcome { version: u32, nonce: u64 },
    Enabled { slots: u32 },
}

/// A place in the kernel, without its address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FrameText {
    pub function: String,
    pub offset: u64,
    pub line: Option<String>,
}

impl FrameText {
    pub fn of(frame: Frame) -> FrameText {
        let is_named = !frame.function.starts_with("0x");
        FrameText {
            function: if is_named {
                frame.function
            } else {
                "(no symbol)".to_string()
            },
            offset: frame.offset.unwrap_or(0),
            line: frame.place,
        }
    }
}

impl From<FrameText> for Frame {
    fn from(text: FrameText) -> Frame {
        Frame {
            place: text.line,
            ..Frame::function(text.function, text.offset)
        }
    }
}

/// A message as a packet.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // Only sequences of unknown length cannot be encoded; there are none here.
    postcard::to_allocvec(message).expect("messages can be encoded")
}

/// As [`encode`], without allocating: writes into `room` and returns the part with the packet.
pub fn encode_in<'a, T: Serialize>(message: &T, room: &'a mut [u8]) -> Option<&'a [u8]> {
    postcard::to_slice(message, room)
        .ok()
        .map(|packet| &*packet)
}

/// Decodes a packet, if it is exactly one complete message.
pub fn decode<'a, T: Deserialize<'a>>(packet: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(packet) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

#[cfg(test)]
#[path = "protocol/tests.rs"]
mod tests;
