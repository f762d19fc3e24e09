// SPDX-License-Identifier: MIT OR Apache-2.0
//! Basic authentication, with the program itself.

mod program;

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};

use base64::prelude::{Engine, BASE64_STANDARD};
use program::{check, connect_from, read, wait_until, Answer, Program};

/// Of `sesame`, cheap to check.
const SHA: &str = "$5$abcdefgh$4PbtPZdUc33o7LmNsM4HTsjYbIhyCeh4aCe.rEbHkq1";

const CONFIG: &str = r#"
loops = 1
log = "access.log"

[[server]]
auth = { realm = "Staff only", users = "users" }

[[server.location]]
path = "/public"
auth = false
"#;

/// Of `sesame`, at a cost of which a check takes long enough to be waited for.
fn slow() -> String {
    bcrypt::hash("sesame", 10).expect("a cost that is allowed")
}

fn program(config: &str, users: &str) -> Program {
    let files = [
        ("users", users),
        ("root/a", "of a"),
        ("root/public/b", "of b"),
    ];
    Program::start(config, &files)
}

fn basic(user: &str, password: &str) -> String {
    let pair = BASE64_STANDARD.encode(format!("{user}:{password}"));
    format!("Authorization: Basic {pair}\r\n")
}

/// Without what differs from answer to answer.
fn without_date(answer: &Answer) -> String {
    let lines = answer
        .head
        .lines()
        .filter(|line| !line.starts_with("Date: "));
    lines.collect::<Vec<_>>().join("\n") + &answer.body
}

#[test]
fn who_has_no_password_learns_nothing() {
    let program = program(CONFIG, &format!("ann:{SHA}\n"));
    let mut answers = Vec::new();
    for fields in [
        "",
        &basic("ann", "wrong"),
        &basic("bob", "sesame"),
        &basic("", ""),
    ] {
        for target in ["/a", "/none", "/.git", "/", "/public/../a"] {
            for more in ["", "Range: bytes=0-0\r\n", "If-None-Match: *\r\n"] {
                let answer = program.ask("GET", target, &format!("{fields}{more}"));
                assert_eq!(answer.status, 401, "{target} {fields}{more}");
                answers.push(without_date(&answer));
            }
        }
        for method in ["OPTIONS", "POST", "DELETE"] {
            let answer = program.ask(method, "/a", fields);
            answers.push(without_date(&answer));
        }
        let head = program.ask("HEAD", "/a", fields);
        assert_eq!((head.status, head.body.as_str()), (401, ""));
    }
    answers.sort();
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    let challenge = "WWW-Authenticate: Basic realm=\"Staff only\", charset=\"UTF-8\"";
    assert!(answers[0].contains(challenge), "{answers:?}");
    assert_eq!(program.ask("GET", "/public/b", "").body, "of b");
}

#[test]
fn who_has_it_is_served_and_named_in_the_log() {
    let program = program(CONFIG, &format!("Jo Doe:{SHA}\n"));
    for _ in 0..3 {
        assert_eq!(
            program.ask("GET", "/a", &basic("Jo Doe", "sesame")).body,
            "of a"
        );
    }
    // Only the first one was checked.
    assert_eq!(
        program.count("flash_helper_jobs_total{pool=\"passwords\"}"),
        1
    );
    assert_eq!(
        program.ask("GET", "/a", &basic("Jo Doe", "hidden")).status,
        401
    );
    assert_eq!(
        program
            .ask("GET", "/none", &basic("Jo Doe", "sesame"))
            .status,
        404
    );
    assert_eq!(
        program
            .ask("OPTIONS", "/a", &basic("Jo Doe", "sesame"))
            .status,
        204
    );
    assert_eq!(program.count("flash_wrong_passwords_total"), 1);
    let log = program.path("access.log");
    let named = |line: &&str| line.starts_with("127.0.0.1 - Jo\\x20Doe [");
    wait_until("the log", || read(&log).lines().filter(named).count() == 5);
    let log = read(&log);
    let wrong = "127.0.0.1 - - [";
    let is_wrong = |line: &&str| line.starts_with(wrong) && line.contains(" /a HTTP/1.1\" 401 ");
    assert_eq!(log.lines().filter(is_wrong).count(), 1, "{log}");
    let errors = program.end();
    for text in [log, errors] {
        let secrets = ["sesame", "hidden", "Basic", "Sm8g"];
        assert!(
            !secrets.iter().any(|secret| text.contains(secret)),
            "{text}"
        );
    }
}

