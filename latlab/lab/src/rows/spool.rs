//! Rows in binary form in a file, in the order in which requests ended.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use super::{Failure, Row, FAILURES};
use crate::workload::{Kind, KINDS};

/// The last four bytes are a checksum: after a machine crash, blocks of zeroes may be left, which would
/// otherwise be valid rows.
pub const ROW_BYTES: usize = 85;
const CONTENT_BYTES: usize = ROW_BYTES - 4;
/// Rows that are written together; a write takes some 10 us.
const TOGETHER: usize = 512;
/// Stands for a missing time or an unknown size.
const NONE: i64 = i64::MIN;
/// About two years in nanoseconds: no time of a run is further from its start.
const LONGEST_NS: i64 = 1 << 56;
const LARGEST: u64 = 1 << 48;

/// Writes rows.
pub struct Spool {
    file: File,
    buffer: Vec<u8>,
    /// Bytes of complete rows in the file.
    whole: u64,
    broken: bool,
}

impl Spool {
    /// The file stays locked as long as this lives, so that another latlab does not take it for an
    /// abandoned one.
    pub fn create(path: &Path) -> io::Result<Spool> {
        let file = kit_files::output::create_new(path)?;
        // Without file locks, the worst case is a recovery that comes too early.
        let _ = file.try_lock();
        Ok(Spool {
            file,
            buffer: Vec::with_capacity(TOGETHER * ROW_BYTES),
            whole: 0,
            broken: false,
        })
    }

    pub fn push(&mut self, row: &Row) -> io::Result<()> {
        self.buffer.extend_from_slice(&encode(row));
        match self.buffer.len() >= TOGETHER * ROW_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// After an error nothing more is written: the file may end with a partial row, and rows behind it
    /// could not be found.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.broken {
            self.buffer.clear();
            return Ok(());
        }
        let written = self.file.write_all(&self.buffer);
        match &written {
            Ok(()) => self.whole += self.buffer.len() as u64,
            Err(_) => {
                self.broken = true;
                // Rows that were written before the error are complete.
                let length = self.file.metadata().map_or(self.whole, |found| found.len());
                let torn = length.saturating_sub(self.whole) % ROW_BYTES as u64;
                let _ = self.file.set_len(length - torn);
            }
        }
        self.buffer.clear();
        written
    }
}

/// Reads the rows of a spool, whose content may be damaged.
pub struct SpoolReader {
    file: BufReader<File>,
}

/// The next item of a spool.
#[derive(Debug, PartialEq)]
pub enum Next {
    Row(Row),
    /// The end. Torn bytes mean that the writer was stopped in the middle of a row.
    End {
        torn: usize,
    },
    /// Damage: where the next row begins is unknown.
    Damaged,
}

impl SpoolReader {
    pub fn open(path: &Path) -> io::Result<SpoolReader> {
        Ok(SpoolReader {
            file: BufReader::with_capacity(1 << 20, File::open(path)?),
        })
    }

