// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as Parquet: one row for each sample. `hbench/docs/result.md` documents the columns.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{ensure, Context, Result};
use arrow_array::{
    Array, ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use debox_history::careful::{carefully, check_pages, Careful};
use kit_files::{input, output::Output};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::meta::{Meta, Sample, SCHEMA};

/// A file with more would not be a result of `hbench run`.
const ROWS_MAX: usize = 10_000_000;

#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    pub meta: Meta,
    pub samples: Vec<Sample>,
}

pub fn schema() -> SchemaRef {
    use DataType::{Float64, UInt32, UInt64, Utf8};
    let needed = |name: &str, kind| Field::new(name, kind, false);
    let perhaps = |name: &str, kind| Field::new(name, kind, true);
    Arc::new(Schema::new(vec![
        needed("benchmark", Utf8),
        needed("round", UInt32),
        needed("instance", UInt32),
        perhaps("cpu", UInt32),
        needed("start_ns", UInt64),
        needed("iterations", UInt64),
        needed("elapsed_ns", Float64),
        needed("overhead_ns", Float64),
        perhaps("baseline_ns", Float64),
        needed("operation_ns", Float64),
        perhaps("bytes", UInt64),
        perhaps("runqueue_ns", UInt64),
    ]))
}

/// Writes the file whole, or leaves the previous one.
pub fn write(path: &Path, recorded: &Recorded) -> Result<()> {
    let bytes = encode(recorded)?;
    let output = Output::create(path)?;
    (&output)
        .write_all(&bytes)
        .with_context(|| format!("cannot write {}", path.display()))?;
    output.commit()
}

fn encode(recorded: &Recorded) -> Result<Vec<u8>> {
    let level = ZstdLevel::try_new(1).context("zstd has no level 1")?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .build();
    let options = ArrowWriterOptions::new().with_properties(properties);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), schema(), options)?;
    writer.write(&batch(&recorded.samples)?)?;
    let text = serde_json::to_string(&recorded.meta)?;
    writer.append_key_value_metadata(KeyValue::new(SCHEMA.to_string(), text));
    Ok(writer.into_inner()?)
}

fn batch(samples: &[Sample]) -> Result<RecordBatch> {
    fn column<A: FromIterator<T> + Array + 'static, T>(
        samples: &[Sample],
        value: impl Fn(&Sample) -> T,
    ) -> ArrayRef {
        Arc::new(samples.iter().map(value).collect::<A>())
    }
    let text = samples.iter().map(|sample| Some(sample.benchmark.as_str()));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(text.collect::<StringArray>()),
        column::<UInt32Array, _>(samples, |sample| Some(sample.round)),
        column::<UInt32Array, _>(samples, |sample| Some(sample.instance)),
        column::<UInt32Array, _>(samples, |sample| sample.cpu),
        column::<UInt64Array, _>(samples, |sample| Some(sample.start_ns)),
        column::<UInt64Array, _>(samples, |sample| Some(sample.iterations)),
        column::<Float64Array, _>(samples, |sample| Some(sample.elapsed_ns)),
        column::<Float64Array, _>(samples, |sample| Some(sample.overhead_ns)),
        column::<Float64Array, _>(samples, |sample| sample.baseline_ns),
        column::<Float64Array, _>(samples, |sample| Some(sample.operation_ns)),
        column::<UInt64Array, _>(samples, |sample| sample.bytes),
        column::<UInt64Array, _>(samples, |sample| sample.runqueue_ns),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}

/// # Errors
///
/// It is no result of `hbench run`, or damaged; the error names the file.
pub fn read(path: &Path) -> Result<Recorded> {
    read_file(path).with_context(|| format!("cannot use {} as a result of hbench", path.display()))
}

fn read_file(path: &Path) -> Result<Recorded> {
    let file = input::open(path)?;
    let length = file.metadata().context("it cannot be looked at")?.len();
    let builder = carefully(|| ParquetRecordBatchReaderBuilder::try_new(file))
        .and_then(|built| Ok(built?))
        .context("it is no Parquet file, or it is damaged")?;
    let metadata = builder.metadata().clone();
    let pairs = metadata.file_metadata().key_value_metadata();
    let text = pairs.into_iter().flatten().find(|pair| pair.key == SCHEMA);
    let text = text.and_then(|pair| pair.value.as_ref()).with_context(|| {
        format!("it has no description {SCHEMA}: make one with `hbench run -o`")
    })?;
    let meta: Meta = serde_json::from_str(text).context("its description is damaged")?;
    for field in schema().fields() {
        let found = builder.schema().field_with_name(field.name());
        ensure!(
            found.is_ok_and(|found| found.data_type() == field.data_type()),
            "its column {} is missing or of another type",
            field.name()
        );
    }
    check_pages(&metadata, length).context("it is damaged")?;
    let rows = metadata.file_metadata().num_rows();
    ensure!(
        usize::try_from(rows).is_ok_and(|rows| rows <= ROWS_MAX),
        "it claims {rows} rows"
    );
    let reader = carefully(|| builder.build())
        .and_then(|built| Ok(built?))
        .context("it is damaged")?;
    let mut samples = Vec::new();
    for batch in Careful::new(reader) {
        take(&batch?, &mut samples)?;
        ensure!(samples.len() <= ROWS_MAX, "it has too many rows");
    }
    Ok(Recorded { meta, samples })
}