#[test]
fn what_is_remembered_is_forgotten_with_the_file() {
    let program = program(CONFIG, &format!("ann:{SHA}\n"));
    let ask = |password: &str| program.ask("GET", "/a", &basic("ann", password)).status;
    assert_eq!((ask("sesame"), ask("sesame")), (200, 200));
    // A file that is wrong changes nothing.
    fs::write(program.path("users"), "ann:plain\n").expect("room");
    program.signal("-HUP");
    wait_until("the configuration is refused", || {
        program.count("flash_reloads_refused_total") == 1
    });
    assert_eq!(ask("sesame"), 200);
    let other = bcrypt::hash("other", 4).expect("a cost that is allowed");
    fs::write(program.path("users"), format!("ann:{other}\n")).expect("room");
    program.load_again();
    assert_eq!((ask("sesame"), ask("other")), (401, 200));
    fs::write(program.path("users"), "").expect("room");
    program.load_again();
    assert_eq!(ask("other"), 401);
}

/// Asks, and does not wait for the answer.
fn flood(program: &Program, from: Ipv4Addr, count: usize) -> Vec<TcpStream> {
    let ask = |number: usize| {
        let mut stream = connect_from(from, program.address);
        let fields = basic(&format!("user-{number}"), "wrong");
        let request = format!("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        stream
    };
    (0..count).map(ask).collect()
}

/// One client's checks are few, so another client's turn comes soon; files do not wait at all.
#[test]
fn a_flood_of_wrong_passwords_has_its_bounds() {
    let config = format!("passwords = {{ threads = 1, queue = 8, per_client = 2 }}\n{CONFIG}");
    let program = program(&config, &format!("ann:{}\n", slow()));
    let flooding = Ipv4Addr::new(127, 0, 0, 2);
    let mut streams = flood(&program, flooding, 40);
    assert_eq!(program.ask("GET", "/public/b", "").body, "of b");
    assert_eq!(
        program.ask("GET", "/a", &basic("ann", "sesame")).body,
        "of a"
    );
    let mut statuses: Vec<u16> = Vec::new();
    for stream in &mut streams {
        let answer = Answer::read(stream);
        if answer.status == 429 {
            assert_eq!(answer.field("Retry-After"), Some("1"));
        }
        statuses.push(answer.status);
    }
    let limited = statuses.iter().filter(|status| **status == 429).count();
    let wrong = statuses.iter().filter(|status| **status == 401).count();
    assert_eq!(limited + wrong, 40, "{statuses:?}");
    assert!(limited > 0 && wrong >= 2, "{statuses:?}");
    assert_eq!(
        program.count("flash_passwords_limited_total"),
        limited as u64
    );
}

/// Many clients can fill the queue; then 503 is the answer, and who is remembered does not notice.
#[test]
fn a_full_queue_does_not_delay_who_is_known() {
    let config = format!("passwords = {{ threads = 1, queue = 2, per_client = 1024 }}\n{CONFIG}");
    let program = program(&config, &format!("ann:{}\n", slow()));
    assert_eq!(
        program.ask("GET", "/a", &basic("ann", "sesame")).status,
        200
    );
    let mut streams = flood(&program, Ipv4Addr::LOCALHOST, 40);
    assert_eq!(
        program.ask("GET", "/a", &basic("ann", "sesame")).status,
        200
    );
    let statuses = streams.iter_mut().map(|stream| Answer::read(stream).status);
    let statuses: Vec<u16> = statuses.collect();
    let full = statuses.iter().filter(|status| **status == 503).count();
    assert!(
        full > 0 && statuses.iter().all(|status| [401, 503].contains(status)),
        "{statuses:?}"
    );
    assert_eq!(program.count("flash_refused_total"), full as u64);
}

#[test]
fn hostile_fields_are_answered() {
    let program = program(CONFIG, &format!("ann:{SHA}\n"));
    let long = "A".repeat(12_000);
    for value in [
        "Basic".to_string(),
        "Basic ====".to_string(),
        format!("Basic {long}"),
        "Basic \u{e9}\u{e9}".to_string(),
        format!(
            "{} x",
            basic("ann", "sesame")
                .trim_start_matches("Authorization: ")
                .trim()
        ),
        "Bearer x".to_string(),
    ] {
        let answer = program.ask("GET", "/a", &format!("Authorization: {value}\r\n"));
        assert_eq!(answer.status, 401, "{value}");
    }
    let twice = format!("{}{}", basic("ann", "sesame"), basic("ann", "sesame"));
    assert_eq!(program.ask("GET", "/a", &twice).status, 401);
    assert_eq!(
        program.ask("GET", "/a", &basic("ann", "sesame")).status,
        200
    );
}

#[test]
fn check_refuses_weak_hashes() {
    let config =
        "[[server]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"root\"\nauth = { users = \"users\" }\n";
    let error = check(config, &[("users", "# staff\nann:hunter2\n")]);
    assert!(
        error.contains("users, line 2: ") && error.contains("htpasswd -B"),
        "{error}"
    );
    assert!(!error.contains("hunter2"), "{error}");
}
