//! The rows in which processes count their calls: a file to which they can write anything.
//!
//! A slot belongs to one thread at a time, so all the time in its rows is between the session's start and
//! now, and each call took some of it. Rows that violate this are refused and counted.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use nix::unistd::{lseek64, Whence};

use crate::clock;
use crate::memory_file;
use crate::tables::{self, add, total, types, Possible};

const PAGE: u64 = 4096;
const ROWS: u64 = 512;
const BUCKETS: usize = 296;

/// `struct debox_tap_row`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Row {
    calls: u64,
    errors: u64,
    restarts: u64,
    parts_ns: [u64; 6],
    faults: u64,
    max_ns: u64,
    reserved: u64,
    histogram: [u32; BUCKETS],
}

const ROW_SIZE: u64 = std::mem::size_of::<Row>() as u64;
pub(crate) const TABLE: u64 = (ROWS * ROW_SIZE).next_multiple_of(PAGE);
const _: () = assert!(ROW_SIZE == 12 * 8 + 4 * BUCKETS as u64);

/// The file of rows: a page with the clock, then a table for each slot. The file is sparse: only used
/// parts take memory.
pub(crate) struct TapRows {
    pub(crate) file: File,
    slots: u32,
    /// By the clock that continues while the machine is suspended, as the time-stamp counter may.
    started_ns: u64,
}

/// The rows of one slot.
struct Table {
    number: u64,
    rows: Vec<(u32, Row)>,
    refused: u64,
}

impl TapRows {
    pub(crate) fn create(slots: u32) -> Result<TapRows> {
        let length = PAGE + u64::from(slots) * TABLE;
        let file = memory_file::create(c"debox-tap-rows", length, memory_file::OWNER_ONLY)
            .context("cannot make the file of rows")?;
        // Otherwise every process that has the file could truncate it, and a reader would get SIGBUS.
        memory_file::seal(&file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)
            .context("cannot seal the file of rows")?;
        Ok(TapRows {
            file,
            slots,
            started_ns: clock::since_boot_ns(),
        })
    }

    /// Adds all threads' rows to `sum`, by call number. Returns how many rows were refused because they
    /// cannot be true.
    pub fn add_to(&self, sum: &mut BTreeMap<u32, types::row>) -> Result<u64> {
        let passed_ns = clock::since_boot_ns().saturating_sub(self.started_ns);
        self.add_possible(sum, passed_ns)
    }

    fn add_possible(&self, sum: &mut BTreeMap<u32, types::row>, passed_ns: u64) -> Result<u64> {
        let possible = Possible::within(passed_ns);
        let end = PAGE + u64::from(self.slots) * TABLE;
        let mut at = PAGE;
        let mut refused = 0;
        let mut table: Option<Table> = None;
        // Reading a hole through a mapping would allocate it: find the data with `lseek` and read only
        // that.
        while at < end {
            let Ok(data) = lseek64(&self.file, at as i64, Whence::SeekData) else {
                break;
            };
            let hole = lseek64(&self.file, data, Whence::SeekHole).unwrap_or(end as i64) as u64;
            let first = (data as u64).max(PAGE);
            self.read_range(first, hole, &mut |number, call, row| {
                if table.as_ref().is_none_or(|table| table.number != number) {
                    let before = table.replace(Table::new(number));
                    add(&mut refused, before.map_or(0, |t| t.add_to(sum, possible)));
                }
                if let Some(table) = &mut table {
                    table.take(call, row, possible);
                }
            })?;
            at = hole.max(at + PAGE);
        }
        add(&mut refused, table.map_or(0, |t| t.add_to(sum, possible)));
        Ok(refused)
    }

    /// Passes on the rows that begin in a range of the file, with the number of their slot.
    fn read_range(&self, from: u64, to: u64, give: &mut dyn FnMut(u64, u32, Row)) -> Result<()> {
        let mut table = (from - PAGE) / TABLE;
        loop {
            let start = PAGE + table * TABLE;
            if start >= to {
                return Ok(());
            }
            let first = from.saturating_sub(start).div_ceil(ROW_SIZE);
            for call in first..ROWS {
                let at = start + call * ROW_SIZE;
                if at >= to {
                    break;
                }
                let mut bytes = [0u8; ROW_SIZE as usize];
                self.file
                    .read_exact_at(&mut bytes, at)
                    .context("cannot read the tap's rows")?;
                let Some(row) = tables::read_value::<Row>(&bytes) else {
                    continue;
                };
                if row.calls > 0 {
                    let is_last = call == ROWS - 1;
                    let number = if is_last {
                        tables::NO_SUCH_CALL
                    } else {
                        call as u32
                    };
                    give(table, number, row);
                }
            }
            table += 1;
        }
    }
}

impl Table {
    fn new(number: u64) -> Table {
        Table {
            number,
            rows: Vec::new(),
            refused: 0,
        }
    }

    fn take(&mut self, call: u32, row: Row, possible: Possible) {
        if row.is(possible) {
            self.rows.push((call, row));
        } else {
            self.refused += 1;
        }
    }

