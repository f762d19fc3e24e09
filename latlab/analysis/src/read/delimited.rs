//! CSV, with `,`, `;` or tabs.

use std::io::BufRead;
use std::path::PathBuf;

use anyhow::{bail, ensure, Context, Result};
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

use super::assembler::Assembler;
use super::columns::Columns;
use super::Options;
use crate::request::Run;

/// Columns of a file, and bytes of a record, at most.
const COLUMNS_MAX: usize = 4096;
const RECORD_MAX: usize = 16 << 20;

pub fn read(path: PathBuf, mut input: impl BufRead, options: &Options) -> Result<Run> {
    let delimiter = delimiter(&mut input)?;
    let mut records = Records {
        input,
        reader: ReaderBuilder::new().delimiter(delimiter).build(),
        text: vec![0; 4096],
        ends: vec![0; 64],
        fields: 0,
        line: 1,
    };
    ensure!(records.next()?, "it is empty");
    let names: Vec<String> = if options.no_header {
        (1..=records.fields)
            .map(|place| place.to_string())
            .collect()
    } else {
        (0..records.fields)
            .map(|place| header(records.field(place).unwrap_or_default()))
            .collect::<Result<_>>()?
    };
    if !options.no_header && names.iter().all(|name| name.trim().parse::<f64>().is_ok()) {
        bail!(
            "its first line has numbers and no names: with --no-header, columns are numbered from 1 for \
             --latency-column and --size-column"
        );
    }
    ensure!(
        !options.no_header || options.latency_column.is_some(),
        "without a header, --latency-column has to say which column that is (from 1)"
    );
    let columns = Columns::of(&names, options)?;
    let mut rows = Assembler::new(Run::new(path, "csv"), columns);
    let mut is_row = options.no_header || records.next()?;
    while is_row {
        ensure!(
            records.fields == names.len(),
            "line {} has {} columns, and the first one has {}",
            records.line,
            records.fields,
            names.len()
        );
        rows.add(|place| records.field(place).map(String::from_utf8_lossy))
            .with_context(|| format!("line {}", records.line))?;
        is_row = records.next()?;
    }
    rows.finish()
}

/// Reads records one by one. csv-core parses the syntax, using buffers of its caller.
struct Records<R> {
    input: R,
    reader: Reader,
    text: Vec<u8>,
    /// Ends of the fields in `text`.
    ends: Vec<usize>,
    fields: usize,
    /// The line in which the record begins.
    line: u64,
}

impl<R: BufRead> Records<R> {
    /// Returns false at the end.
    fn next(&mut self) -> Result<bool> {
        self.line = self.reader.line();
        let (mut written, mut fields) = (0, 0);
        loop {
            let bytes = self.input.fill_buf().context("it cannot be read")?;
            let (result, taken, wrote, ended) =
                self.reader
                    .read_record(bytes, &mut self.text[written..], &mut self.ends[fields..]);
            self.input.consume(taken);
            written += wrote;
            fields += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => {
                    let length = self.text.len() * 2;
                    ensure!(
                        length <= RECORD_MAX,
                        "line {}: it has more than {RECORD_MAX} bytes up to the end of its record",
                        self.line
                    );
                    self.text.resize(length, 0);
                }
                ReadRecordResult::OutputEndsFull => {
                    let length = self.ends.len() * 2;
                    ensure!(
                        length <= COLUMNS_MAX,
                        "line {}: it has more than {COLUMNS_MAX} columns",
                        self.line
                    );
                    self.ends.resize(length, 0);
                }
                ReadRecordResult::Record => {
                    self.fields = fields;
                    return Ok(true);
                }
                ReadRecordResult::End => return Ok(false),
            }
        }
    }

    fn field(&self, place: usize) -> Option<&[u8]> {
        if place >= self.fields {
            return None;
        }
        let begin = if place == 0 { 0 } else { self.ends[place - 1] };
        self.text.get(begin..self.ends[place])
    }
}

fn header(name: &[u8]) -> Result<String> {
    let name = name.strip_prefix(b"\xef\xbb\xbf").unwrap_or(name);
    let text = std::str::from_utf8(name).context("its first line is not UTF-8")?;
    Ok(text.trim().to_string())
}

/// The delimiter that occurs most in the first line.
fn delimiter(input: &mut impl BufRead) -> Result<u8> {
    let start = input.fill_buf().context("it cannot be read")?;
    let line = start
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let count = |wanted: u8| line.iter().filter(|byte| **byte == wanted).count();
    let most = [b',', b';', b'\t']
        .into_iter()
        .max_by_key(|one| (count(*one), *one == b','));
    Ok(most.unwrap_or(b','))
}
