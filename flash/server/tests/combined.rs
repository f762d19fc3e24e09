// SPDX-License-Identifier: MIT OR Apache-2.0
//! What several features have to do together: reloads, passwords, limits of clients and upstreams.

mod program;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use base64::prelude::{Engine, BASE64_STANDARD};
use program::{connect_from, read, wait_until, Answer, Program, PATIENCE};

/// Of `sesame`, cheap to check.
const SHA: &str = "$5$abcdefgh$4PbtPZdUc33o7LmNsM4HTsjYbIhyCeh4aCe.rEbHkq1";
const CHECKS: &str = "flash_helper_jobs_total{pool=\"passwords\"}";

fn basic(user: &str, password: &str) -> String {
    let pair = BASE64_STANDARD.encode(format!("{user}:{password}"));
    format!("Authorization: Basic {pair}\r\n")
}

/// A request on a connection that goes on.
fn ask(stream: &mut TcpStream, method: &str, target: &str, fields: &str) -> Answer {
    let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    Answer::next(stream)
}

/// All earlier loops have ended, so nothing can depend on them.
fn wait_for_the_last_configuration(program: &Program) {
    wait_until("the earlier configuration has ended", || {
        program.count("flash_configurations_draining") == 0
    });
}

/// An upstream whose answers a test writes by hand.
struct Upstream {
    listener: TcpListener,
}

