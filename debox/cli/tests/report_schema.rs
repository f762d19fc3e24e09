//! The JSON Schema and the Rust structure of a report describe the same thing.

#[allow(dead_code)]
#[path = "../src/table/sample.rs"]
mod sample;

use debox::report::{Resource, Spin};
use jsonschema::Validator;
use serde_json::{json, Map, Value};

/// The schema as it is checked in.
fn schema() -> Value {
    serde_json::from_str(include_str!("../../schema/report-1.json")).expect("the schema is JSON")
}

fn validator() -> Validator {
    jsonschema::draft202012::new(&schema()).expect("the schema is a JSON Schema")
}

/// The sample report has a tree of samples; this one has a tree of functions.
fn with_exact_tree() -> debox::report::Report {
    debox::report::Report {
        trace: Some(sample::exact_trace()),
        ..whole()
    }
}

/// A report with every field in use.
fn whole() -> debox::report::Report {
    debox::report::Report {
        deadlocks: sample::stuck().deadlocks,
        cpu_waits: sample::cpu_waits(),
        samples: Some(sample::samples()),
        live_on: vec![4711],
        hints: vec!["worker has no function names".to_string()],
        spins: vec![Spin {
            syscall: "openat".to_string(),
            lock: Resource {
                kind: "lock".to_string(),
                name: None,
            },
            site: "lockref_get+0x12".into(),
            count: 3,
            spin_ns: 4_000,
            max_ns: 2_000,
        }],
        processes: vec![debox::report::Process {
            pid: 4711,
            parent: Some(1),
            from_ns: 5,
            command: vec!["server".to_string()],
            title: Some("server: idle".to_string()),
            place: Some("server.service".to_string()),
            inner_pid: Some(7),
        }],
        ..sample::lossy()
    }
}

fn rich() -> Value {
    serde_json::to_value(whole()).expect("a report serializes")
}

#[test]
fn the_schema_is_valid() {
    assert!(jsonschema::meta::is_valid(&schema()));
}

