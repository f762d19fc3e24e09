// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that die, hang, and say what none may say.

use std::io::{Read, Write};
use std::time::Instant;

use super::exchange::{asking, bad, good, is_alive, pid, read_all, send};
use super::program::{wait_until, Answer, PATIENCE};
use super::support::{application, get};

#[test]
fn a_process_that_dies_is_replaced_and_its_client_learns_of_it() {
    let program = good(", processes = 1");
    let first = pid(&program);
    // Between two requests.
    kill(&first);
    let second = pid(&program);
    assert_ne!(second, first);
    // Before its answer.
    let answer = get(&program, "/app/die");
    assert_eq!(
        (answer.status, answer.field("Connection")),
        (502, Some("close"))
    );
    wait_until("the end of the process", || !is_alive(&second));
    // In the middle of it.
    assert_eq!(
        send(&program, b"GET /app/late-die HTTP/1.1\r\nHost: a\r\n\r\n"),
        None
    );
    assert_eq!(program.count("flash_upstream_cut_total"), 1);
    assert_eq!(program.count("flash_upstream_failures_total"), 2);
    // While it waits for the client to take more.
    let mut slow = asking(&program, "/app/large");
    slow.read_exact(&mut [0; 1000]).expect("an answer");
    wait_until("a connection that is lent", || {
        program.count("flash_application_connections") == 1
    });
    let third = child_of(&program);
    kill(&third);
    assert_eq!(read_all(&mut slow), None);
    // While another request waits for it.
    let mut waiting = asking(&program, "/app/wait");
    wait_until("a request", || program.path("waits").exists());
    let mut next = asking(&program, "/app/pid");
    kill(&child_of(&program));
    assert_eq!(Answer::read(&mut waiting).status, 502);
    assert!(is_alive(&Answer::read(&mut next).body));
    assert_eq!(program.count("flash_application_connections"), 0);
    assert!(program
        .end()
        .contains("was ended by SIGKILL; the next one begins in "));
}

fn kill(pid: &str) {
    let done = std::process::Command::new("kill")
        .args(["-9", pid])
        .status();
    assert!(done.expect("kill can be executed").success());
    wait_until("its end", || !is_alive(pid));
}

/// The process of the application that works.
fn child_of(program: &super::program::Program) -> String {
    let mut found = String::new();
    wait_until("a process", || {
        let name = program.path("good.py");
        let all = std::fs::read_dir("/proc").expect("it is there").flatten();
        let its = all.filter(|entry| {
            let place = entry.path().join("cwd");
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            std::fs::read_link(place).is_ok_and(|at| Some(at.as_path()) == name.parent())
                && line.ends_with(b"good.py\0")
        });
        let pids: Vec<_> = its.map(|entry| entry.file_name().into_string()).collect();
        found = pids.into_iter().flatten().next().unwrap_or_default();
        !found.is_empty()
    });
    found
}

#[test]
fn an_error_of_the_program_is_an_answer_or_a_cut() {
    let program = good(", processes = 1");
    let before = pid(&program);
    assert_eq!(get(&program, "/app/error").status, 500);
    assert_eq!(get(&program, "/app/split").status, 500);
    let get = b"GET /app/late-error HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(send(&program, get), None);
    let get = b"GET /app/short HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(send(&program, get), None);
    assert_eq!(pid(&program), before);
    assert!(program.end().contains("said by the application"));
}

#[test]
fn a_process_that_hangs_is_killed() {
    let program = good(", processes = 1, silence = \"500ms\"");
    let before = pid(&program);
    let began = Instant::now();
    let answer = get(&program, "/app/hang");
    assert_eq!(answer.status, 504);
    assert!(began.elapsed() < PATIENCE);
    wait_until("the end of the process", || !is_alive(&before));
    assert_eq!(
        send(&program, b"GET /app/late-hang HTTP/1.1\r\nHost: a\r\n\r\n"),
        None
    );
    // One that says that it works may take longer.
    assert_eq!(get(&program, "/app/slow").body, "done");
    assert_eq!(program.count("flash_upstream_timeouts_total"), 2);
    let program = good(", processes = 1, time = \"300ms\"");
    assert_eq!(get(&program, "/app/slow").status, 504);
    assert_eq!(program.count("flash_application_connections"), 0);
}

#[test]
fn what_no_process_may_say_ends_it() {
    let program = bad(", processes = 1");
    assert_eq!(get(&program, "/app/fine").body, "ok");
    for path in ["garbage", "much", "long", "number", "hello", "status"] {
        let request = format!("GET /app/{path} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(send(&program, request.as_bytes()), None, "{path}");
        assert_eq!(get(&program, "/app/fine").body, "ok", "{path}");
    }
    // It has not written, and cannot say any more that it will.
    assert_eq!(get(&program, "/app/closes").status, 502);
    assert_eq!(
        send(&program, b"GET /app/half HTTP/1.1\r\nHost: a\r\n\r\n"),
        None
    );
    // The answer is whole. What the process says behind it may come when it has the next request, which is lost then.
    assert_eq!(get(&program, "/app/twice").body, "ok");
    let fine = b"GET /app/fine HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    wait_until("another process", || {
        send(&program, fine).is_some_and(|all| all.ends_with("ok"))
    });
    // Bytes that were not read would be taken for the next request.
    let mut stream = program.connect();
    stream
        .write_all(
            b"GET /app/unread HTTP/1.1\r\nHost: a\r\n\r\nGET /file HTTP/1.1\r\nHost: a\r\n\r\n",
        )
        .expect("it reads");
    let all = read_all(&mut stream).expect("an answer");
    assert!(all.ends_with("\r\n\r\nok"), "{all}");
    assert_eq!(program.count("flash_application_connections"), 0);
}

#[test]
fn without_a_process_the_answer_is_503() {
    for mode in ["silent", "garbage", "later", "ends"] {
        let settings =
            format!(", processes = 1, wait = \"300ms\", params = {{ MODE = \"{mode}\" }}");
        let program = application(&format!("bad.py\", \"{mode}"), &settings, "");
        let answer = get(&program, "/app/fine");
        assert_eq!(answer.status, 503, "{mode}");
        wait_until("an empty queue", || {
            program.count("flash_application_waiting") == 0
        });
        assert_eq!(program.count("flash_upstream_full_total"), 1, "{mode}");
    }
}
