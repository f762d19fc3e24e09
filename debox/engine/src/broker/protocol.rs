//! The messages between a client and the broker: one packet each, encoded by postcard.
//!
//! The broker reads packets of at most [`REQUEST_MAX`] bytes, with at most one descriptor, and closes the
//! connection at the first one that it does not understand.

use serde::{Deserialize, Serialize};

use super::probe_data::{CallSite, Life, Resource, Shape, ShapeKey, Stack, Title};
use crate::options::{Detail, Options, Tap};
use crate::symbols::Frame;

/// Incremented with any change of the messages; also in `broker_client.c` and `brokered.c` of the tests.
pub const VERSION: u32 = 8;

/// The longest request; a longer packet is refused unread.
pub const REQUEST_MAX: usize = 1024;
/// The longest reply.
pub const REPLY_MAX: usize = 32 * 1024;
/// Data that does not fit into one reply follows it in packets of this size.
pub const BULK: usize = 64 * 1024;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
        is_more: bool,
    },
    /// To `Alive`.
    Alive { count: u32 },
    /// To `Report`: so many bytes follow (`wire.rs`).
    Report { size: u64 },
    /// Also to `Events`: a user stack to be unwound. There may be more.
    Stack(Box<Stack>),
    /// To `Enrol`, in a session that attaches: refused for this reason. The session continues.
    NotEnrolled(String),
}

/// The first variants of [`Reply`], with the same encoding, for decoding without allocating.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Admission {
    Welcome { version: u32, nonce: u64 },
    Enabled { slots: u32 },
}

/// A place in the kernel, without its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::outside;
    use crate::tables::types;

    fn requests() -> impl Strategy<Value = Request> {
        let wish = (any::<bool>(), any::<bool>(), any::<bool>(), any::<u32>()).prop_map(
            |(user_tap, sleeps, irq, max_threads)| Wish {
                user_tap,
                sleeps,
                irq,
                max_threads,
            },
        );
        let run_wish = (wish.clone(), any::<(bool, bool, bool, u64, bool, bool)>()).prop_map(
            |(asked, (io, callsites, cpu, slow_ns, attaches, one_process))| RunWish {
                asked,
                io,
                callsites,
                cpu,
                slow_ns,
                attaches,
                one_process,
            },
        );
        let shape = any::<(u64, u64)>().prop_map(|(ip, name)| Request::Shape {
            key: ShapeKey::from(&types::user_shape_key {
                ip,
                ..Default::default()
            }),
            shape: Shape::from(&types::user_shape {
                name,
                checks: (name % 65) as u32,
                value: [ip; 64],
                ..Default::default()
            }),
        });
        prop_oneof![
            any::<u32>().prop_map(|version| Request::Hello { version }),
            (any::<u64>(), wish).prop_map(|(nonce, wish)| Request::Enable { nonce, wish }),
            any::<u64>().prop_map(|stack| Request::Frames { stack }),
            (any::<u64>(), run_wish).prop_map(|(nonce, wish)| Request::Run { nonce, wish }),
            any::<bool>().prop_map(|is_running| Request::Enrol { is_running }),
            any::<u16>().prop_map(|wait_ms| Request::Events { wait_ms }),
            any::<(u32, u64, i32, u32)>().prop_map(|(tgid, ip, offset, rule)| Request::Wrapper {
                tgid,
                ip,
                offset,
                rule
            }),
            shape,
            any::<u32>().prop_map(|tgid| Request::Alive { tgid }),
            any::<bool>().prop_map(|is_last| Request::Report { is_last }),
        ]
    }

    #[test]
    fn an_admission_is_the_reply_without_memory() {
        let (version, nonce, slots) = (VERSION, u64::MAX - 1, 256);
        let welcome = encode(&Reply::Welcome { version, nonce });
        assert_eq!(
            decode(&welcome),
            Some(Admission::Welcome { version, nonce })
        );
        let enabled = encode(&Reply::Enabled { slots });
        assert_eq!(decode(&enabled), Some(Admission::Enabled { slots }));
        for other in [
            Reply::Refused("full".to_string()),
            Reply::Enrolled { threads: 1 },
            Reply::Frames(Vec::new()),
        ] {
            assert_eq!(decode::<Admission>(&encode(&other)), None);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn any_bytes_are_a_request_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..REQUEST_MAX)) {
            outside::request(&bytes, 0);
        }

        #[test]
        fn requests_pass_whole(request in requests()) {
            let packet = encode(&request);
            prop_assert!(packet.len() <= REQUEST_MAX);
            prop_assert_eq!(decode::<Request>(&packet), Some(request.clone()));
            let mut room = [0; REQUEST_MAX];
            prop_assert_eq!(encode_in(&request, &mut room), Some(&packet[..]));
            prop_assert_eq!(decode::<Request>(&packet[..packet.len() - 1]), None);
            let longer = [packet, vec![0]].concat();
            prop_assert_eq!(decode::<Request>(&longer), None);
        }

        #[test]
        fn damaged_requests_are_refused_or_others(
            request in requests(), at in any::<prop::sample::Index>(), with in any::<u8>(),
        ) {
            let mut packet = encode(&request);
            let at = at.index(packet.len());
            packet[at] = with;
            outside::request(&packet, at % 4);
        }

        #[test]
        fn any_bytes_are_a_reply_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
            outside::reply(&bytes, bytes.len() % 3);
            outside::admission(&bytes, bytes.len() % 5);
        }
    }
}
