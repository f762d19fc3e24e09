// SPDX-License-Identifier: MIT OR Apache-2.0
//! The access log as objects of JSON.

use std::fs;
use std::io::{Read, Write};

use crate::running::{connect, wait_until, Place, Running};

#[test]
fn a_request_whose_client_goes_away_is_one_object_too() {
    // An upstream that does not answer.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let config = format!(
        "loops = 1\nlog = \"logs/log\"\nlog_format = \"json\"\n\
         [[server]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"a\"\n\
         [[server.location]]\npath = \"/slow\"\nproxy = \"http://{address}\"\n"
    );
    let place = Place::new(&config);
    let flash = Running::start(&place);
    let text = || fs::read_to_string(place.at("logs/log")).unwrap_or_default();
    let mut stream = connect(flash.address());
    stream
        .write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("it reads");
    let (_upstream, _) = silent.accept().expect("the request");
    // A reset: the end of its side alone would be no end.
    let reset = Some(std::time::Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&stream, reset).expect("a socket");
    drop(stream);
    wait_until("a line", || text().lines().count() == 1);
    let object: serde_json::Value = serde_json::from_str(&text()).expect("an object");
    assert_eq!(object["status"], 499);
    assert_eq!(object["bytes"], 0);
    assert_eq!(object["target"], "/slow");
}

#[test]
fn each_request_is_one_object() {
    let config = "loops = 1\nlog = \"logs/log\"\nlog_format = \"json\"\n\
                  [[server]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"a\"\n";
    let place = Place::new(config);
    let flash = Running::start(&place);
    let requests: [&[u8]; 4] = [
        b"GET /?%22 HTTP/1.1\r\nHost: A.test:80\r\nUser-Agent: a\"\\\xff\xe2\x80\xa8\t\r\nConnection: close\r\n\r\n",
        b"HEAD /none HTTP/1.0\r\nReferer: \x9b[2J\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ];
    for request in requests {
        let mut stream = connect(flash.address());
        stream.write_all(request).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
    }
    let text = || fs::read_to_string(place.at("logs/log")).expect("it is there");
    wait_until("all lines", || text().lines().count() == requests.len());
    let text = text();
    let objects: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    let keys: Vec<&String> = objects[0].as_object().expect("an object").keys().collect();
    for object in &objects {
        let its: Vec<&String> = object.as_object().expect("an object").keys().collect();
        assert_eq!(its, keys);
        assert_eq!(object["client"], "127.0.0.1");
        assert!(object["tls"].is_null());
    }
    let statuses: Vec<u64> = objects
        .iter()
        .filter_map(|object| object["status"].as_u64())
        .collect();
    assert_eq!(statuses, [200, 404, 400, 400], "{text}");
    assert_eq!(objects[0]["host"], "a.test");
    assert_eq!(objects[0]["user_agent"], "a\"\\\u{fffd}\u{2028}");
    assert!(objects[1]["duration_us"].is_u64(), "{text}");
    assert_eq!(objects[1]["method"], "HEAD");
    assert_eq!(objects[1]["target"], "/none");
    assert!(objects[2]["method"].is_null() && objects[2]["duration_us"].is_null());
}
