//! The rows that `latlab` writes: one for each request (`latlab.requests/1`).

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::in_flight::InFlight;
use crate::mode::Mode;

/// Name and version of the schema, and the key of the file metadata that contains the JSON of
/// [`Meta`].
pub const SCHEMA: &str = "latlab.requests/1";

/// A file's description of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    pub schema: String,
    #[serde(default)]
    pub tool_version: String,
    #[serde(default)]
    pub host: String,
    /// The clock of the host at the start of the run, in ns since 1970.
    pub started_realtime_ns: i64,
    pub mode: Mode,
    #[serde(default)]
    pub offered_rps: Option<f64>,
    #[serde(default)]
    pub connections: Option<u64>,
    #[serde(default)]
    pub seed: Option<u64>,
    /// The description of the file set by the program that created it.
    #[serde(default)]
    pub fileset: serde_json::Value,
    #[serde(default)]
    pub server: Option<serde_json::Value>,
    /// Load relative to the server's capacity.
    #[serde(default)]
    pub load: Option<f64>,
    /// Steps of the rate, if there are several.
    #[serde(default)]
    pub steps: Option<Vec<Step>>,
    #[serde(default)]
    pub lateness: Option<Lateness>,
    /// The generator's lateness in processing answers that had arrived.
    #[serde(default)]
    pub reply_lateness: Option<Lateness>,
    /// Part of its CPU that the generator used.
    #[serde(default)]
    pub generator_cpu: Option<f64>,
    /// Requests that were due before this time are not results.
    #[serde(default)]
    pub warmup_ns: Option<i64>,
    /// How long requests were to be sent, including the warm-up.
    #[serde(default)]
    pub duration_ns: Option<i64>,
    /// Requests in flight in the measured time.
    #[serde(default)]
    pub in_flight: Option<InFlight>,
    /// Why `latlab` considers these figures invalid for the server.
    #[serde(default)]
    pub refused: Option<String>,
}

/// A part of a run in which requests were offered at one rate. Times are in ns since the start of
/// the run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub offered_rps: f64,
    pub begin_ns: i64,
    pub end_ns: i64,
}

/// How late the generator itself was with its requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness {
    pub p50_ns: i64,
    pub p99_ns: i64,
    pub max_ns: i64,
}

impl Meta {
    /// Size of the file set in bytes, if its description contains it.
    pub fn data_set_bytes(&self) -> Option<u64> {
        ["bytes", "total_bytes", "data_set_bytes", "size_bytes"]
            .iter()
            .find_map(|key| self.fileset.get(key)?.as_u64())
    }
}

fn text() -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8))
}

/// One row per request. Times are in ns since the start of the run.
pub fn schema() -> SchemaRef {
    use DataType::{Int64, UInt16, UInt32, UInt8};
    let needed = |name: &str, kind: DataType| Field::new(name, kind, false);
    let perhaps = |name: &str, kind: DataType| Field::new(name, kind, true);
    Arc::new(Schema::new(vec![
        needed("intended_ns", Int64),
        needed("start_ns", Int64),
        perhaps("first_byte_ns", Int64),
        perhaps("end_ns", Int64),
        needed("size", Int64),
        needed("received", Int64),
        needed("status", UInt16),
        needed("connection", UInt32),
        needed("process", UInt16),
        needed("kind", text()),
        perhaps("class", UInt8),
        needed("path", text()),
        perhaps("error", text()),
        needed("local_port", UInt16),
        perhaps("connect_ns", Int64),
        perhaps("tls_ns", Int64),
    ]))
}
