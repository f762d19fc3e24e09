//! The thread that encodes groups of rows and appends them to the file, so that the thread that gathers rows
//! does not have to wait for this.
//!
//! A group and its footer are encoded in memory and written at once. If they cannot be written, because
//! the disk is full, the file is cut back to its last footer, and the thread tries again until there is room.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{anyhow, Context, Result};
use arrow_array::RecordBatch;
use kit_files::output;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::file::metadata::RowGroupMetaData;

use crate::footer::encode_footer;
use crate::meta::{Gap, Meta};
use crate::parquet_file::{compressed, remove, tail_of};
use crate::schema::schema;

/// Groups that may be queued: while one is encoded, another may be ready.
const WAITING: usize = 1;

/// How often writing a failed group is retried.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Rows of a group, and the span of time that they cover.
pub(crate) struct GroupRows {
    pub batch: RecordBatch,
    pub gap: Gap,
    /// How many of these rows the tail has, and the end of the last of them.
    pub in_tail: u64,
    pub tail_until_ns: u64,
}

impl GroupRows {
    /// What is lost if these rows cannot be written.
    fn lost(&self, has_tail: bool) -> Gap {
        match has_tail && self.in_tail > 0 {
            true => Gap {
                records: self.gap.records.saturating_sub(self.in_tail),
                from_ns: self.tail_until_ns.min(self.gap.to_ns),
                to_ns: self.gap.to_ns,
            },
            false => self.gap,
        }
    }

    fn rows(&self) -> u64 {
        self.batch.num_rows() as u64
    }
}

/// The handle of the encoding thread.
pub(crate) struct Encoder {
    orders: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<Result<Ended>>>,
    shared: Arc<Shared>,
}

enum Order {
    /// Writes a group of its own and a footer; after that, the file has all rows of the tail.
    Group(GroupRows, Box<Meta>),
    /// Adds rows to a group that ends when it has so many. Writing these is not retried.
    Rows(RecordBatch, usize),
    Finish(Box<Meta>),
    /// Returns what could not be written.
    Abandon,
}

/// The result of writing the file.
#[derive(Default)]
pub(crate) struct Ended {
    /// Bytes in the file.
    pub bytes: u64,
    /// Rows that are not in the file, the gaps of those that are in no tail either, and the reason.
    pub unwritten: Vec<GroupRows>,
    pub gaps: Vec<Gap>,
    pub failure: Option<io::Error>,
}

#[derive(Default)]
struct Shared {
    /// Orders that have not been carried out yet.
    open: AtomicUsize,
    bytes: AtomicU64,
    /// Groups that are in the file.
    groups: AtomicUsize,
    /// Whether there is a tail made by this recording.
    has_tail: AtomicBool,
    stuck: AtomicBool,
    failure: Mutex<Option<io::Error>>,
}

struct File {
    path: PathBuf,
    file: fs::File,
    /// Encodes into memory.
    writer: ArrowWriter<Vec<u8>>,
    rows: u64,
    /// The content of the file: bytes, and groups and rows of the last footer.
    written: u64,
    groups: usize,
    group_rows: u64,
    /// Groups that are encoded but not in the file, with the file's length after each.
    owed: VecDeque<(u64, GroupRows)>,
    /// Their bytes.
    encoded: Vec<u8>,
}

