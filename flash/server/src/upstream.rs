// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a location's requests go if no file answers them: to other servers, and over which protocol.
//!
//! `links` has the connections to them, `connection/relay.rs` passes a request and its answer on. Each protocol has a
//! module that writes requests and reads answers, without any socket.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;

use answer::{Malformed, Step};
use application::host::Host;
use application::pool::Pool;

pub mod answer;
pub mod application;
mod channel;
pub mod fastcgi;
mod host_process;
pub mod http;
pub mod links;
pub mod records;
pub mod script_head;
pub mod script_host;
pub mod scripts;
pub mod variables;

static NUMBERS: AtomicUsize = AtomicUsize::new(0);

/// As the configuration says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub protocol: Protocol,
    /// At least one.
    pub to: Vec<Place>,
    pub settings: Settings,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protocol {
    Http(http::Options),
    FastCgi(fastcgi::Options),
    Cgi(scripts::Options),
    Application(application::Options),
}

impl Protocol {
    /// Content can come without a length.
    pub fn takes_chunked(&self) -> bool {
        match self {
            Protocol::Http(_) => true,
            Protocol::FastCgi(options) => options.takes_chunked,
            Protocol::Cgi(options) => options.takes_chunked,
            Protocol::Application(_) => false,
        }
    }

    /// Programs say something to who runs the server.
    pub fn has_messages(&self) -> bool {
        matches!(self, Protocol::FastCgi(_))
    }
}

/// Reads an answer.
#[derive(Debug)]
pub enum Reader {
    Http(http::Reader),
    FastCgi(Box<fastcgi::Reader>),
    Cgi(scripts::Reader),
}

impl Reader {
    /// # Errors
    ///
    /// What was received is no answer.
    pub fn next(&mut self, received: &[u8]) -> Result<(usize, Step), Malformed> {
        match self {
            Reader::Http(reader) => reader.next(received),
            Reader::FastCgi(reader) => reader.next(received),
            Reader::Cgi(reader) => reader.next(received),
        }
    }

    /// The upstream has closed the connection. Whether the answer is whole.
    pub fn ends(&mut self) -> bool {
        match self {
            Reader::Http(reader) => reader.ends(),
            Reader::FastCgi(reader) => reader.ends(),
            Reader::Cgi(reader) => reader.has_head(),
        }
    }

    pub fn keeps_connection(&self) -> bool {
        match self {
            Reader::Http(reader) => reader.keeps_connection(),
            Reader::FastCgi(reader) => reader.keeps_connection(),
            Reader::Cgi(_) => false,
        }
    }

    pub fn has_head(&self) -> bool {
        match self {
            Reader::Http(reader) => reader.has_head(),
            Reader::FastCgi(reader) => reader.has_head(),
            Reader::Cgi(reader) => reader.has_head(),
        }
    }
}

/// How an upstream sees the content of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Plain,
    Chunked,
    Records,
}

impl Form {
    pub fn content(self, content: &[u8], out: &mut Vec<u8>) {
        match self {
            _ if content.is_empty() => {}
            Form::Plain => out.extend_from_slice(content),
            Form::Chunked => {
                out.extend_from_slice(format!("{:x}\r\n", content.len()).as_bytes());
                out.extend_from_slice(content);
                out.extend_from_slice(b"\r\n");
            }
            Form::Records => records::body(content, out),
        }
    }

    pub fn end(self, out: &mut Vec<u8>) {
        match self {
            Form::Plain => {}
            Form::Chunked => out.extend_from_slice(b"0\r\n\r\n"),
            Form::Records => records::body_ends(out),
        }
    }
}

/// Where an upstream listens, before its name is resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
    /// Nowhere: a program is started for each request.
    Script,
    /// Nowhere: its processes come from their manager.
    Application,
}

/// Where an upstream listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
    Script,
    Application,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Connections to each address.
    pub connections: usize,
    /// Bytes of a request, and of an answer, that wait for who is slower.
    pub buffer: usize,
    /// In milliseconds: for a connection, for the upstream to take bytes, for it to send some, and between bytes of
    /// a connection that has become another protocol's.
    pub connect_ms: u64,
    pub send_ms: u64,
    pub read_ms: u64,
    pub tunnel_ms: u64,
    /// How long a connection is kept that no request uses.
    pub idle_ms: u64,
    /// After so many failures in a row, an address gets no requests for so long.
    pub failures: u32,
    pub down_ms: u64,
    /// Bytes of a request's body. One that is longer gets 413.
    pub body: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            connections: 256,
            buffer: 256 << 10,
            connect_ms: 5_000,
            send_ms: 60_000,
            read_ms: 60_000,
            tunnel_ms: 3_600_000,
            idle_ms: 60_000,
            failures: 3,
            down_ms: 10_000,
            body: u64::MAX,
        }
    }
}

/// What loops use.
pub struct Upstream {
    /// Unique, also among those of earlier configurations.
    pub number: usize,
    pub plan: Plan,
    /// Of all names, as they were resolved last.
    pub endpoints: ArcSwap<Vec<Endpoint>>,
    /// Of an application, where one runs.
    pub pool: Option<Arc<Pool>>,
}

impl Upstream {
    /// Resolves the names, which may take long.
    ///
    /// # Errors
    ///
    /// A name has no address; the error names it. Or there is no application.
    pub fn open(plan: &Plan, host: Option<&Host>) -> Result<Upstream> {
        let endpoints = resolve(&plan.to)?;
        let pool = match (&plan.protocol, host) {
            (Protocol::Application(options), Some(host)) => Some(Arc::new(host.open(options)?)),
            _ => None,
        };
        Ok(Upstream {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            plan: plan.clone(),
            endpoints: ArcSwap::from_pointee(endpoints),
            pool,
        })
    }

    /// Names may have other addresses by now. If one has none, those in use stay.
    pub fn resolve_again(&self) {
        match resolve(&self.plan.to) {
            Ok(endpoints) if endpoints == **self.endpoints.load() => {}
            Ok(endpoints) => self.endpoints.store(Arc::new(endpoints)),
            Err(error) => {
                let text = format!("the addresses in use stay: {error:#}");
                kit_console::say_error("flash", &text);
            }
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.plan.settings
    }
}

fn resolve(places: &[Place]) -> Result<Vec<Endpoint>> {
    let mut found = Vec::new();
    for place in places {
        match place {
            Place::Script => found.push(Endpoint::Script),
            Place::Application => found.push(Endpoint::Application),
            Place::Unix(path) => found.push(Endpoint::Unix(path.clone())),
            Place::Tcp { host, port } => {
                let addresses = (host.as_str(), *port).to_socket_addrs();
                let addresses = addresses.with_context(|| {
                    format!("the name {host} of an upstream has no address: correct it, or write the address itself")
                })?;
                for address in addresses {
                    let endpoint = Endpoint::Tcp(address);
                    if !found.contains(&endpoint) {
                        found.push(endpoint);
                    }
                }
            }
        }
    }
    anyhow::ensure!(
        !found.is_empty(),
        "the names of an upstream have no address"
    );
    Ok(found)
}
