//! Writing a history so that it can be read at any time, also after the writer was killed.
//!
//! A Parquet file is readable once its footer is written. Rows gather until they are worth a group
//! of their own; then the group is appended and a footer after it, and the next group goes behind
//! that footer, which readers skip. Rows that still gather are in a second file beside it, the tail,
//! which is written anew every few seconds and put in place by renaming.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use arrow::array::{new_null_array, ArrayRef, BooleanArray, RecordBatch};
use debox::history::Call;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::columns::Columns;
use crate::encode::Encoder;
use crate::meta::Meta;
use crate::schema::schema;

/// When rows are written.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Rows of a group. A reader's memory, and this writer's, grow with it.
    pub group_rows: usize,
    /// What a killed recorder may lose, at most.
    pub tail_every: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            group_rows: 1 << 17,
            tail_every: Duration::from_secs(2),
        }
    }
}

/// Sleeps of the rows of one group, at most: a call may have thousands.
const GROUP_SLEEPS: usize = 1 << 19;

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub rows: u64,
    pub bytes: u64,
}

/// One file that is being written.
pub struct Writer {
    path: PathBuf,
    limits: Limits,
    meta: Meta,
    encoder: Encoder,
    columns: Columns,
    /// Rows that the encoder has been given.
    sealed_rows: u64,
    /// Rows that the tail has.
    in_tail: usize,
    tail_written: Instant,
}

/// The file beside it with the rows that gather.
pub fn tail_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".tail");
    path.with_file_name(name)
}

impl Writer {
    /// Makes the file, which takes the place of an older one.
    pub fn create(path: &Path, meta: Meta, limits: Limits) -> Result<Writer> {
        Ok(Writer {
            path: path.to_path_buf(),
            limits,
            encoder: Encoder::create(path, &meta)?,
            meta,
            columns: Columns::default(),
            sealed_rows: 0,
            in_tail: 0,
            tail_written: Instant::now(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// So far; bytes of what is in the file.
    pub fn summary(&self) -> Summary {
        Summary {
            rows: self.sealed_rows + self.columns.len() as u64,
            bytes: self.encoder.bytes(),
        }
    }

    /// What the next footer says.
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.meta
    }

    pub fn append(&mut self, call: &Call) -> Result<()> {
        self.columns.append(call, self.meta.realtime_offset_ns);
        if self.columns.len() >= self.limits.group_rows || self.columns.sleeps() >= GROUP_SLEEPS {
            self.seal()?;
        }
        Ok(())
    }

    /// Rows that are columns already.
    pub(crate) fn append_batch(&mut self, batch: RecordBatch) -> Result<()> {
        self.seal()?;
        let batch = with_all_columns(&batch)?;
        self.sealed_rows += batch.num_rows() as u64;
        self.encoder.rows(batch, self.limits.group_rows)
    }

    /// To be called from time to time: what has gathered since is written if it is time to.
    pub fn tick(&mut self) -> Result<()> {
        let has_news = self.columns.len() > self.in_tail;
        // The rows before those of the tail have to be in the file before it.
        if has_news
            && self.encoder.is_idle()
            && self.tail_written.elapsed() >= self.limits.tail_every
        {
            self.write_tail()?;
        }
        Ok(())
    }

    /// Waits until the groups so far are in the file.
    pub fn settle(&self) {
        while !self.encoder.is_idle() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Writes what is left and the last footer.
    pub fn finish(mut self) -> Result<Summary> {
        self.seal()?;
        let bytes = self.encoder.finish(&self.meta)?;
        Ok(Summary {
            rows: self.sealed_rows,
            bytes,
        })
    }

    fn seal(&mut self) -> Result<()> {
        if self.columns.len() == 0 {
            return Ok(());
        }
        let columns = std::mem::take(&mut self.columns);
        let batch = columns.build()?;
        drop(columns);
        self.sealed_rows += batch.num_rows() as u64;
        self.in_tail = 0;
        self.encoder.group(batch, &self.meta)
    }

    fn write_tail(&mut self) -> Result<()> {
        let tail = tail_of(&self.path);
        let directory = self.path.parent().filter(|parent| *parent != Path::new(""));
        let unfinished = tempfile::Builder::new()
            .prefix(".debox-tail-")
            .tempfile_in(directory.unwrap_or(Path::new(".")))
            .with_context(|| format!("cannot write {}", tail.display()))?;
        let meta = Meta {
            rows_before: self.meta.rows_before + self.sealed_rows,
            ..self.meta.clone()
        };
        let properties = properties(Compression::UNCOMPRESSED)
            .into_builder()
            .set_key_value_metadata(Some(vec![meta.to_key_value()?]))
            .build();
        let options = ArrowWriterOptions::new().with_properties(properties);
        let batch = self.columns.build()?;
        let file = unfinished.as_file().try_clone()?;
        let written =
            ArrowWriter::try_new_with_options(file, schema(), options).and_then(|mut writer| {
                writer.write(&batch)?;
                writer.close()
            });
        written.with_context(|| format!("cannot write {}", tail.display()))?;
        unfinished
            .persist(&tail)
            .with_context(|| format!("cannot write {}", tail.display()))?;
        self.in_tail = self.columns.len();
        self.tail_written = Instant::now();
        Ok(())
    }
}

/// What older files lack is false, or null.
fn with_all_columns(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = schema();
    let columns = schema.fields().iter().map(|field| {
        let rows = batch.num_rows();
        let none = || match field.is_nullable() {
            true => new_null_array(field.data_type(), rows),
            false => Arc::new(BooleanArray::from(vec![false; rows])) as ArrayRef,
        };
        let column = batch.column_by_name(field.name());
        column.cloned().unwrap_or_else(none)
    });
    let columns = columns.collect();
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// For what is kept.
pub(crate) fn compressed() -> Result<WriterProperties> {
    let level = ZstdLevel::try_new(1).context("zstd has no level 1")?;
    Ok(properties(Compression::ZSTD(level)))
}

/// Where readers look for rows by statistics, or can see by them that a group has nothing there. Not in
/// all columns: each footer has those of all groups.
const STATISTICS: &[&str] = &[
    "time",
    "tid",
    "error",
    "wall_ns",
    "blocked_ns",
    "preempted_ns",
    "irq_ns",
    "spin_ns",
    "faults_minor",
    "faults_major",
    "restarted",
    "partial",
    "sleeps_left_out",
    "in_flight",
    "user_ns",
];
const STATISTICS_OF_SLEEPS: &[&str] = &[
    "begin_ns",
    "resource",
    "waker_comm",
    "owner_certainty",
    "owner_tid",
    "owner_comm",
    "owner_doing",
];

/// Nearly every value of these is another, and little more than the one before it.
const RISING: &[&str] = &["time", "ordinal"];

fn properties(compression: Compression) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true);
    let flat = STATISTICS.iter().map(|name| vec![name.to_string()]);
    let of_sleeps = STATISTICS_OF_SLEEPS.iter().map(|name| {
        ["sleeps", "list", "item", name]
            .map(str::to_string)
            .to_vec()
    });
    for path in flat.chain(of_sleeps) {
        properties =
            properties.set_column_statistics_enabled(path.into(), EnabledStatistics::Chunk);
    }
    for name in RISING {
        let path: ColumnPath = vec![name.to_string()].into();
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}
