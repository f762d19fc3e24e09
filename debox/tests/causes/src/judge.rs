// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a headline says what is true of the program.

use serde_json::Value;

use crate::corpus::{Case, Cause, Truth};
use crate::measure::Headlined;

/// Such a part of the time is named with the call in which it was spent.
const IMPORTANT: f64 = 0.3;

/// What is wrong with it, if anything is.
pub fn judge(case: &Case, it: &Headlined) -> Result<(), String> {
    let sentence = &it.sentence;
    let wrong = |what: &str| Err(format!("{what}: {sentence}"));
    match case.truth {
        Truth::Cause(cause) => names(&cause, it),
        Truth::Deadlock(threads) => match it.report["deadlocks"].as_array().map(Vec::as_slice) {
            Some([one]) if one["waits"].as_array().map(Vec::len) == Some(threads) => Ok(()),
            _ => wrong("no deadlock is told"),
        },
        Truth::Served => match &it.report["headline"]["is_served"] {
            Value::Bool(true) => Ok(()),
            _ => wrong("it waits for requests"),
        },
        Truth::None => match sentence.starts_with("no one cause") {
            true => Ok(()),
            false => wrong("a cause is named"),
        },
    }
}

fn names(cause: &Cause, it: &Headlined) -> Result<(), String> {
    let headline = &it.report["headline"];
    let share = &headline["shares"][0];
    let sentence = &it.sentence;
    let text = |of: &Value| of.as_str().unwrap_or_default().to_string();
    let part =
        |of: &Value| of["ns"].as_f64().unwrap_or(0.0) / headline["of_ns"].as_f64().unwrap_or(1.0);
    let is_known = |name: &Value| cause.names.contains(&text(name).as_str());
    let is_in = |call: &Value| cause.calls.is_empty() || cause.calls.contains(&text(call).as_str());
    // Several causes in one call: the call is named, or the cause is an important part of it.
    let call = &headline["in_call"];
    if !call.is_null() {
        let parts = call["shares"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let has_part = parts
            .iter()
            .any(|share| is_known(&share["cause"]) && part(share) >= IMPORTANT);
        let is_named = is_known(&call["call"]) || has_part;
        return match is_named && is_in(&call["call"]) && part(call) >= cause.least {
            true => Ok(()),
            false => Err(format!("not {}: {sentence}", cause.names.join(" or "))),
        };
    }
    if !is_known(&share["cause"]) && !is_known(&share["call"]) {
        return Err(format!("not {}: {sentence}", cause.names.join(" or ")));
    }
    if !is_in(&share["call"]) {
        return Err(format!("not in {}: {sentence}", cause.calls.join(" or ")));
    }
    if cause
        .owner
        .is_some_and(|known| known != text(&share["owner"]))
    {
        return Err(format!("not {:?}: {sentence}", cause.owner));
    }
    if cause.at_place && !sentence.contains(&it.place) {
        return Err(format!("without {}: {sentence}", it.place));
    }
    if let Some(function) = cause.function.filter(|name| !sentence.contains(name)) {
        return Err(format!("without {function}: {sentence}"));
    }
    if cause.in_short_lives && headline["short_lived"].is_null() {
        return Err(format!("without the number of processes: {sentence}"));
    }
    match part(share) >= cause.least {
        true => Ok(()),
        false => Err(format!(
            "less than {:.0} %: {sentence}",
            cause.least * 100.0
        )),
    }
}
