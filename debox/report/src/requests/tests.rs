// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;

fn call(tid: u32, at: u64, name: &str, args: [i64; 3], ret: i64) -> Call {
    Call {
        pid: 1,
        tid,
        name: name.into(),
        number: 1,
        start_ns: at,
        wall_ns: 10,
        args: args.map(|word| word as u64),
        ret,
        ..Call::default()
    }
}

fn read(calls: &[Call], rules: &[Rule]) -> Requests {
    let mut reader = Reader::new(rules);
    calls.iter().for_each(|one| reader.call(one));
    reader.finish()
}

/// An event loop that answers two requests of one connection.
fn served() -> Vec<Call> {
    let mut calls = vec![
        call(1, 0, "epoll_wait", [3, 0, 0], 1),
        call(1, 20, "accept4", [4, 0, 0], 9),
    ];
    for at in [100, 300] {
        calls.extend([
            call(1, at, "recvfrom", [9, 0, 0], 80),
            call(1, at + 20, "openat", [-100, 0, 0], 10),
            call(1, at + 40, "fstat", [10, 0, 0], 0),
            call(1, at + 60, "sendfile", [9, 10, 0], 1000),
            call(1, at + 80, "write", [5, 0, 0], 90),
            call(1, at + 100, "close", [10, 0, 0], 0),
            call(1, at + 120, "epoll_wait", [3, 0, 0], 1),
        ]);
    }
    calls.extend([
        call(1, 500, "recvfrom", [9, 0, 0], 0),
        call(1, 520, "close", [9, 0, 0], 0),
    ]);
    calls
}

#[test]
fn requests_are_found_on_their_connections() {
    let found = read(&served(), &[]);
    assert_eq!((found.connections, found.requests), (1, 2));
    // From the read to the close of the file, not to that of the connection.
    assert_eq!((found.min_ns, found.max_ns), (110, 110));
    let phases: Vec<(&str, u64)> = found
        .phases
        .iter()
        .map(|row| (&*row.phase, row.calls.iter().map(|call| call.count).sum()))
        .collect();
    let wanted = [
        ("read the request", 2),
        ("the program, between calls", 0),
        ("find the file", 6),
        ("send the response", 2),
        ("write to files (log)", 2),
    ];
    assert_eq!(phases, wanted);
    // Five gaps of 10 ns in each request.
    let program = found
        .phases
        .iter()
        .find(|row| row.phase.contains("program"));
    assert_eq!(program.map(|row| row.wall_ns), Some(2 * 50));
    // The parts are the whole.
    let parts: u64 = found.phases.iter().map(|row| row.wall_ns).sum();
    assert_eq!((parts, found.elsewhere_ns), (2 * 110, 0));
    assert_eq!(found.example.len(), 6);
    assert_eq!(
        (found.example[1].at_ns, &*found.example[1].call),
        (20, "openat")
    );
    let outside: u64 = found.outside.iter().map(|row| row.count).sum();
    assert_eq!(
        outside, 6,
        "the waits, the accept, and what follows the last answer"
    );
    assert!(found.caveats.is_empty(), "{:?}", found.caveats);
}

/// As Apache's event loop does it: a worker answers and gives the connection back; a listener sees that the client has
/// closed it, and another worker closes it.
#[test]
fn what_the_client_takes_is_no_time_of_the_request() {
    let calls = [
        call(1, 0, "accept4", [4, 0, 0], 9),
        call(2, 20, "read", [9, 0, 0], 80),
        call(2, 40, "openat", [-100, 0, 0], 10),
        // A part; it goes on when the client has read that.
        call(2, 60, "sendfile", [9, 10, 0], 500),
        call(2, 80, "epoll_ctl", [7, 3, 9], 0),
        call(1, 200, "epoll_wait", [7, 0, 0], 1),
        call(2, 220, "sendfile", [9, 10, 0], 500),
        call(2, 240, "read", [9, 0, 0], -11),
        call(2, 260, "write", [8, 0, 0], 1),
        call(2, 280, "epoll_ctl", [7, 1, 9], 0),
        call(1, 9000, "epoll_ctl", [7, 2, 9], 0),
        call(3, 9020, "read", [9, 0, 0], 0),
        call(3, 9040, "close", [9, 0, 0], 0),
    ];
    let found = read(&calls, &[]);
    assert_eq!((found.requests, found.max_ns), (1, 210));
    let parts: u64 = found.phases.iter().map(|row| row.wall_ns).sum();
    assert_eq!(parts + found.elsewhere_ns, 210, "{found:?}");
    assert!(!found.phases.iter().any(|row| row.phase == "close"));
    // A server that closes the connection by itself has that work, too.
    let alone = [
        call(1, 0, "accept4", [4, 0, 0], 9),
        call(2, 20, "read", [9, 0, 0], 80),
        call(2, 40, "write", [9, 0, 0], 80),
        call(2, 60, "close", [9, 0, 0], 0),
    ];
    assert_eq!(read(&alone, &[]).max_ns, 50);
}

