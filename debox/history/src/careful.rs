//! The Parquet reader trusts some values in a damaged file and panics. This module turns such
//! panics into errors.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use anyhow::{anyhow, ensure, Context, Result};
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use parquet::file::metadata::ParquetMetaData;

thread_local! {
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// Every column's pages have to lie within the file.
pub fn check_pages(metadata: &ParquetMetaData, length: u64) -> Result<()> {
    for group in metadata.row_groups() {
        ensure!(
            group.num_rows() >= 0,
            "a group has a negative number of rows"
        );
        for column in group.columns() {
            // `None` without a dictionary.
            let first = column
                .dictionary_page_offset()
                .unwrap_or(column.data_page_offset());
            let end = u64::try_from(first).ok().and_then(|first| {
                let size = u64::try_from(column.compressed_size()).ok()?;
                first.checked_add(size)
            });
            ensure!(
                end.is_some_and(|end| end <= length) && column.data_page_offset() >= 0,
                "the pages of its column {} lie outside of the file",
                column.column_path()
            );
        }
    }
    Ok(())
}

/// Calls the Parquet reader and turns a panic into an error.
pub fn carefully<T>(read: impl FnOnce() -> T) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // The message is in the error, so it need not be on the terminal as well.
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !READING.get() {
                others(panic);
            }
        }));
    });
    // State that a panic leaves half done is dropped with its reader: see `Careful`.
    let outer = READING.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    READING.set(outer);
    result.map_err(|panic| {
        let said = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        anyhow!("{}", said.unwrap_or("the reader gave up"))
    })
}

/// Batches of a reader, up to its first error.
pub struct Careful<R> {
    reader: Option<R>,
}

impl<R> Careful<R> {
    pub fn new(reader: R) -> Careful<R> {
        Careful {
            reader: Some(reader),
        }
    }
}

impl<R> Iterator for Careful<R>
where
    R: Iterator<Item = Result<RecordBatch, ArrowError>>,
{
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.reader.as_mut()?;
        let batch = match carefully(|| reader.next()) {
            Ok(batch) => batch.map(|batch| batch.context("it is damaged")),
            Err(panic) => Some(Err(panic.context("it is damaged"))),
        };
        if !matches!(batch, Some(Ok(_))) {
            self.reader = None;
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_the_end() {
        let reader = std::iter::from_fn(|| -> Option<Result<RecordBatch, ArrowError>> {
            panic!("offset {} is negative", -1)
        });
        let mut batches = Careful::new(reader);
        let error = batches.next().expect("an error").expect_err("an error");
        assert_eq!(format!("{error:#}"), "it is damaged: offset -1 is negative");
        assert!(batches.next().is_none());
    }
}
