//! The schemas of latlab's output, and a check that they describe all of it and nothing else.

use jsonschema::Validator;
use serde_json::{Map, Value};

const RESULTS: &str = include_str!("../../../schema/latlab-results-1.json");
const ANALYSIS: &str = include_str!("../../../schema/latlab-analysis-1.json");
const ANALYSIS_FILE: &str = "latlab-analysis-1.json";
const HOT_COLD: &str = include_str!("../../../schema/latlab-hot-cold-1.json");
const STUDY: &str = include_str!("../../../schema/latlab-study-1.json");

/// All schemas, by file name.
pub struct Schemas(Map<String, Value>);

impl Schemas {
    pub fn all() -> Schemas {
        let named = [
            ("latlab-results-1.json", RESULTS),
            (ANALYSIS_FILE, ANALYSIS),
            ("latlab-study-1.json", STUDY),
            ("latlab-hot-cold-1.json", HOT_COLD),
        ];
        let read = |text| serde_json::from_str(text).expect("a schema is JSON");
        Schemas(
            named
                .map(|(name, text)| (name.to_string(), read(text)))
                .into_iter()
                .collect(),
        )
    }

    pub fn named(&self, name: &str) -> &Value {
        &self.0[name]
    }

    /// A validator for this schema, which may refer to the others by file name: they are put into it, under the names
    /// that such references have in a schema without a name of its own. A retriever would do, too, but takes twenty
    /// seconds to compile in each test program.
    pub fn validator(&self, schema: &Value) -> Validator {
        let mut whole = schema.clone();
        if let Some(whole) = whole.as_object_mut() {
            whole.remove("$id");
        }
        for (file, other) in &self.0 {
            let mut other = other.clone();
            other["$id"] = format!("json-schema:///{file}").into();
            whole["$defs"][file] = other;
        }
        jsonschema::validator_for(&whole).expect("the schema is a JSON Schema")
    }

    /// Checks a value against a part of the named schema: the same fields, all of them required.
    pub fn compare(&self, name: &str, part: &Value, value: &Value, path: &str) {
        self.compare_part(Part { name, part }, value, path);
    }

    fn compare_part(&self, part: Part, value: &Value, path: &str) {
        match value {
            Value::Object(fields) => {
                let described = self.described(part);
                if described.elsewhere {
                    return;
                }
                if let Some(each) = described.each {
                    for (name, value) in fields {
                        self.compare_part(each, value, &format!("{path}/{name}"));
                    }
                    return;
                }
                let mut its: Vec<&str> = fields.keys().map(String::as_str).collect();
                let properties = described.properties.iter();
                let mut known: Vec<&str> = properties.map(|(name, _)| *name).collect();
                let mut required = described.required;
                for names in [&mut its, &mut known, &mut required] {
                    names.sort_unstable();
                    names.dedup();
                }
                assert_eq!(its, known, "fields of {path}");
                assert_eq!(its, required, "required fields of {path}");
                for (name, part) in described.properties {
                    self.compare_part(part, &fields[name], &format!("{path}/{name}"));
                }
            }
            Value::Array(items) => {
                let each = Part {
                    part: &part.part["items"],
                    ..part
                };
                // A string has no parts.
                assert!(
                    !items.is_empty() || each.part["type"] == "string",
                    "{path} is empty, so nothing below it is checked"
                );
                for item in items {
                    self.compare_part(each, item, &format!("{path}/0"));
                }
            }
            _ => {}
        }
    }

    /// The properties and required names of a part, including those that it refers to.
    fn described<'a>(&'a self, part: Part<'a>) -> Described<'a> {
        let mut described = Described::default();
        let mut parts = vec![part];
        while let Some(Part { name, part }) = parts.pop() {
            let within = |part| Part { name, part };
            if let Some(reference) = part["$ref"].as_str() {
                described.elsewhere |= reference == ANALYSIS_FILE;
                parts.extend(self.referred(name, reference));
            }
            for parts_of in ["allOf", "anyOf"] {
                let all = part[parts_of].as_array().into_iter().flatten();
                parts.extend(all.map(within));
            }
            let properties = part["properties"].as_object().into_iter().flatten();
            described
                .properties
                .extend(properties.map(|(name, part)| (name.as_str(), within(part))));
            let required = part["required"].as_array().into_iter().flatten();
            described
                .required
                .extend(required.filter_map(Value::as_str));
            described.each = described
                .each
                .or(part.get("additionalProperties").map(within));
        }
        described
    }

    fn referred<'a>(&'a self, name: &'a str, reference: &'a str) -> Option<Part<'a>> {
        let (file, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let name = if file.is_empty() { name } else { file };
        let part = self.0.get(name)?.pointer(pointer)?;
        Some(Part { name, part })
    }
}

/// A part of a schema.
#[derive(Clone, Copy)]
struct Part<'a> {
    name: &'a str,
    part: &'a Value,
}

#[derive(Default)]
struct Described<'a> {
    properties: Vec<(&'a str, Part<'a>)>,
    required: Vec<&'a str>,
    each: Option<Part<'a>>,
    /// Whether it is an analysis. It is valid, and other tests compare analyses with their schema.
    elsewhere: bool,
}

/// The errors in a value, each with its location.
pub fn errors(validator: &Validator, value: &Value) -> Vec<String> {
    let errors = validator.iter_errors(value);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}
