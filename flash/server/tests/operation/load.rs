// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that ask without a break and take no failure.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::running::connect;

/// Requests on one connection before a client opens another.
const REQUESTS: usize = 200;

pub struct Load {
    ends: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Each client also keeps a connection open from the begin to the end.
    pub fn start(address: SocketAddr, clients: usize) -> Load {
        let ends = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicU64::new(0));
        let client = |_| {
            let (ends, answered) = (Arc::clone(&ends), Arc::clone(&answered));
            std::thread::spawn(move || {
                let mut kept = Client::new(address);
                while !ends.load(Ordering::Relaxed) {
                    let mut new = Client::new(address);
                    for _ in 0..REQUESTS {
                        new.ask();
                        kept.ask();
                        answered.fetch_add(2, Ordering::Relaxed);
                    }
                }
            })
        };
        let clients = (0..clients).map(client).collect();
        Load {
            ends,
            answered,
            clients,
        }
    }

    /// Ends it without a failure, and returns how many requests were answered.
    pub fn end(self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("no request has failed");
        }
        self.answered.load(Ordering::Relaxed)
    }
}

pub struct Client(BufReader<TcpStream>);

impl Client {
    pub fn new(address: SocketAddr) -> Client {
        Client(BufReader::new(connect(address)))
    }

    /// Asks for the index, which has to come whole, on a connection that is kept; returns it.
    #[track_caller]
    pub fn ask(&mut self) -> String {
        let stream = self.0.get_mut();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("it reads");
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let length = self.0.read_line(&mut head).expect("an answer");
            assert!(length > 0, "the connection has ended: {head}");
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(!head.contains("\r\nConnection: close\r\n"), "{head}");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.and_then(|text| text.parse().ok()).expect("a length");
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("the body");
        let body = String::from_utf8(body).expect("text");
        assert!(body == "of a\n" || body == "of b\n", "{body}");
        body
    }
}