impl Encoder {
    /// Starts with a complete file without rows.
    pub fn create(file: fs::File, path: &Path, meta: &Meta) -> Result<Encoder> {
        let options = ArrowWriterOptions::new().with_properties(compressed()?);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), schema(), options)
            .with_context(|| format!("cannot begin {}", path.display()))?;
        let mut file = File {
            path: path.to_path_buf(),
            file,
            writer,
            rows: 0,
            written: 0,
            groups: 0,
            group_rows: 0,
            owed: VecDeque::new(),
            encoded: Vec::new(),
        };
        file.encode_footer(meta)?;
        file.put_all().with_context(|| cannot_write(path))?;
        let shared = Arc::new(Shared::default());
        shared.bytes.store(file.written, Ordering::Relaxed);
        let (orders, received) = sync_channel(WAITING);
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("encoder".to_string())
            .spawn(move || file.serve(&received, &theirs))
            .context("cannot start a thread")?;
        Ok(Encoder {
            orders: Some(orders),
            thread: Some(thread),
            shared,
        })
    }

    /// Hands over a group. Waits unless [`Encoder::has_room`].
    pub fn group(&mut self, rows: GroupRows, meta: &Meta) -> Result<()> {
        self.send(Order::Group(rows, Box::new(meta.clone())))
    }

    pub fn rows(&mut self, batch: RecordBatch, of_group: usize) -> Result<()> {
        self.send(Order::Rows(batch, of_group))
    }

    /// Whether everything is in the file.
    pub fn is_idle(&self) -> bool {
        self.shared.open.load(Ordering::Acquire) == 0
    }

    /// Whether another group can be handed over without waiting.
    pub fn has_room(&self) -> bool {
        // A thread that has ended by an error accepts nothing more; the next order returns that error.
        let has_ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        has_ended || self.shared.open.load(Ordering::Acquire) <= WAITING
    }

    /// Whether the last group could not be written.
    pub fn is_stuck(&self) -> bool {
        self.shared.stuck.load(Ordering::Acquire)
    }

    /// Why the last group could not be written; returned once for each time that this began.
    pub fn take_failure(&self) -> Option<io::Error> {
        take_failure(&self.shared)
    }

    /// Bytes in the file.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Groups in the file.
    pub fn groups(&self) -> usize {
        self.shared.groups.load(Ordering::Relaxed)
    }

    /// Notes that the tail was put in place, or has been removed.
    pub fn set_tail(&self, is_there: bool) {
        self.shared.has_tail.store(is_there, Ordering::Release);
    }

    pub fn has_tail(&self) -> bool {
        self.shared.has_tail.load(Ordering::Acquire)
    }

    /// Completes the file as far as possible.
    pub fn finish(mut self, meta: &Meta) -> Result<Ended> {
        self.send(Order::Finish(Box::new(meta.clone())))?;
        self.join()
    }

    /// Leaves the file with the groups that it has so far.
    pub fn abandon(mut self) -> Result<Ended> {
        self.send(Order::Abandon)?;
        self.join()
    }

    fn send(&mut self, order: Order) -> Result<()> {
        self.shared.open.fetch_add(1, Ordering::AcqRel);
        let sent = self
            .orders
            .as_ref()
            .map(|orders| orders.send(order).is_ok());
        match sent {
            Some(true) => Ok(()),
            // The thread has ended; its result has the reason.
            _ => Err(self
                .join()
                .err()
                .unwrap_or_else(|| anyhow!("the file is ended"))),
        }
    }

    fn join(&mut self) -> Result<Ended> {
        self.orders = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(anyhow!("the thread that encodes records ended by itself")),
            None => Err(anyhow!("the file could not be written before")),
        }
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // The thread writes what it has been given before it ends.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl File {
    fn serve(mut self, orders: &Receiver<Order>, shared: &Shared) -> Result<Ended> {
        loop {
            let order = match self.owed.is_empty() {
                true => orders.recv().ok(),
                false => match orders.recv_timeout(RETRY_EVERY) {
                    Err(RecvTimeoutError::Timeout) => {
                        self.deliver(shared);
                        continue;
                    }
                    order => order.ok(),
                },
            };
            match order {
                Some(Order::Group(rows, meta)) => {
                    self.add(&rows.batch, 0)?;
                    self.encode_footer(&meta)?;
                    let end = self.written + self.encoded.len() as u64;
                    self.owed.push_back((end, rows));
                    self.deliver(shared);
                }
                Some(Order::Rows(batch, of_group)) => {
                    self.add(&batch, of_group)?;
                    let put = self.collect().and_then(|()| self.put_all());
                    put.with_context(|| cannot_write(&self.path))?;
                    self.publish(shared, 1);
                }
                Some(Order::Finish(meta)) => return self.finish(*meta, shared),
                None | Some(Order::Abandon) => return Ok(self.ended(None, shared)),
            }
        }
    }

    fn ended(self, failure: Option<io::Error>, shared: &Shared) -> Ended {
        Ended {
            bytes: self.written,
            gaps: self.lost(shared),
            unwritten: self.owed.into_iter().map(|(_, rows)| rows).collect(),
            failure,
        }
    }

    /// Writes the groups that are not in the file, as far as there is room.
    fn deliver(&mut self, shared: &Shared) {
        while let Some((end, _)) = self.owed.front() {
            let end = *end;
            let put = self
                .put_until(end)
                .or_else(|error| self.put_for_tail(end, error, shared));
            if let Err(error) = put {
                if !shared.stuck.load(Ordering::Acquire) {
                    let failure = shared.failure.lock();
                    *failure.unwrap_or_else(PoisonError::into_inner) = Some(error);
                    shared.stuck.store(true, Ordering::Release);
                }
                return;
            }
            if let Some((_, rows)) = self.owed.pop_front() {
                self.groups += 1;
                self.group_rows += rows.rows();
            }
            // Its rows were the first of this group.
            self.remove_tail(shared);
            self.publish(shared, 1);
        }
        shared.stuck.store(false, Ordering::Release);
    }

    fn publish(&self, shared: &Shared, done: usize) {
        shared.bytes.store(self.written, Ordering::Relaxed);
        shared.groups.store(self.groups, Ordering::Relaxed);
        shared.open.fetch_sub(done, Ordering::AcqRel);
    }

    /// Removes only a tail that this recording made. Readers ignore one that could not be removed.
    fn remove_tail(&self, shared: &Shared) {
        if shared.has_tail.swap(false, Ordering::AcqRel) {
            let _ = remove(&tail_of(&self.path));
        }
    }

    /// The group has all rows of the tail: the tail is removed to make room for it, and is put back if that
    /// is not enough.
    fn put_for_tail(&mut self, end: u64, error: io::Error, shared: &Shared) -> io::Result<()> {
        let tail = tail_of(&self.path);
        let is_full = matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
        if !is_full || !shared.has_tail.load(Ordering::Acquire) {
            return Err(error);
        }
        let length = fs::metadata(&tail).map_or(0, |found| found.len());
        if free_space(&self.file) + length < end - self.written {
            return Err(error);
        }
        let Ok(bytes) = fs::read(&tail) else {
            return Err(error);
        };
        if remove(&tail).is_err() {
            return Err(error);
        }
        let put = self.put_until(end);
        if put.is_err() {
            let file = output::create_new(&tail);
            let back = file.and_then(|file| file.write_all_at(&bytes, 0));
            if back.is_err() {
                let _ = remove(&tail);
                shared.has_tail.store(false, Ordering::Release);
            }
        }
        put
    }

    /// The records that are in neither the file nor the tail.
    fn lost(&self, shared: &Shared) -> Vec<Gap> {
        let has_tail = shared.has_tail.load(Ordering::Acquire);
        let owed = self.owed.iter();
        owed.map(|(_, rows)| rows.lost(has_tail)).collect()
    }

    fn collect(&mut self) -> io::Result<()> {
        self.writer.sync()?;
        self.encoded.append(self.writer.inner_mut());
        Ok(())
    }

    fn put_all(&mut self) -> io::Result<()> {
        self.put_until(self.written + self.encoded.len() as u64)
    }

    /// Writes the encoded bytes up to `end` to the file, or none of them.
    fn put_until(&mut self, end: u64) -> io::Result<()> {
        let length = usize::try_from(end - self.written).unwrap_or(usize::MAX);
        let length = length.min(self.encoded.len());
        let written = self
            .file
            .write_all_at(&self.encoded[..length], self.written);
        if written.is_err() {
            // The part that is cut off takes no room.
            let _ = self.file.set_len(self.written);
            return written;
        }
        self.written += length as u64;
        self.encoded.drain(..length);
        Ok(())
    }

    fn add(&mut self, batch: &RecordBatch, of_group: usize) -> Result<()> {
        let path = &self.path;
        let context = || format!("cannot encode rows of {}", path.display());
        self.writer.write(batch).with_context(context)?;
        self.rows += batch.num_rows() as u64;
        if self.writer.in_progress_rows() >= of_group {
            self.writer.flush().with_context(context)?;
        }
        Ok(())
    }

    fn finish(mut self, meta: Meta, shared: &Shared) -> Result<Ended> {
        self.writer.append_key_value_metadata(meta.to_key_value()?);
        self.writer.flush()?;
        let groups = self.writer.flushed_row_groups().to_vec();
        self.writer.finish()?;
        self.collect()?;
        // The last attempt reports its own reason.
        shared.stuck.store(false, Ordering::Release);
        self.deliver(shared);
        let put = match self.owed.is_empty() {
            true => self.put_all(),
            false => Err(take_failure(shared).unwrap_or_else(|| io::ErrorKind::StorageFull.into())),
        };
        let Err(error) = put else {
            // Delayed allocation can put off "no space left" until the data is written back.
            let failure = self.file.sync_data().err();
            return Ok(self.ended(failure, shared));
        };
        if self.group_rows + self.owed_rows() != self.rows {
            // These rows are not retried.
            return Err(error).with_context(|| cannot_write(&self.path));
        }
        self.end_without(meta, groups, shared)?;
        Ok(self.ended(Some(error), shared))
    }

    fn owed_rows(&self) -> u64 {
        self.owed.iter().map(|(_, rows)| rows.rows()).sum()
    }

    /// There may be room for a footer that counts the last groups as lost. The file is not marked complete if
    /// it has a tail: readers would ignore the tail.
    fn end_without(
        &mut self,
        mut meta: Meta,
        mut groups: Vec<RowGroupMetaData>,
        shared: &Shared,
    ) -> Result<()> {
        for gap in self.lost(shared) {
            meta.add_gap(gap);
        }
        meta.complete &= !shared.has_tail.load(Ordering::Acquire);
        groups.truncate(self.groups);
        let footer = encode_footer(groups, self.group_rows, &meta)?;
        if self.file.write_all_at(&footer, self.written).is_ok() {
            self.written += footer.len() as u64;
        } else {
            let _ = self.file.set_len(self.written);
        }
        Ok(())
    }

    /// Makes the file readable as it is.
    fn encode_footer(&mut self, meta: &Meta) -> Result<()> {
        let groups = self.writer.flushed_row_groups().to_vec();
        let footer = encode_footer(groups, self.rows, meta)?;
        let written = self.writer.write_all(&footer);
        written
            .and_then(|()| self.collect())
            .with_context(|| cannot_write(&self.path))
    }
}

/// Free bytes on a file's disk.
fn free_space(file: &fs::File) -> u64 {
    // SAFETY: the call fills in the structure that it is given.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above; the descriptor is open.
    match unsafe { libc::fstatvfs(file.as_raw_fd(), &mut found) } {
        0 => found.f_bavail.saturating_mul(found.f_frsize),
        _ => 0,
    }
}

fn take_failure(shared: &Shared) -> Option<io::Error> {
    let failure = shared.failure.lock();
    failure.unwrap_or_else(PoisonError::into_inner).take()
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write to {}", path.display())
}
