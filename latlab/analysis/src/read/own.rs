//! Reads the Parquet files of `latlab`.

use std::fs::File;
use std::path::Path;

use anyhow::{bail, ensure, Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt16Type, UInt32Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch};
use arrow_schema::DataType;
use debox_history::careful::{carefully, check_pages, Careful};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::ProjectionMask;
use parquet::file::metadata::KeyValue;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Options;
use crate::mode::Mode;
use crate::request::{Basis, Request, Run, LOADS, REQUESTS_MAX};
use crate::rows::{schema, Meta, Step, SCHEMA};

const COLUMNS: &[&str] = &[
    "intended_ns",
    "start_ns",
    "first_byte_ns",
    "end_ns",
    "size",
    "received",
    "status",
    "connection",
    "process",
    "error",
    "local_port",
];
const BATCH_ROWS: usize = 8192;
const STEPS_MAX: usize = 1000;

pub fn read(path: &Path, options: &Options) -> Result<Run> {
    ensure!(
        !options.names_columns(),
        "it is Parquet of latlab, whose columns are known: no --…-column is taken for it"
    );
    let file = File::open(path).context("it cannot be opened")?;
    let length = file.metadata().context("it cannot be looked at")?.len();
    let builder = carefully(|| ParquetRecordBatchReaderBuilder::try_new(file))
        .and_then(|built| Ok(built?))
        .context("it is damaged, or cut before its end")?;
    let metadata = builder.metadata().clone();
    let meta = describe(metadata.file_metadata().key_value_metadata())?;
    check_columns(builder.schema())?;
    check_pages(&metadata, length).context("it is damaged")?;
    let mask = {
        let leaves = builder.parquet_schema();
        ProjectionMask::columns(leaves, COLUMNS.iter().copied())
    };
    let reader = carefully(|| {
        builder
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS)
            .build()
    })
    .and_then(|built| Ok(built?))
    .context("it is damaged")?;
    let mut rows = Rows {
        basis: options.basis.unwrap_or(match meta.mode {
            Mode::Open => Basis::Intended,
            Mode::Closed => Basis::Sent,
        }),
        warm_up_ns: meta.warmup_ns.unwrap_or(i64::MIN),
        run: Run::new(path.to_path_buf(), SCHEMA),
        connections: FxHashMap::default(),
        used: FxHashSet::default(),
        last_end_ns: FxHashMap::default(),
        steps: meta.steps.clone().unwrap_or_default(),
        row: 0,
        warm_up_failed: 0,
    };
    ensure!(
        rows.steps.len() <= STEPS_MAX,
        "it has more than {STEPS_MAX} steps of the rate"
    );
    rows.run.failed_in_steps = vec![0; rows.steps.len()];
    for batch in Careful::new(reader) {
        rows.add(&batch?)?;
    }
    let mut run = rows.run;
    // In a closed loop, each client has one connection, unless it never got one.
    let clients = meta.connections.filter(|_| meta.mode == Mode::Closed);
    run.connections_used = (rows.used.len() as u64).max(clients.unwrap_or(0));
    if rows.warm_up_failed > 0 {
        let failed = rows.warm_up_failed;
        run.caveats
            .push(format!("{failed} requests failed in the warm-up."));
    }
    run.basis = rows.basis;
    run.has_times = true;
    run.has_connections = true;
    run.started_realtime_ns = Some(meta.started_realtime_ns);
    run.mode = Some(meta.mode);
    let positive = |value: &f64| value.is_finite() && *value > 0.0;
    run.load = meta.load.filter(|load| LOADS.contains(load));
    run.offered_rps = meta.offered_rps.filter(positive);
    run.data_set_bytes = meta.data_set_bytes();
    run.meta = Some(meta);
    Ok(run)
}

