//! Files that are taken for recorded requests: read, measured, printed.
//!
//! As in `history`: if the first byte is even, the rest are changes to a Parquet file that is whole, each a
//! place (three bytes) and what to put there.
#![no_main]

use std::io::Write;
use std::sync::{Arc, OnceLock};

use arrow_array::types::UInt32Type;
use arrow_array::{
    new_null_array, Array, ArrayRef, DictionaryArray, Int64Array, RecordBatch, UInt16Array,
    UInt32Array,
};
use arrow_schema::DataType;
use latlab_analysis::page::page;
use latlab_analysis::read::{read, Options};
use latlab_analysis::report::{measure, Report, Settings};
use latlab_analysis::rows::{schema, SCHEMA};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let content = match kind % 2 {
        0 => changed(rest),
        _ => rest.to_vec(),
    };
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&content).expect("room for it");
    let Ok(run) = read(file.path(), &Options::default()) else {
        return;
    };
    let settings = Settings {
        load: (kind & 2 == 2).then_some(0.9),
        request_bytes: 0,
    };
    if let Ok(measured) = measure(&run, &settings) {
        let report = Report::new(vec![measured.report]);
        serde_json::to_vec(&report).expect("JSON");
        let _ = page(&report);
    }
});

fn changed(changes: &[u8]) -> Vec<u8> {
    static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
    let mut bytes = WHOLE.get_or_init(whole).clone();
    for change in changes.chunks_exact(4) {
        let place = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize;
        let length = bytes.len();
        bytes[place % length] = change[3];
    }
    bytes
}

fn whole() -> Vec<u8> {
    let rows = 12;
    let columns: Vec<ArrayRef> = schema()
        .fields()
        .iter()
        .map(|field| -> ArrayRef {
            match (field.name().as_str(), field.data_type()) {
                ("end_ns", _) => Arc::new(Int64Array::from_iter_values(
                    (0..rows).map(|at| at * 900 + 500),
                )),
                (_, DataType::Int64) => {
                    Arc::new(Int64Array::from_iter_values((0..rows).map(|at| at * 800)))
                }
                (_, DataType::UInt16) => {
                    Arc::new(UInt16Array::from_iter_values((0..rows).map(|_| 200)))
                }
                (_, DataType::UInt32) => Arc::new(UInt32Array::from_iter_values(
                    (0..rows).map(|at| at as u32 % 3),
                )),
                (_, kind) if field.is_nullable() => new_null_array(kind, rows as usize),
                (_, kind) => {
                    let texts = (0..rows)
                        .map(|_| "x")
                        .collect::<DictionaryArray<UInt32Type>>();
                    assert_eq!(texts.data_type(), kind);
                    Arc::new(texts)
                }
            }
        })
        .collect();
    let batch = RecordBatch::try_new(schema(), columns).expect("columns");
    let meta = format!(
        "{{\"schema\":\"{SCHEMA}\",\"started_realtime_ns\":1,\"mode\":\"closed\",\"warmup_ns\":900}}"
    );
    let properties = WriterProperties::builder()
        .set_key_value_metadata(Some(vec![KeyValue::new(SCHEMA.to_string(), meta)]))
        .build();
    let mut bytes = Vec::new();
    let mut writer =
        ArrowWriter::try_new(&mut bytes, schema(), Some(properties)).expect("a writer");
    writer.write(&batch).expect("rows");
    writer.close().expect("the end");
    bytes
}
