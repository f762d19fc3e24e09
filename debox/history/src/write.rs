//! Writes a history so that it can be read at any time, even after the writer was killed or while the
//! disk is full.
//!
//! A Parquet file is readable once its footer is written. Rows are gathered until there are enough for
//! a group; then the group is appended with a footer after it. The next group goes after that footer,
//! which readers skip. Rows that are still being gathered are in a second file beside it, the tail,
//! which is rewritten every few seconds and put in place by renaming.
//!
//! While a group cannot be written, records are gathered in memory up to the size of another group.
//! Further records are counted as lost, with the time of the first and the last.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use arrow_array::{new_null_array, ArrayRef, BooleanArray, RecordBatch};
use debox_model::history::Call;
use kit_files::output;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::Compression;

use crate::columns::Columns;
use crate::encode::{Encoder, GroupRows};
use crate::meta::{Gap, Meta};
use crate::parquet_file::{properties, remove, tail_of};
use crate::schema::schema;

/// When rows are written.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Rows of a group. A reader's memory, and this writer's, grow with it.
    pub group_rows: usize,
    /// The most that a killed recorder may lose.
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

/// The most sleeps in the rows of one group: a call may have thousands.
const GROUP_SLEEPS: usize = 1 << 19;

/// The amount that was written.
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
    /// The span of time of the rows in `columns`.
    span: Option<Gap>,
    /// Records that are lost because the encoder has no room.
    gap: Option<Gap>,
    /// Rows that the encoder has received.
    sealed_rows: u64,
    /// Rows in the tail, and the end of the last of them.
    in_tail: usize,
    tail_until_ns: u64,
    tail_written: Instant,
}

/// The result of ending a file.
pub struct End {
    pub summary: Summary,
    /// Why not all of it could be written.
    pub failure: Option<io::Error>,
    /// The metadata, including the gaps of what could not be written.
    pub meta: Meta,
}

/// The rows that a file could not take, for another file.
pub struct Rest {
    groups: Vec<GroupRows>,
    columns: Columns,
    span: Option<Gap>,
    gap: Option<Gap>,
}

impl Writer {
    /// Creates the file, replacing an older one.
    pub fn create(path: &Path, meta: Meta, limits: Limits) -> Result<Writer> {
        let file = output::create_in_place(path)?;
        // An existing tail belongs to the older file.
        remove(&tail_of(path))?;
        Writer::of_file(file, path, meta, limits)
    }