fn describe(values: Option<&Vec<KeyValue>>) -> Result<Meta> {
    let value = |key: &str| {
        let found = values.into_iter().flatten().find(|value| value.key == key);
        found.and_then(|value| value.value.as_deref())
    };
    if value("debox.history").is_some() {
        bail!("it is a history of `debox record`: give it as --history, beside the requests");
    }
    let others = values
        .into_iter()
        .flatten()
        .find(|value| value.key.starts_with("latlab.requests/") && value.key != SCHEMA);
    if let Some(other) = others {
        bail!(
            "its schema is {}, and this latlab reads {SCHEMA}",
            other.key
        );
    }
    let text = value(SCHEMA).context("it is a Parquet file, but latlab did not write it")?;
    let meta: Meta = serde_json::from_str(text).context("its description is damaged")?;
    ensure!(
        meta.schema == SCHEMA,
        "its schema is {}, and this latlab reads {SCHEMA}",
        meta.schema
    );
    Ok(meta)
}

fn check_columns(found: &arrow_schema::Schema) -> Result<()> {
    for name in COLUMNS {
        let Ok(field) = found.field_with_name(name) else {
            bail!("the column {name} is missing");
        };
        let ours = schema();
        let wanted = ours.field_with_name(name)?;
        // A text's dictionary may have any index type, or there may be no dictionary.
        let is_text = *name == "error";
        ensure!(
            is_text || field.data_type() == wanted.data_type(),
            "the column {name} is of the type {}, not {}",
            field.data_type(),
            wanted.data_type()
        );
    }
    Ok(())
}

struct Rows {
    basis: Basis,
    warm_up_ns: i64,
    run: Run,
    /// Each process numbers its own connections.
    connections: FxHashMap<(u16, u32), u32>,
    /// The connections that were in use in the measured time.
    used: FxHashSet<(u16, u32)>,
    /// When the last answered request of each process ended. Rows are in the order in which requests
    /// ended; for failed requests that time is unknown.
    last_end_ns: FxHashMap<u16, i64>,
    steps: Vec<Step>,
    row: u64,
    warm_up_failed: u64,
}

/// The text of each row, with a dictionary or without; `None` if the column is no text.
fn texts(column: &ArrayRef) -> Option<Vec<Option<&str>>> {
    if let Some(dictionary) = column.as_any_dictionary_opt() {
        let values = texts(dictionary.values())?;
        // Without values each row is null, and there is nothing that a key could mean.
        if values.is_empty() {
            return Some(vec![None; dictionary.len()]);
        }
        let keys = dictionary.normalized_keys();
        let text = |(row, key): (usize, usize)| values[key].filter(|_| dictionary.is_valid(row));
        return Some(keys.into_iter().enumerate().map(text).collect());
    }
    match column.data_type() {
        DataType::Utf8 => Some(column.as_string::<i32>().iter().collect()),
        DataType::LargeUtf8 => Some(column.as_string::<i64>().iter().collect()),
        DataType::Utf8View => Some(column.as_string_view().iter().collect()),
        DataType::Null => Some(vec![None; column.len()]),
        _ => None,
    }
}

fn numbers<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a PrimitiveArray<T>> {
    let column = batch.column_by_name(name);
    let column = column.with_context(|| format!("the column {name} is missing"))?;
    let numbers = column.as_primitive_opt::<T>();
    numbers.with_context(|| format!("the column {name} is of another type"))
}

impl Rows {
    fn fail(&mut self, intended_ns: i64, reason: &str) {
        if intended_ns < self.warm_up_ns {
            self.warm_up_failed += 1;
            return;
        }
        self.run.fail(reason);
        let step = self.step(intended_ns);
        if let Some(failed) = self.run.failed_in_steps.get_mut(step) {
            *failed += 1;
        }
    }

    /// The last step that begins before this time.
    fn step(&self, intended_ns: i64) -> usize {
        let begun = self
            .steps
            .partition_point(|step| step.begin_ns <= intended_ns);
        begun.saturating_sub(1)
    }

