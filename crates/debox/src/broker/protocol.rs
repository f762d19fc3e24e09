//! What a client and the broker say to each other: one packet a message, encoded by postcard.
//!
//! The broker reads packets of at most [`REQUEST_MAX`] bytes, with at most one descriptor, and ends
//! the connection at the first one that it does not understand.

use serde::{Deserialize, Serialize};

use crate::session::{Detail, Tap};

/// Changes with any change of the messages.
pub const VERSION: u32 = 1;

/// No request is longer; a longer packet is refused unread.
pub const REQUEST_MAX: usize = 512;
/// No reply is longer.
pub const REPLY_MAX: usize = 32 * 1024;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first message: is there a broker that speaks this version?
    Hello { version: u32 },
    /// Monitor the sender's process. `nonce` is the broker's, and shows that the sender lives.
    Enable { nonce: u64, wish: Wish },
    /// The functions of the kernel stack, or else of the site, of that name.
    Frames { stack: u64 },
}

/// A session as a client wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// The user tap, instead of the kernel tap.
    pub user_tap: bool,
    pub sleeps: bool,
    pub irq: bool,
    /// Threads monitored at the same time, at most. The broker may give less.
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

/// What the broker answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To a hello: come back with this number.
    Welcome { version: u32, nonce: u64 },
    /// To `Enable`, with the descriptor of the slots.
    Enabled { slots: u32 },
    /// To `Frames`: innermost first; empty if the broker does not know the stack (any more).
    Frames(Vec<FrameText>),
    /// The request is not granted, and why; the connection is over.
    Refused(String),
}

/// A place in the kernel, without its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameText {
    pub function: String,
    pub offset: u64,
    pub line: Option<String>,
}

/// A message as a packet.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // Only a type that does not know its own length cannot be encoded; there is none here.
    postcard::to_allocvec(message).expect("messages can be encoded")
}

/// A packet as a message, if it is one, the whole of one and nothing else.
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

    fn requests() -> impl Strategy<Value = Request> {
        let wish = (any::<bool>(), any::<bool>(), any::<bool>(), any::<u32>()).prop_map(
            |(user_tap, sleeps, irq, max_threads)| Wish {
                user_tap,
                sleeps,
                irq,
                max_threads,
            },
        );
        prop_oneof![
            any::<u32>().prop_map(|version| Request::Hello { version }),
            (any::<u64>(), wish).prop_map(|(nonce, wish)| Request::Enable { nonce, wish }),
            any::<u64>().prop_map(|stack| Request::Frames { stack }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn any_bytes_are_a_request_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..REQUEST_MAX)) {
            if let Some(request) = decode::<Request>(&bytes) {
                // What was understood says the same when it is said again.
                prop_assert_eq!(decode::<Request>(&encode(&request)), Some(request));
            }
        }

        #[test]
        fn requests_pass_whole(request in requests()) {
            let packet = encode(&request);
            prop_assert!(packet.len() <= REQUEST_MAX);
            prop_assert_eq!(decode::<Request>(&packet), Some(request.clone()));
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
            let _ = decode::<Request>(&packet);
        }

        #[test]
        fn any_bytes_are_a_reply_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
            let _ = decode::<Reply>(&bytes);
        }
    }
}
