//! Files to analyze, and a function that runs the command on them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt16Array, UInt32Array, UInt8Array};
use clap::Parser;
use latlab_analysis::command::{analyze, Analyze};
use latlab_analysis::rows::{schema, SCHEMA};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use serde_json::{json, Value};

/// The realtime clock at the start of all runs here.
pub const STARTED_NS: i64 = 1_700_000_100_000_000_000;

#[derive(Debug, Clone)]
pub struct Row {
    pub intended_ns: i64,
    pub start_ns: i64,
    pub end_ns: Option<i64>,
    pub size: i64,
    pub status: u16,
    pub connection: u32,
    pub error: Option<&'static str>,
    pub local_port: u16,
}

impl Row {
    pub fn new(start_ns: i64, latency_ns: i64, size: i64) -> Row {
        Row {
            intended_ns: start_ns,
            start_ns,
            end_ns: Some(start_ns + latency_ns),
            size,
            status: 200,
            connection: 0,
            error: None,
            local_port: 40_000,
        }
    }
}

pub fn meta(changes: Value) -> Value {
    let mut meta = json!({
        "schema": SCHEMA, "tool_version": "0.1.0", "host": "here", "started_realtime_ns": STARTED_NS,
        "mode": "open", "offered_rps": 1000.0, "connections": 4, "seed": 1,
        "fileset": {"bytes": 3_000_000_000u64}, "server": "nginx", "load": 0.8,
        "lateness": {"p50_ns": 1, "p99_ns": 2, "max_ns": 3}, "generator_cpu": 0.2, "warmup_ns": 0,
    });
    for (name, value) in changes.as_object().expect("an object") {
        meta[name] = value.clone();
    }
    meta
}

/// Writes a file as `latlab` does.
pub fn parquet(path: &Path, meta: &Value, rows: &[Row]) {
    let mut kind = StringDictionaryBuilder::<UInt32Type>::new();
    let mut at = StringDictionaryBuilder::<UInt32Type>::new();
    let mut error = StringDictionaryBuilder::<UInt32Type>::new();
    for row in rows {
        kind.append_value("static");
        at.append_value("/dir00000/class0_1");
        error.append_option(row.error);
    }
    let long = |of: &dyn Fn(&Row) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(of)))
    };
    let ends = Int64Array::from_iter(rows.iter().map(|row| row.end_ns));
    let columns: Vec<ArrayRef> = vec![
        long(&|row| row.intended_ns),
        long(&|row| row.start_ns),
        Arc::new(ends.clone()),
        Arc::new(ends),
        long(&|row| row.size),
        long(&|row| row.size.max(0)),
        Arc::new(UInt16Array::from_iter_values(
            rows.iter().map(|row| row.status),
        )),
        Arc::new(UInt32Array::from_iter_values(
            rows.iter().map(|row| row.connection),
        )),
        Arc::new(UInt16Array::from_iter_values(rows.iter().map(|_| 0))),
        Arc::new(kind.finish()),
        Arc::new(UInt8Array::from_iter(rows.iter().map(|_| Some(0)))),
        Arc::new(at.finish()),
        Arc::new(error.finish()),
        Arc::new(UInt16Array::from_iter_values(
            rows.iter().map(|row| row.local_port),
        )),
        Arc::new(Int64Array::from_iter(rows.iter().map(|_| Some(1000)))),
        Arc::new(Int64Array::from_iter(rows.iter().map(|_| None::<i64>))),
    ];
    let batch = RecordBatch::try_new(schema(), columns).expect("columns of the schema");
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("a level")))
        .set_key_value_metadata(Some(vec![KeyValue::new(
            SCHEMA.to_string(),
            meta.to_string(),
        )]))
        .build();
    let file = File::create(path).expect("a file");
    let mut writer = ArrowWriter::try_new(file, schema(), Some(properties)).expect("a writer");
    writer.write(&batch).expect("rows");
    writer.close().expect("the end");
}

/// The directory of a test's files.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().expect("a directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file");
        path
    }
}

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    analyze: Analyze,
}

/// The command's output, or its error.
pub fn run(path: &Path, options: &[&str]) -> Result<String, String> {
    run_all(&[path], options)
}

pub fn run_all(paths: &[&Path], options: &[&str]) -> Result<String, String> {
    let mut words = vec!["latlab".into()];
    words.extend(paths.iter().map(|path| path.as_os_str().to_os_string()));
    words.extend(options.iter().map(Into::into));
    let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    analyze(&command.analyze, &mut out, 110).map_err(|error| format!("{error:#}"))?;
    Ok(String::from_utf8(out).expect("text"))
}

pub fn json(path: &Path, options: &[&str]) -> Value {
    json_all(&[path], options)
}

pub fn json_all(paths: &[&Path], options: &[&str]) -> Value {
    let mut with = vec!["--format", "json"];
    with.extend(options);
    let value = serde_json::from_str(&run_all(paths, &with).expect("figures")).expect("JSON");
    check(&value);
    value
}

/// Validates against the schema, which is stricter than JSON syntax.
fn check(value: &Value) {
    let schema = include_str!("../../../schema/latlab-analysis-1.json");
    let schema: Value = serde_json::from_str(schema).expect("a schema");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let wrong: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