    /// Notes a connection as used if in the measured time the request was intended to start, or was in
    /// flight.
    fn use_connection(&mut self, key: (u16, u32), intended_ns: i64, over_ns: i64) -> Result<()> {
        if intended_ns >= self.warm_up_ns || over_ns >= self.warm_up_ns {
            self.used.insert(key);
            ensure!(
                self.used.len() <= REQUESTS_MAX,
                "it has more than {REQUESTS_MAX} connections, and no more are taken at once"
            );
        }
        Ok(())
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let intended = numbers::<Int64Type>(batch, "intended_ns")?;
        let start = numbers::<Int64Type>(batch, "start_ns")?;
        let first_byte = numbers::<Int64Type>(batch, "first_byte_ns")?;
        let end = numbers::<Int64Type>(batch, "end_ns")?;
        let size = numbers::<Int64Type>(batch, "size")?;
        let received = numbers::<Int64Type>(batch, "received")?;
        let status = numbers::<UInt16Type>(batch, "status")?;
        let connection = numbers::<UInt32Type>(batch, "connection")?;
        let process = numbers::<UInt16Type>(batch, "process")?;
        let local_port = numbers::<UInt16Type>(batch, "local_port")?;
        let error = batch
            .column_by_name("error")
            .context("the column error is missing")?;
        let errors = texts(error).context("the column error is no text")?;
        for (row, error) in errors.into_iter().enumerate() {
            self.row += 1;
            let is_warm_up = intended.value(row) < self.warm_up_ns;
            let code = status.value(row);
            let key = (process.value(row), connection.value(row));
            let last_end_ns = self.last_end_ns.entry(key.0).or_insert(i64::MIN);
            if end.is_valid(row) {
                *last_end_ns = end.value(row).max(*last_end_ns);
            }
            let over_ns = start.value(row).max(*last_end_ns);
            // Without a local port there was no connection.
            if local_port.value(row) != 0 {
                self.use_connection(key, intended.value(row), over_ns)?;
            }
            if let Some(reason) = error {
                match reason {
                    "status" => self.fail(intended.value(row), &format!("status {code}")),
                    reason => self.fail(intended.value(row), reason),
                }
                continue;
            }
            if code != 0 && !(200..400).contains(&code) {
                self.fail(intended.value(row), &format!("status {code}"));
                continue;
            }
            let last = match self.basis {
                Basis::FirstByte => first_byte,
                _ => end,
            };
            if last.is_null(row) {
                self.fail(intended.value(row), "no answer by the end of the run");
                continue;
            }
            let begin_ns = match self.basis {
                Basis::Intended => intended.value(row),
                _ => start.value(row),
            };
            let latency = last.value(row).checked_sub(begin_ns);
            let Some(latency) = latency.and_then(|latency| u64::try_from(latency).ok()) else {
                bail!("it is damaged: request {} ends before it begins", self.row);
            };
            let next = self.connections.len() as u32;
            let size = [size.value(row), received.value(row)]
                .into_iter()
                .find_map(|size| u64::try_from(size).ok());
            self.run.push(Request {
                begin_ns,
                sent_ns: start.value(row),
                latency,
                size: size.unwrap_or(Request::NO_SIZE),
                connection: *self.connections.entry(key).or_insert(next),
                step: self.step(intended.value(row)) as u16,
                is_warm_up,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{Int8Type, UInt32Type};
    use arrow_array::{
        DictionaryArray, Int64Array, LargeStringArray, NullArray, StringArray, StringViewArray,
    };

    use super::*;

    #[test]
    fn texts_are_read_in_every_form() {
        let rows = [Some("timeout"), None, Some("status"), Some("timeout")];
        let forms: [ArrayRef; 5] = [
            Arc::new(rows.into_iter().collect::<DictionaryArray<UInt32Type>>()),
            Arc::new(rows.into_iter().collect::<DictionaryArray<Int8Type>>()),
            Arc::new(StringArray::from(rows.to_vec())),
            Arc::new(LargeStringArray::from(rows.to_vec())),
            Arc::new(StringViewArray::from(rows.to_vec())),
        ];
        for form in forms {
            assert_eq!(texts(&form), Some(rows.to_vec()), "{}", form.data_type());
        }
        let none = [None, None];
        let forms: [ArrayRef; 2] = [
            Arc::new(none.into_iter().collect::<DictionaryArray<UInt32Type>>()),
            Arc::new(NullArray::new(2)),
        ];
        for form in forms {
            assert_eq!(texts(&form), Some(none.to_vec()), "{}", form.data_type());
        }
        let number: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        assert_eq!(texts(&number), None);
    }
}
