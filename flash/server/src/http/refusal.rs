// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a request is refused as it is read.

/// A request that is answered with an error at once. The connection is closed then, because it is not certain where
/// the next request begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub why: &'static str,
}

impl Refusal {
    pub const fn new(status: u16, why: &'static str) -> Refusal {
        Refusal { status, why }
    }
}

/// One that is not valid.
pub const BAD: fn(&'static str) -> Refusal = |why| Refusal::new(400, why);

/// Of a request for a file.
pub const UNKNOWN_METHOD: Refusal = Refusal::new(501, "the method is not known");