#[test]
fn reports_are_valid() {
    let validator = validator();
    for report in [
        sample::empty(),
        sample::short(),
        sample::rich(),
        sample::lossy(),
        sample::build(),
        sample::stuck(),
        with_exact_tree(),
    ] {
        let report = serde_json::to_value(report).expect("a report serializes");
        let errors: Vec<_> = validator
            .iter_errors(&report)
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

#[test]
fn a_field_of_a_later_version_is_no_error() {
    let mut report = rich();
    report["sleeps"][0]["owner"] = json!({"comm": "holder"});
    assert!(validator().is_valid(&report));
}

#[test]
fn a_missing_field_is_an_error() {
    let validator = validator();
    let mut missing = 0;
    for pointer in objects(&rich()) {
        let fields = rich()
            .pointer(&pointer)
            .and_then(Value::as_object)
            .expect("an object")
            .clone();
        for field in fields.keys() {
            let mut report = rich();
            let object = report.pointer_mut(&pointer).and_then(Value::as_object_mut);
            object.expect("an object").remove(field);
            assert!(
                !validator.is_valid(&report),
                "{pointer} is valid without {field}"
            );
            missing += 1;
        }
    }
    assert!(missing > 100, "only {missing} fields were tried");
}

#[test]
fn negative_and_broken_numbers_are_errors() {
    let validator = validator();
    let numbers = leaves(&rich(), Value::is_u64);
    assert!(numbers.len() > 100);
    for pointer in numbers {
        // 128+n is not negative either, but the type does not guarantee that.
        if pointer == "/exit_status" {
            continue;
        }
        for wrong in [json!(-1), json!(0.5), json!("1")] {
            let mut report = rich();
            *report.pointer_mut(&pointer).expect("a number") = wrong.clone();
            assert!(!validator.is_valid(&report), "{pointer} may be {wrong}");
        }
    }
}

/// The Rust structure says which: only an `Option` is read from null.
#[test]
fn null_is_for_what_may_be_unmeasured() {
    let validator = validator();
    let mut nullable = 0;
    for pointer in leaves(&rich(), |value| !value.is_null()) {
        let mut report = rich();
        *report.pointer_mut(&pointer).expect("a value") = Value::Null;
        // Null only in the reports of recordings, which have a schema of their own.
        let is_others = pointer.starts_with("/cpu_waits/") && pointer.ends_with("/part");
        let may_be_null =
            !is_others && serde_json::from_value::<debox::report::Report>(report.clone()).is_ok();
        assert_eq!(validator.is_valid(&report), may_be_null, "{pointer}");
        nullable += usize::from(may_be_null);
    }
    assert!(nullable > 50, "only {nullable} fields may be null");
}

#[test]
fn unknown_words_are_errors() {
    let validator = validator();
    for pointer in [
        "/schema",
        "/tap",
        "/detail/0",
        "/sleeps/0/class",
        "/sleeps/0/wakers/0/kind",
        "/sleeps/3/waiters_scope",
        "/in_flight/0/class",
    ] {
        let mut report = rich();
        *report.pointer_mut(pointer).expect("the sample has it") = json!("nonsense");
        assert!(!validator.is_valid(&report), "{pointer} may be nonsense");
    }
}

#[test]
fn every_field_is_described_and_every_description_has_its_field() {
    let schema = schema();
    compare(&schema, &schema, &rich(), "");
    let exact = serde_json::to_value(with_exact_tree()).expect("a report serializes");
    compare(&schema, &schema, &exact, "");
}

/// Checks a value against its part of the schema: the same fields, all of them required.
fn compare(root: &Value, part: &Value, value: &Value, path: &str) {
    match value {
        Value::Object(fields) => {
            let (properties, required) = described(root, part);
            let names = |map: &Map<String, Value>| {
                let mut names: Vec<String> = map.keys().cloned().collect();
                names.sort();
                names
            };
            assert_eq!(names(fields), names(&properties), "fields of {path:?}");
            let mut required = required;
            required.sort();
            assert_eq!(names(fields), required, "required fields of {path:?}");
            for (name, value) in fields {
                compare(root, &properties[name], value, &format!("{path}/{name}"));
            }
        }
        Value::Array(items) => {
            let part = part
                .get("items")
                .unwrap_or_else(|| &resolve(root, part)["items"]);
            // The other tree has the rest.
            let may_be_empty = [
                "wakers",
                "call_sites",
                "resources",
                "owners",
                "children",
                "denied",
                "instead_of",
                "events",
            ];
            assert!(
                !items.is_empty() || may_be_empty.iter().any(|name| path.ends_with(name)),
                "the sample leaves {path} empty, so nothing below it is checked"
            );
            for (nth, item) in items.iter().enumerate() {
                compare(root, part, item, &format!("{path}/{nth}"));
            }
        }
        _ => {}
    }
}

/// The properties and required names of a part, including those it refers to.
fn described(root: &Value, part: &Value) -> (Map<String, Value>, Vec<String>) {
    let mut properties = Map::new();
    let mut required = Vec::new();
    let mut parts = vec![part];
    while let Some(part) = parts.pop() {
        if part.get("$ref").is_some() {
            parts.push(resolve(root, part));
        }
        for parts_of in ["allOf", "anyOf"] {
            parts.extend(part[parts_of].as_array().into_iter().flatten());
        }
        properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
        let names = part["required"].as_array().into_iter().flatten();
        required.extend(names.filter_map(Value::as_str).map(str::to_string));
    }
    (properties, required)
}

fn resolve<'a>(root: &'a Value, part: &'a Value) -> &'a Value {
    match part["$ref"].as_str() {
        Some(reference) => {
            let pointer = reference
                .strip_prefix('#')
                .expect("references stay in the file");
            root.pointer(pointer)
                .unwrap_or_else(|| panic!("{reference} leads nowhere"))
        }
        None => part,
    }
}

/// JSON pointers to all objects in a value.
fn objects(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, String::new(), &mut |pointer, value| {
        if value.is_object() {
            found.push(pointer.to_string());
        }
    });
    found
}

/// JSON pointers to all plain values that `choose` picks.
fn leaves(value: &Value, choose: impl Fn(&Value) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, String::new(), &mut |pointer, value| {
        if !value.is_object() && !value.is_array() && choose(value) {
            found.push(pointer.to_string());
        }
    });
    found
}

fn walk(value: &Value, pointer: String, visit: &mut impl FnMut(&str, &Value)) {
    visit(&pointer, value);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                walk(value, format!("{pointer}/{name}"), visit);
            }
        }
        Value::Array(items) => {
            for (nth, value) in items.iter().enumerate() {
                walk(value, format!("{pointer}/{nth}"), visit);
            }
        }
        _ => {}
    }
}