#[test]
fn the_document_follows_its_schema() {
    let schema = include_str!("../../../schema/requests-1.json");
    let schema = serde_json::from_str(schema).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let document = serde_json::to_value(read(&served(), &[])).expect("JSON");
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|e| e.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn a_rule_names_a_phase() {
    let rule = Rule {
        phase: "statistics".to_string(),
        predicate: "syscall == write && arg0 == 5"
            .parse()
            .expect("a predicate"),
    };
    let found = read(&served(), &[rule]);
    let named = found.phases.iter().find(|row| row.phase == "statistics");
    assert!(named.is_some_and(|row| row.is_rule && row.calls[0].count == 2));
    assert!(!found.phases.iter().any(|row| row.phase.contains("log")));
}

#[test]
fn what_is_not_answered_is_said() {
    let calls = [
        call(1, 0, "accept", [4, 0, 0], 9),
        call(1, 20, "read", [9, 0, 0], 80),
        call(2, 25, "write", [5, 0, 0], 1),
    ];
    let found = read(&calls, &[]);
    assert_eq!(found.requests, 0);
    assert!(
        found.caveats[0].contains("1 request"),
        "{:?}",
        found.caveats
    );
    assert!(read(&[], &[]).caveats[0].contains("No connection"));
}

#[test]
fn what_is_shut_down_is_being_closed_and_an_event_is_for_another_thread() {
    let calls = [
        call(1, 0, "eventfd2", [0, 0, 0], 7),
        call(1, 20, "accept4", [4, 0, 0], 9),
        call(1, 100, "recvfrom", [9, 0, 0], 80),
        call(1, 120, "sendto", [9, 0, 0], 1000),
        call(1, 140, "write", [7, 0, 8], 8),
        call(1, 160, "shutdown", [9, 1, 0], 0),
        call(1, 180, "close", [9, 0, 0], 0),
    ];
    let found = read(&calls, &[]);
    assert_eq!((found.requests, found.min_ns), (1, 90));
    let phase = |name: &str| {
        let row = found.phases.iter().find(|row| row.phase == name);
        row.map(|row| row.calls.iter().map(|call| &*call.call).collect::<Vec<_>>())
    };
    assert_eq!(phase("close"), Some(vec!["close", "shutdown"]));
    assert_eq!(phase("other threads"), Some(vec!["write"]));
    assert_eq!(phase("write to files (log)"), None);
}

#[test]
fn the_program_is_not_on_the_cpu_all_the_time_between_calls() {
    let between = Call {
        number: -1,
        budget: Budget {
            cpu_ns: 5,
            blocked_ns: 3,
            preempted_ns: 12,
            irq_ns: Some(2),
            ..Budget::default()
        },
        wall_ns: 22,
        ..call(1, 110, "(user)", [0; 3], 0)
    };
    let calls = [
        call(1, 20, "accept4", [4, 0, 0], 9),
        call(1, 100, "recvfrom", [9, 0, 0], 80),
        between,
        call(1, 130, "sendto", [9, 0, 0], 1000),
        call(1, 150, "close", [9, 0, 0], 0),
    ];
    let found = read(&calls, &[]);
    let program = found
        .phases
        .iter()
        .find(|row| row.phase.contains("program"));
    let program = program.expect("a row");
    assert_eq!((program.wall_ns, program.cpu_ns), (30, 13));
    assert_eq!((program.blocked_ns, program.cpu_wait_ns), (3, 12));
}
