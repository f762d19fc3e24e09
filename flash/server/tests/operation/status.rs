// SPDX-License-Identifier: MIT OR Apache-2.0
//! The status page and its numbers.

use serde_json::Value;

use crate::load::Load;
use crate::running::{get, wait_until, Place, Running};

const CONFIG: &str = "loops = 2\nhelpers = 4\nmetrics = \"127.0.0.1:0\"\n\
                      [[server]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"a\"\n";

fn numbers(flash: &Running) -> Value {
    let answer = get(flash.counters(), "/status.json");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    assert!(
        head.contains("\r\nContent-Type: application/json"),
        "{head}"
    );
    serde_json::from_str(body).expect("JSON")
}

fn sum(numbers: &Value, of_loops: &str) -> u64 {
    let loops = numbers["loops"].as_array().expect("loops");
    loops.iter().filter_map(|its| its[of_loops].as_u64()).sum()
}

#[test]
fn the_numbers_are_those_of_the_clients() {
    let place = Place::new(CONFIG);
    let flash = Running::start(&place);
    let load = Load::start(flash.address(), 2);
    flash.reload();
    let answered = load.end();
    for _ in 0..3 {
        get(flash.address(), "/none");
    }
    wait_until("all connections but the one that asks have ended", || {
        numbers(&flash)["connections"] == 1
    });
    let numbers = numbers(&flash);
    let own = |name: &str| numbers[name].as_u64().expect("a number");
    assert!(own("requests") >= answered + 3, "{numbers}");
    assert_eq!(numbers["answers"]["4xx"], 3, "{numbers}");
    assert!(
        numbers["answers"]["2xx"].as_u64() >= Some(answered),
        "{numbers}"
    );
    assert_eq!(numbers["configuration"]["reloads"], 1);
    assert_eq!(numbers["loops"].as_array().map(Vec::len), Some(2));
    assert!(sum(&numbers, "turns") > 0);
    for its in numbers["loops"].as_array().expect("loops") {
        let (within, longest) = (its["p9999_us"].as_u64(), its["longest_us"].as_u64());
        assert!(
            its["turns"] == 0 || (within.is_some() && within <= longest),
            "{its}"
        );
    }
    let helpers = &numbers["helpers"]["names"];
    assert!(
        helpers["busy"].as_u64() <= helpers["threads"].as_u64(),
        "{helpers}"
    );
    // What Prometheus reads.
    let turns = flash.count("flash_loop_turn_seconds_count");
    // Both questions may have had one turn.
    assert!(turns >= sum(&numbers, "turns"));
    let page = get(flash.counters(), "/metrics");
    for row in [
        "# TYPE flash_loop_turn_seconds histogram\n",
        "flash_loop_turn_seconds_bucket{loop=\"1\",le=\"0.001024\"} ",
        "flash_loop_turn_seconds_bucket{loop=\"1\",le=\"+Inf\"} ",
        "flash_answers_total{loop=\"0\",class=\"4xx\"} ",
    ] {
        assert!(page.contains(row), "{row}{page}");
    }
}

#[test]
fn the_page_needs_nothing_else() {
    let place = Place::new(CONFIG);
    let flash = Running::start(&place);
    let page = get(flash.counters(), "/status");
    assert!(page.contains("\r\nContent-Type: text/html; charset=utf-8\r\n"));
    let (_, page) = page.split_once("\r\n\r\n").expect("an answer");
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    // All that it shows is there.
    let numbers = numbers(&flash);
    let object = numbers.as_object().expect("an object");
    let shown = |name: &String| page.contains(&format!(".{name}"));
    let hidden: Vec<&String> = object.keys().filter(|name| !shown(name)).collect();
    assert_eq!(hidden, ["accepted"]);
    let its = numbers["loops"][0].as_object().expect("an object");
    assert!(its.keys().all(shown));
    assert!(get(flash.counters(), "/statuses").starts_with("HTTP/1.1 404 "));
}
