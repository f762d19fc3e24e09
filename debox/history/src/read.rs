//! Reads histories: one file or several; complete, truncated, or still being written.

use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{bail, ensure, Context, Result};
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use debox_model::history::Call;
use kit_files::input;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::arrow::ProjectionMask;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::Statistics;

use crate::careful::{carefully, check_pages, Careful};
use crate::meta::{Account, Meta};
use crate::parquet_file::tail_of;
use crate::recover;
use crate::rows::{calls as decoded, ALL};
use crate::schema::{schema, LATER};

/// Rows decoded in one batch.
const BATCH_ROWS: usize = 8192;

/// The files of one history, in order.
#[derive(Debug)]
pub struct History {
    pub files: Vec<File>,
}

/// One file of a history.
#[derive(Debug, Clone)]
pub struct File {
    pub path: PathBuf,
    pub meta: Meta,
    pub rows: u64,
    /// Bytes at the end of the file that do not belong to it: its writer was stopped in the middle of a
    /// write.
    pub cut_off: u64,
    bytes: Bytes,
    metadata: ArrowReaderMetadata,
}

impl History {
    /// The recorder's sums. Only the last file of a recording has them, and they cover all its files.
    pub fn account(&self) -> Option<&Account> {
        let first = self.files.first().filter(|file| file.meta.part == 0)?;
        let is_one = |file: &File| {
            (&file.meta.host, file.meta.started_ns) == (&first.meta.host, first.meta.started_ns)
        };
        let account = self.files.last()?.meta.account.as_ref()?;
        self.files.iter().all(is_one).then_some(account)
    }

    /// Opens files, all `*.parquet` of directories, and the tails that a killed recorder left.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<History> {
        let mut files = Vec::new();
        for path in paths {
            let path = path.as_ref();
            if path.is_dir() {
                let found = in_directory(path)?;
                ensure!(
                    !found.is_empty(),
                    "{} has no file whose name ends in .parquet",
                    path.display()
                );
                for path in found {
                    add(&mut files, &path)?;
                }
            } else {
                add(&mut files, path)?;
            }
        }
        ensure!(!files.is_empty(), "no file was named");
        files.sort_by_key(|file| {
            let meta = &file.meta;
            (
                meta.host.clone(),
                meta.started_ns,
                meta.part,
                meta.rows_before,
            )
        });
        Ok(History { files })
    }

    pub fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// The rows as columns. `columns` names those to read, such as `wall_ns` or `sleeps.label`.
    pub fn batches<'a>(&'a self, columns: &'a [&'a str]) -> Batches<'a> {
        self.batches_within(columns, None)
    }

    pub(crate) fn batches_within<'a>(
        &'a self,
        columns: &'a [&'a str],
        span: Option<Range<i128>>,
    ) -> Batches<'a> {
        Batches {
            files: self.files.iter(),
            columns,
            span,
            skipped: 0,
            open: None,
        }
    }

    /// The groups of rows, in order. Each can be read independently, for example by another thread.
    pub fn groups(&self) -> Vec<Group<'_>> {
        let mut groups = Vec::new();
        for file in &self.files {
            for (index, group) in file.metadata.metadata().row_groups().iter().enumerate() {
                groups.push(Group {
                    file,
                    index,
                    rows: u64::try_from(group.num_rows()).unwrap_or(0),
                });
            }
        }
        groups
    }
}

