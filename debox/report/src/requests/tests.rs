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
        ("read the request", 3),
        ("the program, between calls", 0),
        ("find the file", 6),
        ("send the response", 2),
        ("write to files (log)", 2),
        ("close", 1),
    ];
    assert_eq!(phases, wanted);
    // Five gaps of 10 ns in each request, and one more before the connection is closed.
    let program = found
        .phases
        .iter()
        .find(|row| row.phase.contains("program"));
    assert_eq!(program.map(|row| row.wall_ns), Some(2 * 50 + 10));
    assert_eq!(found.example.len(), 6);
    assert_eq!(
        (found.example[1].at_ns, &*found.example[1].call),
        (20, "openat")
    );
    let outside: u64 = found.outside.iter().map(|row| row.count).sum();
    assert_eq!(outside, 4, "the waits and the accept");
    assert!(found.caveats.is_empty(), "{:?}", found.caveats);
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