impl Upstream {
    fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        Upstream { listener }
    }

    fn setting(&self) -> String {
        let address = self.listener.local_addr().expect("an address");
        format!("proxy = \"http://{address}\"\n")
    }

    /// The next connection, and the head of its request.
    fn request(&self) -> (TcpStream, String) {
        let (mut stream, _) = self.listener.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let head = until(&mut stream, "\r\n\r\n");
        (stream, head)
    }

    fn has_no_request(&self) -> bool {
        self.listener.set_nonblocking(true).expect("a socket");
        let accepted = self.listener.accept();
        self.listener.set_nonblocking(false).expect("a socket");
        accepted.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(end.as_bytes()) {
        stream.read_exact(&mut byte).expect("more");
        bytes.push(byte[0]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_reload_asks_open_connections_for_passwords() {
    let open = "loops = 2\n[[server]]\n";
    let closed = format!("{open}auth = {{ users = \"users\" }}\n");
    let files = [
        ("root/a", "of a"),
        ("users", &format!("ann:{SHA}\n") as &str),
    ];
    let program = Program::start(open, &files);
    let mut stream = program.connect();
    assert_eq!(ask(&mut stream, "GET", "/a", "").body, "of a");
    program.load(&closed);
    assert_eq!(ask(&mut stream, "GET", "/a", "").status, 401);
    let ann = basic("ann", "sesame");
    assert_eq!(ask(&mut stream, "GET", "/a", &ann).body, "of a");
    assert_eq!(program.count(CHECKS), 1);
    // Whose file has not changed is known to the next threads.
    program.load_again();
    wait_for_the_last_configuration(&program);
    assert_eq!(ask(&mut stream, "GET", "/a", &ann).body, "of a");
    assert_eq!(program.count(CHECKS), 1);
    let other = bcrypt::hash("other", 4).expect("a cost that is allowed");
    fs::write(program.path("users"), format!("ann:{other}\n")).expect("room");
    program.load_again();
    assert_eq!(ask(&mut stream, "GET", "/a", &ann).status, 401);
    let now = basic("ann", "other");
    assert_eq!(ask(&mut stream, "GET", "/a", &now).body, "of a");
    program.load(open);
    assert_eq!(ask(&mut stream, "GET", "/a", "").body, "of a");
}

/// A request whose body is still coming is judged by the configuration that has read its head.
#[test]
fn a_reload_in_the_middle_of_a_requests_body() {
    let open = "loops = 1\n[[server]]\n";
    let closed = format!("{open}auth = {{ users = \"users\" }}\n");
    let files = [
        ("root/a", "of a"),
        ("users", &format!("ann:{SHA}\n") as &str),
    ];
    let program = Program::start(&closed, &files);
    let bodies = [basic("ann", "sesame"), basic("ann", "wrong")].map(|fields| {
        let mut stream = program.connect();
        let head = format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n{fields}\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        stream.write_all(b"half").expect("it reads");
        stream
    });
    // The one loop has read both by now.
    assert_eq!(program.ask("GET", "/a", "").status, 401);
    program.load(open);
    for (mut stream, status) in bodies.into_iter().zip([405, 401]) {
        stream.write_all(b"rest").expect("it reads");
        assert_eq!(Answer::next(&mut stream).status, status);
        assert_eq!(ask(&mut stream, "GET", "/a", "").body, "of a");
    }
    wait_for_the_last_configuration(&program);
}

#[test]
fn a_file_of_users_that_is_wrong_changes_nothing() {
    let config = "[[server]]\nauth = { users = \"users\" }\n";
    let files = [
        ("root/a", "of a"),
        ("users", &format!("ann:{SHA}\n") as &str),
    ];
    let program = Program::start(config, &files);
    fs::write(program.path("users"), "ann:plain\n").expect("room");
    program.signal("-HUP");
    wait_until("the configuration is refused", || {
        program.count("flash_reloads_refused_total") == 1
    });
    let answer = program.ask("GET", "/a", &basic("ann", "sesame"));
    assert_eq!(answer.body, "of a");
    let errors = program.end();
    assert!(errors.contains("users, line 1: "), "{errors}");
    assert!(!errors.contains("plain\n"), "{errors}");
}

#[test]
fn a_client_keeps_its_connections_across_reloads() {
    let limited = |most: u32, clients: u32| {
        format!("loops = 2\nlimits = {{ connections = {most}, clients = {clients} }}\n[[server]]\n")
    };
    let program = Program::start(&limited(2, 1024), &[("root/a", "of a")]);
    let client = Ipv4Addr::new(127, 0, 0, 9);
    let mut streams = [0, 1].map(|_| connect_from(client, program.address));
    let all_are_served = |streams: &mut [TcpStream]| {
        for stream in streams {
            assert_eq!(ask(stream, "GET", "/a", "").body, "of a");
        }
    };
    let is_refused = || {
        let mut stream = connect_from(client, program.address);
        let _ = stream.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).is_err() || answer.is_empty()
    };
    all_are_served(&mut streams);
    assert!(is_refused());
    // The same table, a lower limit, and a table of another size.
    for config in [limited(2, 1024), limited(1, 1024), limited(1, 2048)] {
        program.load(&config);
        wait_for_the_last_configuration(&program);
        all_are_served(&mut streams);
        assert!(is_refused(), "{config}");
    }
    program.load("loops = 2\n[[server]]\n");
    wait_for_the_last_configuration(&program);
    assert!(!is_refused());
    program.load(&limited(2, 1024));
    wait_for_the_last_configuration(&program);
    assert!(is_refused());
    drop(streams);
    wait_until("the places are free again", || !is_refused());
}

/// What refuses a request does so before the upstream hears of it, and before its body is read.
#[test]
fn an_upstream_is_behind_access_passwords_and_methods() {
    let upstream = Upstream::start();
    let to = upstream.setting();
    let config = format!(
        "loops = 1\nlog = \"access.log\"\n[[server]]\n\
         [[server.location]]\npath = \"/staff\"\nauth = {{ users = \"users\" }}\n{to}\
         [[server.location]]\npath = \"/none\"\ndeny = [\"127.0.0.0/8\"]\n{to}\
         [[server.location]]\npath = \"/read\"\nmethods = [\"GET\"]\n{to}"
    );
    let users = format!("ann:{SHA}\n");
    let program = Program::start(&config, &[("users", &users)]);
    let post = |target: &str, fields: &str| {
        let fields = format!("Content-Length: 5\r\nExpect: 100-continue\r\n{fields}");
        program.ask("POST", target, &fields)
    };
    let wrong = basic("ann", "wrong");
    for (target, fields, status) in [
        ("/staff/a", "", 401),
        ("/staff/a", wrong.as_str(), 401),
        ("/none/a", "", 403),
        ("/read/a", "", 405),
    ] {
        let answer = post(target, fields);
        assert_eq!(answer.status, status, "{target} {fields}");
    }
    assert_eq!(post("/read/a", "").field("Allow"), Some("GET, HEAD"));
    assert!(upstream.has_no_request());
    let mut stream = program.connect();
    let fields = basic("ann", "sesame");
    let request =
        format!("POST /staff/a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n{fields}\r\nhello");
    stream.write_all(request.as_bytes()).expect("it reads");
    let (mut taken, head) = upstream.request();
    assert!(head.starts_with("POST /staff/a HTTP/1.1\r\n"), "{head}");
    assert_eq!(until(&mut taken, "hello"), "hello");
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    taken.write_all(answer).expect("it reads");
    assert_eq!(Answer::next(&mut stream).body, "ok");
    let log = program.path("access.log");
    wait_until("the log names the user", || {
        read(&log).contains("127.0.0.1 - ann [")
    });
}

#[test]
fn an_upstream_is_behind_limits_of_clients() {
    let upstream = Upstream::start();
    let config = format!(
        "limits = {{ requests = 1, request_burst = 1 }}\n[[server]]\n\
         [[server.location]]\npath = \"/\"\n{}",
        upstream.setting()
    );
    let program = Program::start(&config, &[]);
    let mut stream = program.connect();
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it reads");
    let (mut taken, _) = upstream.request();
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    taken.write_all(answer).expect("it reads");
    assert_eq!(Answer::next(&mut stream).body, "ok");
    // A second is long, even if the first answer took a part of it.
    let statuses = [0, 1, 2, 3].map(|_| program.ask("POST", "/", "Content-Length: 0\r\n"));
    assert!(statuses.iter().any(|answer| answer.status == 429));
}

/// The rate holds for what an upstream answers, too: so many bytes cannot come at once.
#[test]
fn an_upstreams_answer_has_the_rate_of_its_location() {
    let upstream = Upstream::start();
    let config = format!(
        "[[server]]\n[[server.location]]\npath = \"/\"\nrate = \"64K\"\n{}",
        upstream.setting()
    );
    let program = Program::start(&config, &[]);
    let mut stream = program.connect();
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it reads");
    let (mut taken, _) = upstream.request();
    let began = std::time::Instant::now();
    let body = "x".repeat(96 << 10);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    taken.write_all(answer.as_bytes()).expect("it reads");
    assert_eq!(Answer::next(&mut stream).body, body);
    // 96 KiB at 64 KiB a second, of which a piece comes at once.
    assert!(began.elapsed().as_millis() >= 1000);
}

/// An answer that has begun goes on in the next loops, and the connection with it.
#[test]
fn a_reload_in_the_middle_of_an_upstreams_answer() {
    let upstream = Upstream::start();
    let location = format!(
        "[[server.location]]\npath = \"/app\"\n{}",
        upstream.setting()
    );
    let first = format!("loops = 2\n[[server]]\n{location}");
    let program = Program::start(&first, &[("root/a", "of a"), ("users", "")]);
    let mut stream = program.connect();
    let request = "POST /app HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf";
    stream.write_all(request.as_bytes()).expect("it reads");
    let (mut taken, _) = upstream.request();
    assert_eq!(until(&mut taken, "half"), "half");
    // The request is on its way, as is another client's answer.
    let mut other = program.connect();
    let request = "GET /app HTTP/1.1\r\nHost: a\r\n\r\n";
    other.write_all(request.as_bytes()).expect("it reads");
    let (mut second, _) = upstream.request();
    let begin = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345";
    second.write_all(begin).expect("it reads");
    assert!(until(&mut other, "12345").starts_with("HTTP/1.1 200 "));
    // Nobody has a password for it from now on.
    program.load(&first.replace("path =", "auth = { users = \"users\" }\npath ="));
    wait_for_the_last_configuration(&program);
    wait_until(
        "the connections to the upstream are the next loops'",
        || program.count("flash_upstream_connections") == 2,
    );
    second.write_all(b"67890").expect("it reads");
    assert_eq!(until(&mut other, "67890"), "67890");
    stream.write_all(b"rest").expect("it reads");
    assert_eq!(until(&mut taken, "rest"), "rest");
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    taken.write_all(answer).expect("it reads");
    assert_eq!(Answer::next(&mut stream).body, "ok");
    for stream in [&mut stream, &mut other] {
        assert_eq!(ask(stream, "GET", "/app", "").status, 401);
        assert_eq!(ask(stream, "GET", "/a", "").body, "of a");
    }
    assert_eq!(program.count("flash_upstream_cut_total"), 0);
}

/// A tunnel (as of WebSocket) outlives any number of configurations.
#[test]
fn a_tunnel_goes_on_across_reloads() {
    let upstream = Upstream::start();
    let config = format!(
        "timeouts = {{ grace = \"100ms\" }}\n[[server]]\n[[server.location]]\npath = \"/\"\n{}",
        upstream.setting()
    );
    let program = Program::start(&config, &[]);
    let mut stream = program.connect();
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it reads");
    let (mut taken, _) = upstream.request();
    let answer =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    taken.write_all(answer).expect("it reads");
    assert!(until(&mut stream, "\r\n\r\n").starts_with("HTTP/1.1 101 "));
    for round in 0..3 {
        program.load_again();
        wait_for_the_last_configuration(&program);
        let text = format!("<{round}>");
        stream.write_all(text.as_bytes()).expect("it reads");
        assert_eq!(until(&mut taken, ">"), text);
        taken.write_all(text.as_bytes()).expect("it reads");
        assert_eq!(until(&mut stream, ">"), text);
    }
    assert_eq!(program.count("flash_tunnels_total"), 1);
}

/// The sandbox of a configuration without upstreams does not let its loops go on with one, so the earlier loops do.
#[test]
fn an_answer_ends_although_its_upstream_is_configured_no_more() {
    let upstream = Upstream::start();
    let config = format!(
        "[[server]]\n[[server.location]]\npath = \"/app\"\n{}",
        upstream.setting()
    );
    let program = Program::start(&config, &[("root/app", "a file")]);
    let mut stream = program.connect();
    let request = "GET /app HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it reads");
    let (mut taken, _) = upstream.request();
    program.load("[[server]]\n");
    assert_eq!(program.ask("GET", "/app", "").body, "a file");
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    taken.write_all(answer).expect("it reads");
    assert_eq!(Answer::next(&mut stream).body, "ok");
    assert_eq!(ask(&mut stream, "GET", "/app", "").body, "a file");
    wait_for_the_last_configuration(&program);
}

#[test]
fn scripts_need_a_server_that_started_with_them() {
    let program = Program::start("[[server]]\n", &[("cgi/a", ""), ("root/a", "of a")]);
    let config = fs::read_to_string(program.path("flash.toml")).expect("it is there");
    let cgi = "[[server.location]]\npath = \"/cgi\"\ncgi = { root = \"cgi\" }\n";
    fs::write(program.path("flash.toml"), format!("{config}{cgi}")).expect("room");
    program.signal("-HUP");
    wait_until("the configuration is refused", || {
        program.count("flash_reloads_refused_total") == 1
    });
    assert_eq!(program.ask("GET", "/a", "").body, "of a");
    let errors = program.end();
    assert!(errors.contains("restart"), "{errors}");
}
