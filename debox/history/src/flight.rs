//! The flight recorder: keeps the last seconds of a history in memory and writes them only on
//! request.
//!
//! Rows are kept in the file's compressed format, in pieces of a second: ten to thirty bytes each
//! instead of some hundreds.

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use debox_model::history::Call;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};

use crate::columns::Columns;
use crate::meta::Meta;
use crate::parquet_file::compressed;
use crate::schema::schema;
use crate::write::{Limits, Summary, Writer};

const PIECE_NS: u64 = 1_000_000_000;
const PIECE_ROWS: usize = 1 << 18;

/// The last seconds of a history.
pub struct Flight {
    keep_ns: u64,
    /// The most memory of all pieces together.
    most_bytes: usize,
    realtime_offset_ns: i64,
    pieces: VecDeque<Piece>,
    bytes: usize,
    open: Columns,
    open_since_ns: u64,
    newest_ns: u64,
    /// Pieces that were dropped before their time, to stay within the memory limit.
    pub dropped_early: u64,
}

struct Piece {
    first_ns: u64,
    last_ns: u64,
    bytes: Bytes,
}

impl Flight {
    pub fn new(keep: Duration, most_bytes: usize, realtime_offset_ns: i64) -> Flight {
        Flight {
            keep_ns: u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX),
            most_bytes,
            realtime_offset_ns,
            pieces: VecDeque::new(),
            bytes: 0,
            open: Columns::default(),
            open_since_ns: 0,
            newest_ns: 0,
            dropped_early: 0,
        }
    }

    pub fn append(&mut self, call: &Call) -> Result<()> {
        let end_ns = call.start_ns.saturating_add(call.wall_ns);
        if self.open.len() == 0 {
            self.open_since_ns = end_ns;
        }
        self.newest_ns = self.newest_ns.max(end_ns);
        self.open.append(call, self.realtime_offset_ns);
        let is_full = self.open.len() >= PIECE_ROWS;
        if is_full || self.newest_ns.saturating_sub(self.open_since_ns) >= PIECE_NS {
            self.close_piece()?;
        }
        Ok(())
    }

    /// Drops what is too old. To be called from time to time, with the current time.
    pub fn tick(&mut self, now_ns: u64) {
        let oldest_ns = now_ns.saturating_sub(self.keep_ns);
        while let Some(piece) = self.pieces.front() {
            let is_old = piece.last_ns < oldest_ns;
            if !is_old && self.bytes <= self.most_bytes {
                break;
            }
            self.dropped_early += u64::from(!is_old);
            self.bytes -= piece.bytes.len();
            self.pieces.pop_front();
        }
    }

    /// Memory that the closed pieces take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The time from the oldest record in memory to the newest.
    pub fn span_ns(&self) -> u64 {
        let oldest = self
            .pieces
            .front()
            .map_or(self.open_since_ns, |piece| piece.first_ns);
        self.newest_ns.saturating_sub(oldest)
    }

    fn close_piece(&mut self) -> Result<()> {
        if self.open.len() == 0 {
            return Ok(());
        }
        let options = ArrowWriterOptions::new().with_properties(compressed()?);
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new_with_options(&mut bytes, schema(), options)?;
        writer.write(&self.open.build()?)?;
        writer.close().context("cannot compress records")?;
        self.bytes += bytes.len();
        self.pieces.push_back(Piece {
            first_ns: self.open_since_ns,
            last_ns: self.newest_ns,
            bytes: bytes.into(),
        });
        self.open.clear();
        Ok(())
    }

    /// Writes the records in memory to an empty file, and keeps them in memory.
    pub fn write(&mut self, file: File, path: &Path, meta: Meta) -> Result<Summary> {
        self.close_piece()?;
        let mut writer = Writer::of_file(file, path, meta, Limits::default())?;
        for piece in &self.pieces {
            let rows = ParquetRecordBatchReaderBuilder::try_new(piece.bytes.clone())?
                .with_batch_size(PIECE_ROWS)
                .build()?;
            for batch in rows {
                writer.append_batch(batch?)?;
            }
        }
        writer.meta_mut().complete = true;
        writer.finish()
    }
}
