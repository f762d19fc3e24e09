//! What is kept of each request.
//!
//! While the load runs, rows go to a spool of plain numbers, which costs next to nothing and survives
//! the generator. Parquet is made of the spools when the load is over: encoding takes CPU time that
//! would have been the server's or the generator's.

mod parquet_file;
mod spool;
mod spools;

pub use latlab_analysis::rows::{Lateness, Meta, SCHEMA};
pub use parquet_file::ParquetFile;
pub use spool::{Next, Spool, SpoolReader};
pub use spools::{
    advice, process_file, remove as remove_spool, take as take_spool, tell_of_left, Description,
    Spools,
};

pub(crate) use spools::plain_file;

use crate::workload::Kind;

/// How a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Failure {
    /// Nobody listens there.
    Refused = 1,
    /// There is no way there.
    Unreachable,
    /// The connection was reset.
    Reset,
    /// Nothing came for too long; connecting included.
    Timeout,
    /// The connection ended before a reply began.
    Closed,
    /// Less of the body came than should.
    Short,
    /// More of the body came than should.
    Long,
    /// Another status than 2xx or 3xx.
    Status,
    /// Another content.
    Content,
    /// What came is no HTTP reply.
    Malformed,
    /// No local port or descriptor was left to connect with.
    Local,
    /// The run was over before a connection was free for it.
    Unsent,
    /// The run was ended by a signal while it was under way.
    Interrupted,
    /// The server's certificate is not trusted, or something else of TLS is wrong.
    Tls,
}

pub const FAILURES: [Failure; 14] = [
    Failure::Refused,
    Failure::Unreachable,
    Failure::Reset,
    Failure::Timeout,
    Failure::Closed,
    Failure::Short,
    Failure::Long,
    Failure::Status,
    Failure::Content,
    Failure::Malformed,
    Failure::Local,
    Failure::Unsent,
    Failure::Interrupted,
    Failure::Tls,
];

impl Failure {
    pub fn name(self) -> &'static str {
        match self {
            Failure::Refused => "refused",
            Failure::Unreachable => "unreachable",
            Failure::Reset => "reset",
            Failure::Timeout => "timeout",
            Failure::Closed => "closed",
            Failure::Short => "short",
            Failure::Long => "long",
            Failure::Status => "status",
            Failure::Content => "content",
            Failure::Malformed => "malformed",
            Failure::Local => "local",
            Failure::Unsent => "unsent",
            Failure::Interrupted => "interrupted",
            Failure::Tls => "tls",
        }
    }
}

/// One request. Times are nanoseconds since the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// When it was to start.
    pub intended_ns: i64,
    /// When it was written; if it never was, when that was given up.
    pub start_ns: i64,
    pub first_byte_ns: Option<i64>,
    /// When its last byte came.
    pub end_ns: Option<i64>,
    /// Of the first request on a connection: how long connecting took, and then the handshake of TLS.
    pub connect_ns: Option<i64>,
    pub tls_ns: Option<i64>,
    /// Bytes of the body that should come.
    pub size: Option<u64>,
    pub received: u64,
    pub path: u32,
    pub connection: u32,
    pub status: u16,
    pub process: u16,
    pub local_port: u16,
    pub kind: Kind,
    pub class: u8,
    pub failure: Option<Failure>,
}
