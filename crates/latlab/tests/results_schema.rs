//! `schema/latlab-results-1.json` describes what latlab prints as JSON: all of it, and nothing else.

mod support;

use jsonschema::Validator;
use serde_json::{json, Map, Value};
use support::{latlab, run, server, Place};

fn schema() -> Value {
    let text = include_str!("../../../schema/latlab-results-1.json");
    serde_json::from_str(text).expect("the schema is JSON")
}

fn validator() -> Validator {
    jsonschema::draft202012::new(&schema()).expect("the schema is a JSON Schema")
}

/// Real output of every command that has some.
fn results() -> Vec<Value> {
    let place = Place::programmed(&["--fault", "status/20"]);
    let directory = place.path("profile").display().to_string();
    let short = [
        "--duration",
        "400ms",
        "--warmup",
        "100ms",
        "--format",
        "json",
        "-c",
        "4",
    ];
    let once = [&short[..], &["--repeats", "1"]].concat();
    let twice = [&short[..], &["--repeats", "2"]].concat();
    let commands = [
        [&["run", "programmed", "--rate", "200"], &short[..]].concat(),
        [&["capacity", "programmed"], &once[..]].concat(),
        [
            &[
                "profile",
                "programmed",
                "--loads",
                "0.2,0.5",
                "-o",
                &directory,
            ],
            &once[..],
        ]
        .concat(),
        [&["compare", "programmed", "programmed"], &twice[..]].concat(),
        [
            &[
                "conform",
                "programmed",
                "--fixed-set",
                "--most",
                "4",
                "--least",
                "2",
            ],
            &short[..6],
        ]
        .concat(),
        [
            &[
                "sweep",
                "programmed",
                "--vary",
                "service=fixed:0s,fixed:1ms",
                "--load",
                "0.5",
                "--blocking",
            ],
            &once[..],
        ]
        .concat(),
    ];
    let results = commands.iter().map(|command| {
        let output = latlab(&place.arguments(command));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            matches!(output.status.code(), Some(0 | 3)),
            "{command:?}: {stderr}"
        );
        serde_json::from_slice(&output.stdout).expect("JSON")
    });
    results.collect()
}

#[test]
fn the_schema_is_valid() {
    assert!(jsonschema::meta::is_valid(&schema()));
}

#[test]
fn what_is_printed_is_what_the_schema_says() {
    let (validator, schema) = (validator(), schema());
    for result in results() {
        let name = result["schema"].as_str().expect("a name");
        // By its own part: of the whole one learns no more than that it is none of all.
        let part = name.trim_start_matches("latlab.").trim_end_matches("/1");
        let mut own = schema.clone();
        own["oneOf"] = json!([{ "$ref": format!("#/$defs/{part}") }]);
        let own = jsonschema::draft202012::new(&own).expect("the schema is a JSON Schema");
        let wrong: Vec<String> = own
            .iter_errors(&result)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
        assert!(
            validator.is_valid(&result),
            "{name} is more than one of all"
        );
        compare(&schema, &schema["$defs"][part], &result, name);
    }
}

#[test]
fn what_is_wrong_is_an_error() {
    let (_server, url) = server(&[]);
    let summary = run(&url, &["-n", "10", "--duration", "30s"]);
    let validator = validator();
    assert!(validator.is_valid(&summary));
    let fields = summary.as_object().expect("an object");
    for field in fields.keys() {
        let mut less = summary.clone();
        less.as_object_mut().expect("an object").remove(field);
        assert!(!validator.is_valid(&less), "it is valid without {field}");
    }
    for (field, wrong) in [
        ("schema", json!("latlab.run/2")),
        ("mode", json!("ajar")),
        ("requests", json!(-1)),
        ("errors", json!({"bad luck": 1})),
        ("errors", json!({"reset": 0})),
        ("latency_from_start", json!({})),
    ] {
        let mut changed = summary.clone();
        changed[field] = wrong;
        assert!(!validator.is_valid(&changed), "{field} may be wrong");
    }
    let mut later = summary.clone();
    later["of_a_later_version"] = json!(1);
    assert!(validator.is_valid(&later));
}

/// Holds a value against its part of the schema: the same fields, all of them required.
fn compare(root: &Value, part: &Value, value: &Value, path: &str) {
    match value {
        Value::Object(fields) => {
            let (properties, mut required) = described(root, part);
            if let Some(each) = part.get("additionalProperties") {
                for (name, value) in fields {
                    compare(root, each, value, &format!("{path}/{name}"));
                }
                return;
            }
            let names = |map: &Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
            let (mut its, mut known) = (names(fields), names(&properties));
            its.sort();
            known.sort();
            required.sort();
            assert_eq!(its, known, "fields of {path}");
            assert_eq!(its, required, "required fields of {path}");
            for (name, value) in fields {
                compare(root, &properties[name], value, &format!("{path}/{name}"));
            }
        }
        Value::Array(items) => {
            assert!(
                !items.is_empty(),
                "{path} is empty, so nothing below it is checked"
            );
            for item in items {
                compare(root, &part["items"], item, &format!("{path}/0"));
            }
        }
        _ => {}
    }
}

/// The properties and required names of a part, with what it refers to.
fn described(root: &Value, part: &Value) -> (Map<String, Value>, Vec<String>) {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    let mut parts = vec![part];
    while let Some(part) = parts.pop() {
        if let Some(reference) = part["$ref"].as_str() {
            parts.extend(root.pointer(reference.trim_start_matches('#')));
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
