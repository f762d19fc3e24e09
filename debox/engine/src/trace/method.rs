// SPDX-License-Identifier: MIT OR Apache-2.0
//! The methods of tracing functions inside calls.

/// How the functions inside a call are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// One probe for entry and return, many functions at once (since 6.10).
    Session,
    /// One probe for entries and one for returns, many functions at once (since 5.18).
    Multi,
    /// A pair of probes for each function.
    Pairs,
    /// No functions: samples of the stack and the tracepoints that a call passes.
    Sampled,
}

impl Method {
    /// The name in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Method::Session => "kprobe.session",
            Method::Multi => "kprobe.multi",
            Method::Pairs => "fentry",
            Method::Sampled => "sampled",
        }
    }

    /// All methods, the best first.
    pub const ALL: [Method; 4] = [
        Method::Session,
        Method::Multi,
        Method::Pairs,
        Method::Sampled,
    ];
}

/// A method, and the reason if it does not work here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub method: Method,
    pub lack: Option<String>,
}