    /// Writes to an empty file.
    pub fn of_file(file: fs::File, path: &Path, meta: Meta, limits: Limits) -> Result<Writer> {
        Ok(Writer {
            path: path.to_path_buf(),
            limits,
            encoder: Encoder::create(file, path, &meta)?,
            meta,
            columns: Columns::default(),
            span: None,
            gap: None,
            sealed_rows: 0,
            in_tail: 0,
            tail_until_ns: 0,
            tail_written: Instant::now(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The amount written so far; the bytes are those in the file.
    pub fn summary(&self) -> Summary {
        Summary {
            rows: self.sealed_rows + self.columns.len() as u64,
            bytes: self.encoder.bytes(),
        }
    }

    /// The metadata of the next footer.
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.meta
    }

    /// Whether the last group could not be written yet.
    pub fn is_stuck(&self) -> bool {
        self.encoder.is_stuck()
    }

    /// Why the last group could not be written; returned once for each time that this began.
    pub fn take_failure(&self) -> Option<io::Error> {
        self.encoder.take_failure()
    }

    /// The records lost since the last group could not be written.
    pub fn gap(&self) -> Option<Gap> {
        self.gap
    }

    /// Whether the file has a group: then another file would have room for one, too.
    pub fn has_groups(&self) -> bool {
        self.encoder.groups() > 0
    }

    pub fn append(&mut self, call: &Call) -> Result<()> {
        let end_ns = call.start_ns.saturating_add(call.wall_ns);
        if self.is_full() && !self.seal_if_room()? {
            Gap::add(&mut self.gap, call.start_ns, end_ns);
            return Ok(());
        }
        Gap::add(&mut self.span, call.start_ns, end_ns);
        self.columns.append(call, self.meta.realtime_offset_ns);
        if self.is_full() {
            self.seal_if_room()?;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.columns.len() >= self.limits.group_rows || self.columns.sleeps() >= GROUP_SLEEPS
    }

    /// Appends rows that are columns already.
    pub(crate) fn append_batch(&mut self, batch: RecordBatch) -> Result<()> {
        self.seal()?;
        let batch = with_all_columns(&batch)?;
        self.sealed_rows += batch.num_rows() as u64;
        self.encoder.rows(batch, self.limits.group_rows)
    }

    /// Writes the gathered rows if they are due. To be called from time to time.
    pub fn tick(&mut self) -> Result<()> {
        let has_news = self.columns.len() > self.in_tail;
        // The rows before those of the tail have to be in the file before the tail is written.
        if has_news
            && self.encoder.is_idle()
            && self.tail_written.elapsed() >= self.limits.tail_every
            && self.write_tail().is_err()
        {
            // A group is smaller than a tail, and may have room.
            self.tail_written = Instant::now();
            self.seal_if_room()?;
        }
        Ok(())
    }

    /// Waits until the groups so far are in the file, or turn out not to be writable.
    pub fn settle(&self) {
        while !self.encoder.is_idle() && !self.encoder.is_stuck() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Writes what is left and the last footer; an error if not all of it could be written.
    pub fn finish(self) -> Result<Summary> {
        let path = self.path.clone();
        let end = self.end()?;
        match end.failure {
            None => Ok(end.summary),
            Some(error) => {
                Err(error).with_context(|| format!("cannot write to {}", path.display()))
            }
        }
    }

    /// Writes what is left and the last footer, as far as there is room.
    pub fn end(mut self) -> Result<End> {
        self.seal()?;
        self.end_gap();
        let ended = self.encoder.finish(&self.meta)?;
        let mut rows = self.sealed_rows;
        for unwritten in &ended.unwritten {
            rows -= unwritten.batch.num_rows() as u64;
        }
        for gap in ended.gaps {
            self.meta.add_gap(gap);
        }
        Ok(End {
            summary: Summary {
                rows,
                bytes: ended.bytes,
            },
            failure: ended.failure,
            meta: self.meta,
        })
    }

    /// Leaves the file as it is now; the rows that are not in it go to another file.
    pub fn leave(self) -> Result<(Summary, Rest)> {
        let has_tail = self.encoder.has_tail();
        let ended = self.encoder.abandon()?;
        if has_tail {
            // The tail's rows go to the other file, too.
            remove(&tail_of(&self.path))?;
        }
        let groups = ended.unwritten;
        let rows: usize = groups.iter().map(|rows| rows.batch.num_rows()).sum();
        let summary = Summary {
            rows: self.sealed_rows - rows as u64,
            bytes: ended.bytes,
        };
        let (columns, span, gap) = (self.columns, self.span, self.gap);
        let rest = Rest {
            groups,
            columns,
            span,
            gap,
        };
        Ok((summary, rest))
    }

    /// Takes the rows that another file could not.
    pub fn take_in(&mut self, rest: Rest) -> Result<()> {
        for rows in rest.groups {
            self.sealed_rows += rows.batch.num_rows() as u64;
            self.encoder.group(rows, &self.meta)?;
        }
        (self.columns, self.span, self.gap) = (rest.columns, rest.span, rest.gap);
        Ok(())
    }

    /// Returns false if the group has to wait for room on the disk, or for the group before it while
    /// the disk is full.
    fn seal_if_room(&mut self) -> Result<bool> {
        while !self.encoder.has_room() && !self.encoder.is_stuck() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.encoder.is_stuck() {
            return Ok(false);
        }
        self.end_gap();
        self.seal()?;
        Ok(true)
    }

    fn end_gap(&mut self) {
        if let Some(gap) = self.gap.take() {
            self.meta.add_gap(gap);
        }
    }

    fn seal(&mut self) -> Result<()> {
        let Some(gap) = self.span.take() else {
            return Ok(());
        };
        let columns = std::mem::take(&mut self.columns);
        let batch = columns.build()?;
        drop(columns);
        self.sealed_rows += batch.num_rows() as u64;
        let rows = GroupRows {
            batch,
            gap,
            in_tail: self.in_tail as u64,
            tail_until_ns: self.tail_until_ns,
        };
        self.in_tail = 0;
        self.encoder.group(rows, &self.meta)
    }

    fn write_tail(&mut self) -> Result<()> {
        let tail = tail_of(&self.path);
        let unfinished = tempfile::Builder::new()
            .prefix(".debox-tail-")
            .tempfile_in(output::directory_of(&self.path))
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
        // The first tail must not replace another file.
        let persisted = match self.encoder.has_tail() {
            true => unfinished.persist(&tail),
            false => unfinished.persist_noclobber(&tail),
        };
        persisted.with_context(|| format!("cannot write {}", tail.display()))?;
        self.encoder.set_tail(true);
        self.in_tail = self.columns.len();
        self.tail_until_ns = self.span.map_or(0, |span| span.to_ns);
        self.tail_written = Instant::now();
        Ok(())
    }
}

/// Columns that older files lack are false or null.
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
