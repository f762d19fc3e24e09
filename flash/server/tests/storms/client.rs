// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client that knows whether an answer was cut off.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

#[derive(Debug)]
pub enum Got {
    Whole(Answer),
    /// The connection ended before the length that the head promised.
    Cut(Answer),
    /// There was no answer.
    Nothing,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        let fields = self
            .head
            .split("\r\n")
            .filter_map(|line| line.split_once(": "));
        let mut named = fields.filter(|(own, _)| own.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value)
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// Asks for one target, on a connection of its own.
pub fn get(address: SocketAddr, target: &str) -> Got {
    let mut stream = connect(address);
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let mut received = Vec::new();
    let sent = stream.write_all(request.as_bytes());
    // A reset also ends what has come before it.
    let _ = sent.and_then(|()| stream.read_to_end(&mut received));
    let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Got::Nothing;
    };
    let body = received.split_off(end + 4);
    let head = String::from_utf8_lossy(&received).into_owned();
    let status = head.get(9..12).and_then(|status| status.parse().ok());
    let answer = Answer {
        status: status.expect("a status"),
        head,
        body,
    };
    let length: usize = match answer.field("content-length") {
        Some(length) => length.parse().expect("a number"),
        None => 0,
    };
    assert!(
        answer.body.len() <= length,
        "more than was promised: {}",
        answer.head
    );
    match answer.body.len() == length {
        true => Got::Whole(answer),
        false => Got::Cut(answer),
    }
}
