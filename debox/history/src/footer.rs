//! Encodes a footer by itself: with it, a file that is still being written can be read.

use anyhow::{Context, Result};
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};

use crate::meta::Meta;
use crate::schema::schema;

/// The footer of a file with these groups, which have so many rows together.
pub(crate) fn encode_footer(
    groups: Vec<RowGroupMetaData>,
    rows: u64,
    meta: &Meta,
) -> Result<Vec<u8>> {
    let descriptor = parquet::arrow::ArrowSchemaConverter::new().convert(&schema())?;
    let values = vec![
        meta.to_key_value()?,
        KeyValue::new(
            parquet::arrow::ARROW_SCHEMA_META_KEY.to_string(),
            parquet::arrow::encode_arrow_schema(&schema()),
        ),
    ];
    let file = FileMetaData::new(
        2,
        i64::try_from(rows).context("too many rows")?,
        Some(meta.writer.clone()),
        Some(values),
        descriptor.into(),
        None,
    );
    let metadata = ParquetMetaData::new(file, groups);
    let mut bytes = Vec::new();
    ParquetMetaDataWriter::new(&mut bytes, &metadata)
        .finish()
        .context("cannot describe the file")?;
    Ok(bytes)
}
