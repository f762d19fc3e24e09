//! Rows as Parquet: `latlab.requests/1`.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{ensure, Context, Result};
use arrow_array::builder::{
    Int64Builder, StringDictionaryBuilder, UInt16Builder, UInt32Builder, UInt8Builder,
};
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, RecordBatch};
use kit_files::planted;
use latlab_analysis::rows::{schema, Meta, SCHEMA};
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::Row;
use crate::workload::{Workload, NO_CLASS};

/// Rows of a group, and of a batch before it is encoded.
const GROUP_ROWS: usize = 1 << 17;

#[derive(Default)]
struct Columns {
    intended: Int64Builder,
    start: Int64Builder,
    first_byte: Int64Builder,
    end: Int64Builder,
    size: Int64Builder,
    received: Int64Builder,
    status: UInt16Builder,
    connection: UInt32Builder,
    process: UInt16Builder,
    kind: StringDictionaryBuilder<UInt32Type>,
    class: UInt8Builder,
    path: StringDictionaryBuilder<UInt32Type>,
    error: StringDictionaryBuilder<UInt32Type>,
    local_port: UInt16Builder,
    connect: Int64Builder,
    tls: Int64Builder,
    rows: usize,
}

/// A file that is being written. It gets its name when it is complete.
pub struct ParquetFile {
    path: PathBuf,
    unfinished: tempfile::TempPath,
    writer: ArrowWriter<BufWriter<File>>,
    columns: Columns,
}

impl ParquetFile {
    /// Returns an error if the file cannot be replaced.
    pub fn check(path: &Path) -> Result<()> {
        let found = std::fs::metadata(path);
        ensure!(
            found.map_or(true, |found| found.is_file()),
            "cannot write {}: it is there, and is no regular file",
            path.display()
        );
        planted::refuse(path)
    }

    pub fn create(path: &Path) -> Result<ParquetFile> {
        ParquetFile::check(path)?;
        let directory = path.parent().filter(|parent| *parent != Path::new(""));
        let cannot = || format!("cannot write {}", path.display());
        let (file, unfinished) = tempfile::Builder::new()
            .prefix(".latlab-")
            .tempfile_in(directory.unwrap_or(Path::new(".")))
            .with_context(cannot)?
            .into_parts();
        let level = ZstdLevel::try_new(1).context("zstd has no level 1")?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let options = ArrowWriterOptions::new().with_properties(properties);
        let writer = ArrowWriter::try_new_with_options(BufWriter::new(file), schema(), options)
            .with_context(cannot)?;
        Ok(ParquetFile {
            path: path.to_path_buf(),
            unfinished,
            writer,
            columns: Columns::default(),
        })
    }

    pub fn push(&mut self, row: &Row, workload: &Workload) -> Result<()> {
        let columns = &mut self.columns;
        columns.intended.append_value(row.intended_ns);
        columns.start.append_value(row.start_ns);
        columns.first_byte.append_option(row.first_byte_ns);
        columns.end.append_option(row.end_ns);
        columns
            .size
            .append_value(row.size.map_or(-1, |size| size as i64));
        columns.received.append_value(row.received as i64);
        columns.status.append_value(row.status);
        columns.connection.append_value(row.connection);
        columns.process.append_value(row.process);
        columns.kind.append_value(row.kind.name());
        let class = (row.class != NO_CLASS).then_some(row.class);
        columns.class.append_option(class);
        columns.path.append_value(workload.path(row.path));
        let error = row.failure.map(|failure| failure.name());
        columns.error.append_option(error);
        columns.local_port.append_value(row.local_port);
        columns.connect.append_option(row.connect_ns);
        columns.tls.append_option(row.tls_ns);
        columns.rows += 1;
        if columns.rows >= GROUP_ROWS {
            self.write_batch()?;
        }
        Ok(())
    }

    fn write_batch(&mut self) -> Result<()> {
        let mut columns = std::mem::take(&mut self.columns);
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(columns.intended.finish()),
            Arc::new(columns.start.finish()),
            Arc::new(columns.first_byte.finish()),
            Arc::new(columns.end.finish()),
            Arc::new(columns.size.finish()),
            Arc::new(columns.received.finish()),
            Arc::new(columns.status.finish()),
            Arc::new(columns.connection.finish()),
            Arc::new(columns.process.finish()),
            Arc::new(columns.kind.finish()),
            Arc::new(columns.class.finish()),
            Arc::new(columns.path.finish()),
            Arc::new(columns.error.finish()),
            Arc::new(columns.local_port.finish()),
            Arc::new(columns.connect.finish()),
            Arc::new(columns.tls.finish()),
        ];
        let batch = RecordBatch::try_new(schema(), arrays)?;
        self.writer
            .write(&batch)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub fn finish(mut self, meta: &Meta) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        if self.columns.rows > 0 {
            self.write_batch()?;
        }
        let text = serde_json::to_string(meta)?;
        let pair = KeyValue::new(SCHEMA.to_string(), text);
        self.writer.append_key_value_metadata(pair);
        let cannot = || format!("cannot write {}", self.path.display());
        let file = self.writer.into_inner().with_context(cannot)?;
        let file = file
            .into_inner()
            .map_err(|error| error.into_error())
            .with_context(cannot)?;
        // With delayed allocation, "no space left" may appear only when the data is written back.
        file.sync_data().with_context(cannot)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o644))
            .with_context(cannot)?;
        self.unfinished.persist(&self.path).with_context(cannot)?;
        Ok(())
    }
}