fn in_directory(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("cannot read the directory {}", directory.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(in_directory(&path)?);
        } else if path.extension().is_some_and(|end| end == "parquet") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn add(files: &mut Vec<File>, path: &Path) -> Result<()> {
    let file = File::open(path)?;
    let tail = tail_of(path);
    // Rows that were sealed after the tail was written are in both files.
    if !file.meta.complete && tail.exists() {
        let tail = File::open(&tail)?;
        if tail.meta.rows_before == file.meta.rows_before + file.rows {
            files.push(tail);
        }
    }
    files.push(file);
    Ok(())
}

impl File {
    pub fn open(path: &Path) -> Result<File> {
        let file = input::open(path)?;
        let length = file
            .metadata()
            .with_context(|| format!("cannot read {}", path.display()))?
            .len();
        let file = Arc::new(file);
        let mut first_error = None;
        for end in recover::ends(&file, path)? {
            let end = end?;
            let bytes = Bytes {
                file: Arc::clone(&file),
                length: end,
            };
            let load = || ArrowReaderMetadata::load(&bytes, ArrowReaderOptions::new());
            match carefully(load).and_then(|loaded| Ok(loaded?)) {
                Ok(metadata) => return File::checked(path, bytes, metadata, length - end),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        match first_error {
            Some(error) => {
                Err(error).with_context(|| format!("cannot read {}: it is damaged", path.display()))
            }
            None => bail!(
                "cannot read {}: it ends before its first footer",
                path.display()
            ),
        }
    }

    fn checked(
        path: &Path,
        bytes: Bytes,
        metadata: ArrowReaderMetadata,
        cut_off: u64,
    ) -> Result<File> {
        let values = metadata.metadata().file_metadata().key_value_metadata();
        let meta = Meta::from_key_values(values)
            .with_context(|| format!("cannot read {}", path.display()))?;
        check_columns(metadata.schema())
            .with_context(|| format!("cannot read {}", path.display()))?;
        check_pages(metadata.metadata(), bytes.length)
            .with_context(|| format!("cannot read {}: it is damaged", path.display()))?;
        let rows = metadata.metadata().file_metadata().num_rows();
        let rows = u64::try_from(rows).ok().with_context(|| {
            let path = path.display();
            format!("cannot read {path}: it is damaged: a negative number of rows")
        })?;
        Ok(File {
            path: path.to_path_buf(),
            meta,
            rows,
            cut_off,
            bytes,
            metadata,
        })
    }

    fn reader(
        &self,
        columns: &[&str],
        groups: Option<Vec<usize>>,
    ) -> Result<Careful<ParquetRecordBatchReader>> {
        let builder = self.builder(columns).with_batch_size(BATCH_ROWS);
        self.built(match groups {
            Some(groups) => builder.with_row_groups(groups),
            None => builder,
        })
    }

    /// The groups that may have rows of that time, and the number of rows in the other groups.
    fn groups_within(&self, span: &Range<i128>) -> (Vec<usize>, u64) {
        let (mut within, mut skipped) = (Vec::new(), 0u64);
        for (index, group) in self.metadata.metadata().row_groups().iter().enumerate() {
            let is_time = |parts: &[String]| is_leaf(parts, "time");
            let chunk = group
                .columns()
                .iter()
                .find(|chunk| is_time(chunk.column_path().parts()));
            let times = match chunk.and_then(|chunk| chunk.statistics()) {
                Some(Statistics::Int64(times)) => times.min_opt().zip(times.max_opt()),
                _ => None,
            };
            let is_elsewhere = times.is_some_and(|(first, last)| {
                i128::from(*last) < span.start || i128::from(*first) >= span.end
            });
            if is_elsewhere {
                let rows = u64::try_from(group.num_rows()).unwrap_or(0);
                skipped = skipped.saturating_add(rows);
            } else {
                within.push(index);
            }
        }
        (within, skipped)
    }

    fn built(
        &self,
        builder: ParquetRecordBatchReaderBuilder<Bytes>,
    ) -> Result<Careful<ParquetRecordBatchReader>> {
        let reader = carefully(|| builder.build())
            .and_then(|built| Ok(built?))
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        Ok(Careful::new(reader))
    }

    fn builder(&self, columns: &[&str]) -> ParquetRecordBatchReaderBuilder<Bytes> {
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
            self.bytes.clone(),
            self.metadata.clone(),
        );
        let descriptor = builder.parquet_schema();
        let leaves = descriptor.columns().iter().enumerate().filter(|(_, leaf)| {
            let parts = leaf.path().parts();
            columns.iter().any(|wanted| is_leaf(parts, wanted))
        });
        let mask = ProjectionMask::leaves(descriptor, leaves.map(|(index, _)| index));
        builder.with_projection(mask)
    }
}

/// Whether a leaf of the file's columns has the wanted name: `wall_ns`, `sleeps.label`, or `sleeps` for
/// all its fields.
fn is_leaf(parts: &[String], wanted: &str) -> bool {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        return false;
    };
    match wanted.split_once('.') {
        Some((list, field)) => first == list && last == field,
        None => first == wanted,
    }
}

/// Rows of a file that are stored together.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    pub file: &'a File,
    /// Which group of its file, from 0.
    pub index: usize,
    /// According to the file; a damaged file may differ.
    pub rows: u64,
}

impl<'a> Group<'a> {
    /// Whether, by the file's statistics, this column of the group is empty and need not be read: it
    /// has only nulls, or no nulls and only zeros.
    pub fn is_blank(&self, column: &str) -> bool {
        let group = self.file.metadata.metadata().row_group(self.index);
        let chunk = group
            .columns()
            .iter()
            .find(|chunk| is_leaf(chunk.column_path().parts(), column));
        // The column is missing in older files.
        let chunk_is_missing = chunk.is_none();
        let Some((chunk, statistics)) = chunk.and_then(|chunk| Some((chunk, chunk.statistics()?)))
        else {
            return chunk_is_missing;
        };
        if chunk.column_descr().max_def_level() > 0 {
            let nulls = statistics.null_count_opt();
            return nulls.is_some_and(|nulls| i64::try_from(nulls) == Ok(chunk.num_values()));
        }
        fn zeros<T: PartialEq + Default>(least: Option<&T>, most: Option<&T>) -> bool {
            least == Some(&T::default()) && most == Some(&T::default())
        }
        match statistics {
            Statistics::Boolean(of) => zeros(of.min_opt(), of.max_opt()),
            Statistics::Int32(of) => zeros(of.min_opt(), of.max_opt()),
            Statistics::Int64(of) => zeros(of.min_opt(), of.max_opt()),
            _ => false,
        }
    }