    /// Adds the rows, unless their sum cannot be true; returns how many were refused.
    fn add_to(self, sum: &mut BTreeMap<u32, types::row>, possible: Possible) -> u64 {
        let times: Vec<u64> = self.rows.iter().map(|(_, row)| row.time_ns()).collect();
        let calls: Vec<u64> = self.rows.iter().map(|(_, row)| row.calls).collect();
        if !possible.has_time(total(&times)) || !possible.has_calls(total(&calls)) {
            return self.refused + self.rows.len() as u64;
        }
        for (call, row) in &self.rows {
            add_row(sum.entry(*call).or_default(), row);
        }
        self.refused
    }
}

impl Row {
    fn time_ns(&self) -> u64 {
        total(&self.parts_ns)
    }

    /// Whether the row is possible. A thread that is writing to it now, or that jumped out of a handler
    /// while writing, has written only some of its words.
    fn is(&self, possible: Possible) -> bool {
        let in_histogram = self.histogram.iter().map(|count| u64::from(*count)).sum();
        possible.has_time(self.time_ns())
            && possible.has_time(self.max_ns)
            && possible.has_calls(self.calls)
            && possible.has_calls(self.faults)
            && Possible::is_part(self.errors.saturating_add(self.restarts), self.calls)
            && Possible::is_part(in_histogram, self.calls)
    }
}

fn add_row(sum: &mut types::row, row: &Row) {
    add(&mut sum.calls, row.calls);
    add(&mut sum.errors, row.errors);
    add(&mut sum.restarts, row.restarts);
    add(&mut sum.faults_minor, row.faults);
    sum.max_ns = sum.max_ns.max(row.max_ns);
    for (sum, part) in sum.parts.iter_mut().zip(row.parts_ns) {
        add(sum, part);
    }
    for (sum, count) in sum.histogram.iter_mut().zip(row.histogram) {
        add(sum, u64::from(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn row(calls: u64, part_ns: u64) -> Row {
        let mut histogram = [0; BUCKETS];
        histogram[3] = calls as u32;
        Row {
            calls,
            errors: 0,
            restarts: 0,
            parts_ns: [part_ns, 0, 0, 0, 0, 0],
            faults: 0,
            max_ns: part_ns,
            reserved: 0,
            histogram,
        }
    }

    /// For a session that began a second ago: the sums, and how many rows were refused.
    fn added(rows: &[(u64, u64, Row)]) -> (BTreeMap<u32, types::row>, u64) {
        let file = TapRows::create(3).expect("a memory file");
        for (slot, call, row) in rows {
            let at = PAGE + slot * TABLE + call * ROW_SIZE;
            let bytes = tables::bytes_of(row);
            file.file.write_all_at(bytes, at).expect("memory");
        }
        let mut sum = BTreeMap::new();
        let refused = file.add_possible(&mut sum, SECOND).expect("a file");
        (sum, refused)
    }

    #[test]
    fn what_threads_counted_is_added_up() {
        let (sum, refused) = added(&[
            (0, 0, row(10, SECOND / 2)),
            (0, 1, row(5, SECOND / 4)),
            (2, 0, row(3, SECOND)),
            (2, ROWS - 1, row(1, 7)),
        ]);
        assert_eq!(refused, 0);
        let found = |call| sum.get(&call).map(|row| (row.calls, row.parts[0]));
        assert_eq!(found(0), Some((13, SECOND + SECOND / 2)));
        assert_eq!(found(1), Some((5, SECOND / 4)));
        assert_eq!(found(tables::NO_SUCH_CALL), Some((1, 7)));
    }

    #[test]
    fn what_cannot_be_true_is_refused_and_counted() {
        let good = row(100, SECOND / 2);
        let with = |change: &dyn Fn(&mut Row)| {
            let mut row = good;
            change(&mut row);
            row
        };
        let impossible = [
            ("longer than the session", row(100, 2 * SECOND)),
            (
                "longer by all parts",
                with(&|row| row.parts_ns = [SECOND / 3; 6]),
            ),
            (
                "too long to add up",
                with(&|row| row.parts_ns = [u64::MAX; 6]),
            ),
            (
                "a call longer than the session",
                with(&|row| row.max_ns = 2 * SECOND),
            ),
            ("more calls than there is time for", row(SECOND, SECOND / 2)),
            ("more errors than calls", with(&|row| row.errors = 1000)),
            (
                "more restarts than calls",
                with(&|row| row.restarts = u64::MAX),
            ),
            (
                "more faults than there is time for",
                with(&|row| row.faults = SECOND),
            ),
            (
                "a histogram of more calls",
                with(&|row| row.histogram[200] = 5000),
            ),
        ];
        for (what, bad) in impossible {
            let (sum, refused) = added(&[(0, 0, bad), (1, 0, row(1, 5)), (0, 2, row(2, 5))]);
            assert_eq!(refused, 1, "{what}");
            assert_eq!(sum[&0].calls, 1, "{what}: the other slot's row is kept");
            assert_eq!(sum[&2].calls, 2, "{what}: the slot's other row is kept");
        }
    }

    #[test]
    fn a_slot_has_no_more_time_than_there_was() {
        let rows: Vec<_> = (0..4).map(|call| (1, call, row(9, SECOND / 2))).collect();
        let (sum, refused) = added(&rows);
        assert_eq!((sum.len(), refused), (0, 4));
    }

    #[test]
    fn a_row_that_is_being_written_is_kept() {
        // Its next call is in the histogram and among the errors, but not counted yet.
        let mut half = row(1, 50);
        (half.errors, half.histogram[3]) = (2, 2);
        assert_eq!(added(&[(0, 0, half)]).1, 0);
    }
}
