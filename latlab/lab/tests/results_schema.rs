//! `latlab/schema/latlab-results-1.json` describes the complete JSON output of latlab, and nothing else.

mod support;

use serde_json::{json, Value};
use support::schema::{errors, Schemas};
use support::{latlab, run, server, Place};

const NAME: &str = "latlab-results-1.json";

/// Real output of every command that prints JSON.
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
        [&["run", "programmed", "--rate", "100,300"], &short[..]].concat(),
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
    assert!(jsonschema::meta::is_valid(Schemas::all().named(NAME)));
}

#[test]
fn what_is_printed_is_what_the_schema_says() {
    let schemas = Schemas::all();
    let schema = schemas.named(NAME);
    let validator = schemas.validator(schema);
    for result in results() {
        let name = result["schema"].as_str().expect("a name");
        // Checked against its own part: an error from the whole schema only says that no part matches.
        let part = name.trim_start_matches("latlab.").trim_end_matches("/1");
        let mut own = schema.clone();
        own["oneOf"] = json!([{ "$ref": format!("#/$defs/{part}") }]);
        let wrong = errors(&schemas.validator(&own), &result);
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
        assert!(
            validator.is_valid(&result),
            "{name} is more than one of all"
        );
        schemas.compare(NAME, &schema["$defs"][part], &result, name);
    }
}

#[test]
fn what_is_wrong_is_an_error() {
    let (_server, url) = server(&[]);
    let summary = run(&url, &["-n", "10", "--duration", "30s"]);
    let schemas = Schemas::all();
    let validator = schemas.validator(schemas.named(NAME));
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
