// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to run.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::hdr::HdrFiles;
use crate::load::Mode;
use crate::servers::Watch;
use crate::tls::Trust;
use crate::workload::{Shape, Spec};

/// How long to wait for each of a host's addresses.
const TRY: Duration = Duration::from_secs(2);

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub url: Url,
    /// Whom to trust, for an https URL.
    pub trust: Trust,
    pub spec: Spec,
    pub shape: Shape,
    pub seed: u64,
    pub checked_share: f64,
    pub connections: u32,
    pub processes: u16,
    pub mode: Mode,
    pub requests_per_connection: Option<u32>,
    pub timeout_ns: i64,
    pub duration_ns: i64,
    pub warmup_ns: i64,
    pub requests: Option<u64>,
    /// Maximum lateness of the generator, at the 99th percentile.
    pub max_lateness_ns: i64,
    pub load: Option<f64>,
    pub server: String,
    pub output: Option<PathBuf>,
    /// HdrHistogram files to write.
    pub hdr: HdrFiles,
    /// Watches the server, if latlab has started it.
    pub watch: Option<Watch>,
    /// Whether the progress is shown.
    pub watched: bool,
    /// The `latlab` program whose `worker` subcommand generates the load.
    pub program: PathBuf,
}

/// Location of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub tls: bool,
    pub host: String,
    pub path: String,
}

impl Url {
    pub fn parse(text: &str) -> Result<Url, String> {
        let expected = "expected http://HOST[:PORT][/PATH], or https://";
        let (tls, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err(expected.into()),
            None => (false, text),
        };
        let (host, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let clean = |part: &str| part.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || !clean(host) || !clean(path) || host.contains('@') {
            return Err(expected.into());
        }
        Ok(Url {
            tls,
            host: host.to_string(),
            path: path.split('#').next().unwrap_or("/").to_string(),
        })
    }

    pub(super) fn address(&self) -> Result<SocketAddr> {
        // The last colon in [::1] does not precede a port.
        let has_port = match self.host.rsplit_once(':') {
            Some((_, port)) => !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()),
            None => false,
        };
        let with_port = match has_port {
            true => self.host.clone(),
            false if self.tls => format!("{}:443", self.host),
            false => format!("{}:80", self.host),
        };
        let found: Vec<SocketAddr> = with_port
            .to_socket_addrs()
            .with_context(|| format!("cannot find {}", self.host))?
            .collect();
        let first = found.first();
        let first = first.with_context(|| format!("{} has no address", self.host))?;
        if found.len() == 1 {
            return Ok(*first);
        }
        // A host may have an IPv6 address while its server listens only on IPv4.
        let listens = |address: &&SocketAddr| TcpStream::connect_timeout(address, TRY).is_ok();
        Ok(*found.iter().find(listens).unwrap_or(first))
    }

    pub fn text(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.host, self.path)
    }
}
