// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests whose upstreams do not do what they should.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::client::{status, Client};

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().expect("a connection");
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).expect("a socket");
    stream
}

/// An upstream that resets its connection before it has the head is no reason to leave the body out.
#[test]
fn a_request_that_is_sent_again_has_its_body() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut client = Client::with(&format!("proxy = \"http://{address}\""));
    client.send_connecting("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    let first = accept(&listener);
    // The loop has just seen that the connection is there.
    assert_eq!(client.context.links.is_connected(0), Ok(true));
    set_socket_linger(&first, Some(Duration::ZERO)).expect("a socket");
    drop(first);
    client.go_on();
    let mut second = accept(&listener);
    client.go_on();
    client.send("hello");
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\nhello") {
        let mut byte = [0];
        second.read_exact(&mut byte).expect("a body");
        request.push(byte[0]);
    }
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    second.write_all(answer).expect("it reads");
    client.go_on();
    assert_eq!(status(&client.received()), 200);
}

/// A body that is wrong is the client's, and so is the kind of the answer.
#[test]
fn a_wrong_body_is_answered_by_the_rules_of_its_location() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    for (method, body, expected) in [
        ("HEAD", "xyz\r\n", 400),
        ("POST", "xyz\r\n", 400),
        ("POST", "5\r\n12345\r\n5\r\n12345\r\n", 413),
    ] {
        let mut client = Client::with(&format!(
            "headers = {{ X-Own = \"1\" }}\nproxy = \"http://{address}\"\nupstream = {{ body = \"8\" }}"
        ));
        let request =
            format!("{method} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        let answer = client.send(&request);
        let (head, rest) = answer.split_once("\r\n\r\n").expect("a head");
        assert_eq!(status(head), expected, "{answer}");
        assert!(head.contains("\r\nX-Own: 1"), "{answer}");
        assert!(head.contains("\r\nConnection: close"), "{answer}");
        assert_eq!(rest.is_empty(), method == "HEAD", "{answer}");
    }
}

/// How long a client that sends so many bytes of a body each ten seconds has its upstream, in seconds, up to 200.
fn has_upstream_for(bytes: usize) -> u64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut client = Client::with(&format!("proxy = \"http://{address}\""));
    client.send_connecting("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    let mut upstream = accept(&listener);
    client.go_on();
    for seconds in (10..=200).step_by(10) {
        client.context.now = seconds * 1000;
        let answer = client.send(&"x".repeat(bytes));
        assert_eq!(answer, "");
        while upstream
            .read(&mut [0; 20_000])
            .is_ok_and(|length| length == 20_000)
        {}
        if client.connection.deadline <= client.context.now + 9_999 {
            client.context.now = client.connection.deadline;
            client.connection.expire(0, &mut client.context);
            assert_eq!(status(&client.received()), 408);
            return seconds;
        }
    }
    200
}

#[test]
fn a_slow_body_does_not_have_its_upstream_for_ever() {
    assert!((50..=70).contains(&has_upstream_for(1)));
    // Three fifths of the least rate.
    assert!((120..=140).contains(&has_upstream_for(3000)));
    assert_eq!(has_upstream_for(6000), 200);
}
