//! Rows as plain numbers in a file, in the order in which requests ended.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use super::{Failure, Row, FAILURES};
use crate::workload::{Kind, KINDS};

const ROW_BYTES: usize = 65;
/// Rows that are written together; it takes some 10 us.
const TOGETHER: usize = 512;
/// Stands for a time that there is none of, and for an unknown size.
const NONE: i64 = i64::MIN;

/// Takes rows.
pub struct Spool {
    file: File,
    buffer: Vec<u8>,
}

impl Spool {
    pub fn create(path: &Path) -> io::Result<Spool> {
        Ok(Spool {
            file: File::create(path)?,
            buffer: Vec::with_capacity(TOGETHER * ROW_BYTES),
        })
    }

    pub fn push(&mut self, row: &Row) -> io::Result<()> {
        self.buffer.extend_from_slice(&encode(row));
        match self.buffer.len() >= TOGETHER * ROW_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    pub fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written
    }
}

/// Gives all whole rows of a spool to `each`.
pub fn read_spool<E: From<io::Error>>(
    path: &Path,
    mut each: impl FnMut(Row) -> Result<(), E>,
) -> Result<(), E> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut bytes = [0; ROW_BYTES];
    loop {
        match file.read_exact(&mut bytes) {
            Ok(()) => {}
            // A generator that was killed may leave a part of a row.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let row = decode(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the spool is damaged"))?;
        each(row)?;
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
    Some(Row {
        intended_ns: long(0),
        start_ns: long(1),
        first_byte_ns: some(long(2)),
        end_ns: some(long(3)),
        size: some(long(4)).map(|size| size as u64),
        received: long(5) as u64,
        path: word(48),
        connection: word(52),
        status: half(56),
        process: half(58),
        local_port: half(60),
        kind: kind(bytes[62])?,
        class: bytes[63],
        failure: match bytes[64] {
            0 => None,
            number => Some(failure(number)?),
        },
    })
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
            times: [i64; 2], first_byte_ns: Option<u32>, end_ns: Option<u32>, size: Option<u32>,
            received: u32, numbers: [u32; 2], halves: [u16; 3],
            kind in 0..KINDS.len(), class: u8, failure in prop::option::of(0..FAILURES.len())
        ) -> Row {
            Row {
                intended_ns: times[0],
                start_ns: times[1],
                first_byte_ns: first_byte_ns.map(i64::from),
                end_ns: end_ns.map(i64::from),
                size: size.map(u64::from),
                received: u64::from(received),
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

    proptest! {
        #[test]
        fn rows_come_back_as_they_were(row in rows()) {
            prop_assert_eq!(decode(&encode(&row)), Some(row));
        }

        #[test]
        fn any_bytes_are_a_row_or_none(bytes: [u8; 32], more: [u8; 32], last: u8) {
            let mut all = [last; ROW_BYTES];
            all[..32].copy_from_slice(&bytes);
            all[32..64].copy_from_slice(&more);
            let _ = decode(&all);
        }
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
