// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of clients and of connections, with the program itself.

mod program;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use program::{connect_from, wait_until, Answer, Program};

const FIRST: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 2);
const EXEMPT: Ipv4Addr = Ipv4Addr::new(127, 9, 0, 1);

fn program(limits: &str) -> Program {
    let config =
        format!("loops = 2\nlimits = {{ {limits}, exempt = [\"127.9.0.0/16\"] }}\n[[server]]\n");
    Program::start(&config, &[("root/a", "of a")])
}

/// Whether a request by a connection that stays open is answered.
fn is_served(stream: &mut TcpStream) -> bool {
    let request = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut answer = [0; 12];
    // What is closed at once may be reset.
    let done = stream
        .write_all(request)
        .and_then(|()| stream.read_exact(&mut answer));
    done.is_ok() && &answer == b"HTTP/1.1 200"
}

#[test]
fn a_client_has_so_many_connections_in_all_loops() {
    let program = program("connections = 3");
    let mut open: Vec<TcpStream> = (0..3)
        .map(|_| connect_from(FIRST, program.address))
        .collect();
    assert!(open.iter_mut().all(is_served));
    for _ in 0..4 {
        assert!(!is_served(&mut connect_from(FIRST, program.address)));
    }
    assert_eq!(program.count("flash_limited_connections_total"), 4);
    assert!(is_served(&mut connect_from(SECOND, program.address)));
    let mut many: Vec<TcpStream> = (0..9)
        .map(|_| connect_from(EXEMPT, program.address))
        .collect();
    assert!(many.iter_mut().all(is_served));
    // Who closes one may open another.
    open.pop();
    wait_until("the place is free", || {
        is_served(&mut connect_from(FIRST, program.address))
    });
}

/// What has nothing to do makes room for others, and the counters can be read in any case.
#[test]
fn idle_connections_keep_nobody_out() {
    let config = "loops = 1\nconnections = 2\n[[server]]\n";
    let program = Program::start(config, &[("root/a", "of a")]);
    let mut idle: Vec<TcpStream> = (0..2).map(|_| program.connect()).collect();
    assert!(idle.iter_mut().all(is_served));
    assert_eq!(program.count("flash_closed_idle_total"), 0);
    let began = Instant::now();
    assert!(is_served(&mut program.connect()));
    assert!(began.elapsed() > Duration::from_millis(500));
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(program.count("flash_closed_idle_total") > 0);
    // One whose request has begun is not idle.
    let mut busy: Vec<TcpStream> = (0..2).map(|_| program.connect()).collect();
    for stream in &mut busy {
        let request = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /a HTTP/1.1\r\n";
        stream.write_all(request).expect("it reads");
        assert_eq!(Answer::next(stream).status, 200);
    }
    std::thread::sleep(Duration::from_millis(1500));
    let _waits = program.connect();
    assert!(program.count("flash_connections") >= 2);
    for stream in &mut busy {
        stream.write_all(b"Host: a\r\n\r\n").expect("it reads");
        assert_eq!(Answer::next(stream).status, 200);
    }
}

#[test]
fn new_connections_have_a_rate() {
    let program = program("new_connections = 2");
    let began = Instant::now();
    let served = (0..10).filter(|_| is_served(&mut connect_from(FIRST, program.address)));
    let served = served.count() as u64;
    // The bucket's two, and two for each second since.
    let most = 3 + 2 * began.elapsed().as_secs();
    assert!((2..=most).contains(&served), "{served} of {most}");
    assert_eq!(
        program.count("flash_limited_new_connections_total"),
        10 - served
    );
    wait_until("the bucket fills", || {
        is_served(&mut connect_from(FIRST, program.address))
    });
    let all = (0..10).filter(|_| is_served(&mut connect_from(EXEMPT, program.address)));
    assert_eq!(all.count(), 10);
}

#[test]
fn requests_have_a_rate_and_a_burst() {
    let program = program("requests = 1, request_burst = 5");
    let began = Instant::now();
    let mut limited = 0;
    for _ in 0..12 {
        let answer = program.ask_from(FIRST, "GET", "/a", "");
        match answer.status {
            200 => {}
            status => {
                assert_eq!((status, answer.field("Retry-After")), (429, Some("1")));
                limited += 1;
            }
        }
    }
    let most = 6 + began.elapsed().as_secs();
    let served = 12 - limited;
    assert!((5..=most).contains(&served), "{served} of {most}");
    assert_eq!(program.count("flash_limited_requests_total"), limited);
    assert_eq!(program.ask_from(SECOND, "GET", "/a", "").status, 200);
    for _ in 0..12 {
        assert_eq!(program.ask_from(EXEMPT, "GET", "/a", "").status, 200);
    }
    wait_until("the bucket fills", || {
        program.ask_from(FIRST, "GET", "/a", "").status == 200
    });
}

/// A refused request leaves the connection open, and all of its requests count.
#[test]
fn a_limited_request_is_answered_on_its_connection() {
    let program = program("requests = 1");
    let mut stream = connect_from(FIRST, program.address);
    let request = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3);
    let last = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream
        .write_all((request + last).as_bytes())
        .expect("it reads");
    let mut answers = String::new();
    stream.read_to_string(&mut answers).expect("answers");
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 4, "{answers}");
    assert!(answers.starts_with("HTTP/1.1 200 "), "{answers}");
    assert!(answers.contains("HTTP/1.1 429 "), "{answers}");
}

/// A connection gets its bytes at the rate that is set, whole, while others are served at once.
#[test]
fn a_connection_has_a_rate() {
    let config = "loops = 1\n[[server]]\n[[server.location]]\npath = \"/slow\"\nrate = \"64K\"\n";
    let content: String = (0..16_000).map(|number| format!("{number:07}\n")).collect();
    let program = Program::start(config, &[("root/slow/a", &content), ("root/a", &content)]);
    let began = Instant::now();
    let mut stream = connect_from(FIRST, program.address);
    let request = b"GET /slow/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("it reads");
    let fast = program.ask("GET", "/a", "");
    assert!(fast.body == content);
    let slow = Answer::read(&mut stream);
    let took = began.elapsed();
    assert!(slow.body == content);
    // 125 KiB at 64 KiB a second, but for the first piece.
    assert!(took > Duration::from_millis(1700), "{took:?}");
}
