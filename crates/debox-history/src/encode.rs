//! The thread that encodes groups of rows and appends them to the file, so that whoever gathers rows
//! does not have to wait for it.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{anyhow, Context, Result};
use arrow::array::RecordBatch;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::file::metadata::{FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter};

use crate::meta::Meta;
use crate::schema::schema;
use crate::write::{compressed, remove, tail_of};

/// Groups that may wait: one is encoded, one is ready.
const WAITING: usize = 1;

/// The other side of the thread.
pub(crate) struct Encoder {
    orders: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<Result<u64>>>,
    shared: Arc<Shared>,
}

enum Order {
    /// A group of its own and a footer, after which the tail has nothing that the file has not.
    Group(RecordBatch, Box<Meta>),
    /// More rows of a group that ends when there are so many.
    Rows(RecordBatch, usize),
    Finish(Box<Meta>),
}

#[derive(Default)]
struct Shared {
    /// Orders that have not been carried out.
    open: AtomicUsize,
    bytes: AtomicU64,
}

struct File {
    path: PathBuf,
    writer: ArrowWriter<fs::File>,
    rows: u64,
}

impl Encoder {
    /// Makes the file, which is a whole one without rows at once.
    pub fn create(path: &Path, meta: &Meta) -> Result<Encoder> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        remove(&tail_of(path))?;
        let options = ArrowWriterOptions::new().with_properties(compressed()?);
        let writer = ArrowWriter::try_new_with_options(file, schema(), options)
            .with_context(|| format!("cannot begin {}", path.display()))?;
        let mut file = File {
            path: path.to_path_buf(),
            writer,
            rows: 0,
        };
        file.write_footer(meta)?;
        let shared = Arc::new(Shared::default());
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

    pub fn group(&mut self, batch: RecordBatch, meta: &Meta) -> Result<()> {
        self.send(Order::Group(batch, Box::new(meta.clone())))
    }

    pub fn rows(&mut self, batch: RecordBatch, of_group: usize) -> Result<()> {
        self.send(Order::Rows(batch, of_group))
    }

    /// Whether everything is in the file.
    pub fn is_idle(&self) -> bool {
        self.shared.open.load(Ordering::Acquire) == 0
    }

    /// Bytes in the file.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Ends the file; returns its length.
    pub fn finish(mut self, meta: &Meta) -> Result<u64> {
        self.send(Order::Finish(Box::new(meta.clone())))?;
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
            // The thread has ended, and says why.
            _ => Err(self
                .join()
                .err()
                .unwrap_or_else(|| anyhow!("the file is ended"))),
        }
    }

    fn join(&mut self) -> Result<u64> {
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
        // What was given to it is written.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl File {
    fn serve(mut self, orders: &Receiver<Order>, shared: &Shared) -> Result<u64> {
        while let Ok(order) = orders.recv() {
            let path = self.path.clone();
            let context = || format!("cannot write to {}", path.display());
            match order {
                Order::Group(batch, meta) => {
                    self.add(&batch, 0).with_context(context)?;
                    self.write_footer(&meta)?;
                    remove(&tail_of(&self.path))?;
                }
                Order::Rows(batch, of_group) => self.add(&batch, of_group).with_context(context)?,
                Order::Finish(meta) => return self.finish(&meta).with_context(context),
            }
            let bytes = self.writer.bytes_written() as u64;
            shared.bytes.store(bytes, Ordering::Relaxed);
            shared.open.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(self.writer.bytes_written() as u64)
    }

    fn add(&mut self, batch: &RecordBatch, of_group: usize) -> Result<()> {
        self.writer.write(batch)?;
        self.rows += batch.num_rows() as u64;
        if self.writer.in_progress_rows() >= of_group {
            self.writer.flush()?;
        }
        Ok(())
    }

    fn finish(mut self, meta: &Meta) -> Result<u64> {
        self.writer.append_key_value_metadata(meta.to_key_value()?);
        self.writer.finish()?;
        remove(&tail_of(&self.path))?;
        Ok(self.writer.inner().metadata()?.len())
    }

    /// Makes the file readable as it is.
    fn write_footer(&mut self, meta: &Meta) -> Result<()> {
        let footer = self.footer(meta)?;
        self.writer
            .write_all(&footer)
            .and_then(|()| self.writer.sync())
            .with_context(|| format!("cannot write to {}", self.path.display()))
    }

    fn footer(&self, meta: &Meta) -> Result<Vec<u8>> {
        let groups = self.writer.flushed_row_groups().to_vec();
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
            i64::try_from(self.rows).context("too many rows")?,
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
}
