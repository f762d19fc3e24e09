//! What is kept for each request.
//!
//! While the load runs, rows go to a binary spool, which costs almost no CPU time and survives the
//! generator. The spools are converted to Parquet when the load is over, because encoding would take
//! CPU time from the server or the generator.

mod parquet_file;
mod spool;
mod spools;

pub use latlab_analysis::rows::{Lateness, Meta, SCHEMA};
pub use parquet_file::ParquetFile;
pub use spool::{Next, Spool, SpoolReader};
pub use spools::{
    advice, process_file, remove as remove_spool, remove_leftover, take as take_spool, Description,
    Spools,
};

pub(crate) use spools::plain_file;

use crate::workload::Kind;

/// How a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Failure {
    /// No process listens there.
    Refused = 1,
    /// There is no route to the host.
    Unreachable,
    /// The connection was reset.
    Reset,
    /// Nothing came within the time limit, which includes connecting.
    Timeout,
    /// The connection was closed before a reply began.
    Closed,
    /// The body is shorter than it should be.
    Short,
    /// The body is longer than it should be.
    Long,
    /// A status other than 2xx or 3xx.
    Status,
    /// The content is wrong.
    Content,
    /// The bytes are no HTTP reply.
    Malformed,
    /// No local port or descriptor was available to connect.
    Local,
    /// The run ended before a connection was available.
    Unsent,
    /// A signal ended the run while the request was in flight.
    Interrupted,
    /// A TLS error: the server's certificate is not trusted, or the handshake failed otherwise.
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
    /// The intended start.
    pub intended_ns: i64,
    /// When it was written or, if it never was, given up.
    pub start_ns: i64,
    pub first_byte_ns: Option<i64>,
    /// When its last byte came.
    pub end_ns: Option<i64>,
    /// For the first request on a connection: duration of connecting, and of the TLS handshake after
    /// it.
    pub connect_ns: Option<i64>,
    pub tls_ns: Option<i64>,
    /// Expected length of the body.
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