fn take(batch: &RecordBatch, samples: &mut Vec<Sample>) -> Result<()> {
    fn column<'a, A: 'static>(batch: &'a RecordBatch, name: &str) -> Result<&'a A> {
        let found = batch.column_by_name(name);
        found
            .and_then(|column| column.as_any().downcast_ref::<A>())
            .with_context(|| format!("its column {name} is missing"))
    }
    let benchmark: &StringArray = column(batch, "benchmark")?;
    let whole = |name| column::<UInt32Array>(batch, name);
    let (round, instance, cpu) = (whole("round")?, whole("instance")?, whole("cpu")?);
    let long = |name| column::<UInt64Array>(batch, name);
    let (start, iterations) = (long("start_ns")?, long("iterations")?);
    let (bytes, runqueue) = (long("bytes")?, long("runqueue_ns")?);
    let real = |name| column::<Float64Array>(batch, name);
    let (elapsed, overhead) = (real("elapsed_ns")?, real("overhead_ns")?);
    let (baseline, operation) = (real("baseline_ns")?, real("operation_ns")?);
    for at in 0..batch.num_rows() {
        let operation_ns = operation.value(at);
        ensure!(
            operation_ns.is_finite() && !operation.is_null(at) && !benchmark.is_null(at),
            "a row has no time or no name"
        );
        samples.push(Sample {
            benchmark: benchmark.value(at).to_string(),
            round: round.value(at),
            instance: instance.value(at),
            cpu: (!cpu.is_null(at)).then(|| cpu.value(at)),
            start_ns: start.value(at),
            iterations: iterations.value(at),
            elapsed_ns: elapsed.value(at),
            overhead_ns: overhead.value(at),
            baseline_ns: (!baseline.is_null(at)).then(|| baseline.value(at)),
            operation_ns,
            bytes: (!bytes.is_null(at)).then(|| bytes.value(at)),
            runqueue_ns: (!runqueue.is_null(at)).then(|| runqueue.value(at)),
        });
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::environment::{Environment, Noise};
    use crate::meta::{Clock, Declared, State};

    /// A result with these values for each benchmark.
    pub(crate) fn recorded(values: &[(&str, &[f64])]) -> Recorded {
        let declared = |name: &str| Declared {
            name: name.to_string(),
            group: "calls".to_string(),
            operation: "a call".to_string(),
            depends_on: Vec::new(),
            answers_to: Vec::new(),
        };
        let meta = Meta {
            schema: SCHEMA.to_string(),
            version: "0.1.0".to_string(),
            started: "2026-01-01T00:00:00Z".to_string(),
            duration_ns: 1,
            state: State::Complete,
            rounds: 11,
            rounds_done: 11,
            sample_ns: 1,
            instances: 1,
            samples_dropped: 0,
            under: None,
            clock: Clock::MonotonicRaw { overhead_ns: 20.0 },
            environment: Environment::default(),
            noise: Noise::default(),
            benchmarks: values.iter().map(|(name, _)| declared(name)).collect(),
            left_out: Vec::new(),
        };
        let mut samples = Vec::new();
        for (name, values) in values {
            for (round, value) in values.iter().enumerate() {
                samples.push(Sample {
                    benchmark: name.to_string(),
                    round: round as u32,
                    instance: 0,
                    cpu: Some(1),
                    start_ns: round as u64,
                    iterations: 10,
                    elapsed_ns: value * 10.0 + 20.0,
                    overhead_ns: 20.0,
                    baseline_ns: None,
                    operation_ns: *value,
                    bytes: name.starts_with("memory").then_some(1000),
                    runqueue_ns: Some(0),
                });
            }
        }
        Recorded { meta, samples }
    }

    #[test]
    fn what_is_written_is_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("result.parquet");
        let mut result = recorded(&[("a", &[1.5, 2.5]), ("memory.read/16K", &[-3.0])]);
        result.samples[0].baseline_ns = Some(0.5);
        result.samples[1].cpu = None;
        write(&path, &result).expect("room");
        assert_eq!(read(&path).expect("it is whole"), result);
    }

    #[test]
    fn what_is_no_result_is_refused_in_one_sentence() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("result");
        std::fs::write(&path, "no Parquet").expect("room");
        let error = format!("{:#}", read(&path).expect_err("no result"));
        assert!(error.contains("it is no Parquet file"), "{error}");
        assert!(read(directory.path()).is_err());
        let mut result = recorded(&[("a", &[f64::NAN])]);
        write(&path, &result).expect("room");
        let error = format!("{:#}", read(&path).expect_err("no number"));
        assert!(error.contains("no time"), "{error}");
        result.samples.clear();
        write(&path, &result).expect("room");
        assert!(read(&path).expect("no rows").samples.is_empty());
    }

    #[test]
    fn every_column_is_documented() {
        let page = include_str!("../../docs/result.md");
        for field in schema().fields() {
            let row = format!("| `{}` |", field.name());
            assert!(page.contains(&row), "{row}");
        }
        let documented = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(documented, schema().fields().len());
    }

    #[test]
    fn the_description_fits_its_schema() {
        let schema = include_str!("../../schema/hbench-result-1.json");
        let schema: serde_json::Value = serde_json::from_str(schema).expect("JSON");
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let mut meta = recorded(&[("a", &[1.0])]).meta;
        meta.left_out.push(crate::meta::LeftOut {
            benchmark: "b".to_string(),
            reason: "no".to_string(),
            round: Some(1),
            is_wrong: false,
        });
        let meta = serde_json::to_value(&meta).expect("JSON");
        let errors: Vec<String> = validator
            .iter_errors(&meta)
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
        let required = schema["required"].as_array().expect("a list");
        assert_eq!(required.len(), meta.as_object().expect("an object").len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn damaged_files_are_errors_or_results(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("result");
            let mut bytes = encode(&recorded(&[("a", &[1.0, 2.0]), ("b", &[3.0])])).expect("memory");
            for (place, value) in changes {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            if cut.index(3) == 0 {
                bytes.truncate(cut.index(bytes.len()));
            }
            std::fs::write(&path, &bytes).expect("room");
            let _ = read(&path);
        }
    }
}