    /// The group's rows as columns, at most so many at once; see [`History::batches`].
    pub fn batches(
        &self,
        columns: &[&str],
        rows: usize,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<'a>> {
        let file = self.file;
        let builder = file
            .builder(columns)
            .with_row_groups(vec![self.index])
            .with_batch_size(rows);
        Ok(file.built(builder)?.map(move |batch| {
            batch.with_context(|| format!("cannot read {}", file.path.display()))
        }))
    }

    /// Some of the group's rows as records, in the order of the file.
    pub fn calls_at(&self, rows: &[usize]) -> Result<Vec<Call>> {
        let mut rows = rows.to_vec();
        rows.sort_unstable();
        rows.dedup();
        let builder = self
            .file
            .builder(ALL)
            .with_row_groups(vec![self.index])
            .with_row_selection(RowSelection::from_consecutive_ranges(
                rows.iter().map(|row| *row..*row + 1),
                usize::try_from(self.rows).context("a group has too many rows")?,
            ));
        let mut calls = Vec::new();
        for batch in self.file.built(builder)? {
            let path = || format!("cannot read {}", self.file.path.display());
            let batch = batch.with_context(path)?;
            let offset = self.file.meta.realtime_offset_ns;
            let decoded = decoded(&batch, offset).context("it is damaged");
            calls.extend(decoded.with_context(path)?);
        }
        Ok(calls)
    }
}

/// Checks that every column known to this reader is there with its type, except those added later.
/// Further columns are allowed.
fn check_columns(found: &Schema) -> Result<()> {
    for field in schema().fields() {
        let Ok(other) = found.field_with_name(field.name()) else {
            if LATER.contains(&field.name().as_str()) {
                continue;
            }
            bail!("the column {} is missing", field.name());
        };
        let fits = match (field.data_type(), other.data_type()) {
            (DataType::List(ours), DataType::List(theirs)) => {
                match (ours.data_type(), theirs.data_type()) {
                    (DataType::Struct(ours), DataType::Struct(theirs)) => {
                        ours.iter().all(|field| {
                            let same = |other: &&Arc<arrow_schema::Field>| {
                                other.name() == field.name()
                                    && other.data_type() == field.data_type()
                            };
                            theirs.iter().any(|other| same(&other))
                        })
                    }
                    _ => false,
                }
            }
            (ours, theirs) => ours == theirs,
        };
        ensure!(
            fits,
            "the column {} is of the type {}, not {}",
            field.name(),
            other.data_type(),
            field.data_type()
        );
    }
    Ok(())
}

/// An iterator over the files; see [`History::batches`].
pub struct Batches<'a> {
    files: std::slice::Iter<'a, File>,
    columns: &'a [&'a str],
    span: Option<Range<i128>>,
    skipped: u64,
    open: Option<(Careful<ParquetRecordBatchReader>, &'a File)>,
}

impl Batches<'_> {
    /// Rows that were skipped.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }
}

impl<'a> Iterator for Batches<'a> {
    /// The file, and some of its rows.
    type Item = Result<(&'a File, RecordBatch)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((reader, file)) = &mut self.open {
                let path = || format!("cannot read {}", file.path.display());
                match reader.next() {
                    Some(batch) => {
                        return Some(batch.with_context(path).map(|batch| (*file, batch)))
                    }
                    None => self.open = None,
                }
            }
            let file = self.files.next()?;
            let groups = self.span.as_ref().map(|span| file.groups_within(span));
            let groups = groups.map(|(groups, skipped)| {
                self.skipped = self.skipped.saturating_add(skipped);
                groups
            });
            match file.reader(self.columns, groups) {
                Ok(reader) => self.open = Some((reader, file)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The beginning of a file, up to some length.
#[derive(Debug, Clone)]
struct Bytes {
    file: Arc<fs::File>,
    length: u64,
}

impl Length for Bytes {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Bytes {
    type T = io::BufReader<At>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(io::BufReader::new(At {
            bytes: self.clone(),
            at: start,
        }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<bytes::Bytes> {
        let end = start.checked_add(length as u64);
        if end.is_none_or(|end| end > self.length) {
            return Err(ParquetError::EOF("the file is shorter than it says".into()));
        }
        let mut bytes = vec![0u8; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// Reads a file from a position.
struct At {
    bytes: Bytes,
    at: u64,
}

impl Read for At {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.bytes.length.saturating_sub(self.at);
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let got = self.bytes.file.read_at(&mut into[..most], self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}