    pub fn read_next(&mut self) -> io::Result<Next> {
        let mut bytes = [0; ROW_BYTES];
        let mut came = 0;
        while came < ROW_BYTES {
            match self.file.read(&mut bytes[came..]) {
                Ok(0) => return Ok(Next::End { torn: came }),
                Ok(more) => came += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(decode(&bytes).map_or(Next::Damaged, Next::Row))
    }
}

fn encode(row: &Row) -> [u8; ROW_BYTES] {
    let mut bytes = [0; ROW_BYTES];
    let mut at = 0;
    let mut put = |part: &[u8]| {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    };
    for time in [
        row.intended_ns,
        row.start_ns,
        row.first_byte_ns.unwrap_or(NONE),
        row.end_ns.unwrap_or(NONE),
        row.connect_ns.unwrap_or(NONE),
        row.tls_ns.unwrap_or(NONE),
        row.size.map_or(NONE, |size| size as i64),
        row.received as i64,
    ] {
        put(&time.to_le_bytes());
    }
    put(&row.path.to_le_bytes());
    put(&row.connection.to_le_bytes());
    for number in [row.status, row.process, row.local_port] {
        put(&number.to_le_bytes());
    }
    let failure = row.failure.map_or(0, |failure| failure as u8);
    put(&[row.kind as u8, row.class, failure]);
    let sum = crc32fast::hash(&bytes[..CONTENT_BYTES]);
    bytes[CONTENT_BYTES..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; ROW_BYTES]) -> Option<Row> {
    let long = |index: usize| {
        let eight = bytes[index * 8..index * 8 + 8].try_into();
        eight.map_or(0, i64::from_le_bytes)
    };
    let word = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let some = |value: i64| (value != NONE).then_some(value);
    if word(CONTENT_BYTES) != crc32fast::hash(&bytes[..CONTENT_BYTES]) {
        return None;
    }
    let row = Row {
        intended_ns: long(0),
        start_ns: long(1),
        first_byte_ns: some(long(2)),
        end_ns: some(long(3)),
        connect_ns: some(long(4)),
        tls_ns: some(long(5)),
        size: some(long(6)).map(|size| size as u64),
        received: long(7) as u64,
        path: word(64),
        connection: word(68),
        status: half(72),
        process: half(74),
        local_port: half(76),
        kind: kind(bytes[78])?,
        class: bytes[79],
        failure: match bytes[80] {
            0 => None,
            number => Some(failure(number)?),
        },
    };
    is_possible(&row).then_some(row)
}

/// Whether the row's numbers are plausible.
fn is_possible(row: &Row) -> bool {
    let times = [row.intended_ns, row.start_ns].into_iter();
    let mut times = times
        .chain(row.first_byte_ns)
        .chain(row.end_ns)
        .chain(row.connect_ns)
        .chain(row.tls_ns);
    let possible = |ns: i64| (-LONGEST_NS..=LONGEST_NS).contains(&ns);
    times.all(possible) && row.received <= LARGEST && row.size.is_none_or(|size| size <= LARGEST)
}

fn kind(number: u8) -> Option<Kind> {
    KINDS.get(usize::from(number)).copied()
}

fn failure(number: u8) -> Option<Failure> {
    FAILURES.get(usize::from(number) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn rows()(
            times in [-LONGEST_NS..=LONGEST_NS, -LONGEST_NS..=LONGEST_NS],
            first_byte_ns: Option<u32>, end_ns: Option<u32>, size: Option<u32>,
            connect_ns: Option<u32>, tls_ns: Option<u32>,
            received in 0..=LARGEST, numbers: [u32; 2], halves: [u16; 3],
            kind in 0..KINDS.len(), class: u8, failure in prop::option::of(0..FAILURES.len())
        ) -> Row {
            Row {
                intended_ns: times[0],
                start_ns: times[1],
                first_byte_ns: first_byte_ns.map(i64::from),
                end_ns: end_ns.map(i64::from),
                connect_ns: connect_ns.map(i64::from),
                tls_ns: tls_ns.map(i64::from),
                size: size.map(u64::from),
                received,
                path: numbers[0],
                connection: numbers[1],
                status: halves[0],
                process: halves[1],
                local_port: halves[2],
                kind: KINDS[kind],
                class,
                failure: failure.map(|index| FAILURES[index]),
            }
        }
    }

    /// Reads all rows of a file.
    fn all(bytes: &[u8]) -> (Vec<Row>, Next) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let mut reader = SpoolReader::open(file.path()).unwrap();
        let mut rows = Vec::new();
        loop {
            match reader.read_next().unwrap() {
                Next::Row(row) => rows.push(row),
                end => return (rows, end),
            }
        }
    }

    proptest! {
        #[test]
        fn rows_come_back_as_they_were(row in rows()) {
            prop_assert_eq!(decode(&encode(&row)), Some(row));
        }

        #[test]
        fn a_spool_that_was_cut_has_all_rows_before_the_cut(
            rows in prop::collection::vec(rows(), 1..20), cut in 0.0..1.0f64
        ) {
            let mut bytes: Vec<u8> = rows.iter().flat_map(encode).collect();
            bytes.truncate((cut * bytes.len() as f64) as usize);
            let whole = bytes.len() / ROW_BYTES;
            let torn = bytes.len() % ROW_BYTES;
            prop_assert_eq!(all(&bytes), (rows[..whole].to_vec(), Next::End { torn }));
        }

        #[test]
        fn a_changed_byte_is_seen(row in rows(), at in 0..ROW_BYTES, change in 1..=255u8) {
            let mut bytes = encode(&row);
            bytes[at] ^= change;
            prop_assert_eq!(decode(&bytes), None);
        }

        #[test]
        fn any_bytes_are_a_row_or_none(content in prop::collection::vec(any::<u8>(), CONTENT_BYTES)) {
            let mut bytes = [0; ROW_BYTES];
            bytes[..CONTENT_BYTES].copy_from_slice(&content);
            let sum = crc32fast::hash(&content).to_le_bytes();
            bytes[CONTENT_BYTES..].copy_from_slice(&sum);
            if let Some(row) = decode(&bytes) {
                prop_assert_eq!(encode(&row), bytes);
            }
        }
    }

    #[test]
    fn zeroes_are_no_row() {
        assert_eq!(all(&[0; ROW_BYTES]), (Vec::new(), Next::Damaged));
    }

    /// A full disk accepts only a part of a write.
    #[test]
    fn a_spool_that_could_not_be_written_ends_with_a_whole_row() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows");
        let mut spool = Spool::create(&path).unwrap();
        spool.file.write_all(&[7; ROW_BYTES + 5]).unwrap();
        // Simulates a disk that is full from here on.
        spool.file = File::open(&path).unwrap();
        spool.buffer.push(1);
        assert!(spool.flush().is_err());
        spool.buffer.push(1);
        assert!(spool.flush().is_ok() && spool.buffer.is_empty());
    }

    #[test]
    fn numbers_of_kinds_and_failures_are_their_places() {
        for (index, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
        for (index, failure) in FAILURES.into_iter().enumerate() {
            assert_eq!(failure as usize, index + 1);
        }
    }
}
