//! Histories of system calls in the formats of other tools: Perfetto, pprof, folded stacks, lines of
//! JSON, of text, of values.
//!
//! `debox/docs/export.md` describes each format. All exporters read the records once, in order. Their
//! memory depends on the number of threads and distinct texts, not on the number of records.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod exporter;
mod folded;
mod frames;
mod lines;
mod ndjson;
mod options;
mod parts;
mod perfetto;
mod pprof;
mod sampled;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
mod texts;

use std::io::{self, Write};

use anyhow::{Context, Result};
use debox_history::{File, History};
use debox_model::history::Call;

use exporter::{realtime, Exporter, CANNOT_WRITE};
pub use options::{Format, Options, Weight};

/// The result of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Records in the history.
    pub rows: u64,
    /// Records that are in the export.
    pub exported: u64,
    pub bytes: u64,
    /// Perfetto: calls and sleeps that could not be drawn at their own times because they overlap
    /// with others of their thread. Their arguments have the true times.
    pub moved: u64,
}

/// Writes a history to `out`. `progress` is called from time to time with the number of records so
/// far.
pub fn export(
    history: &History,
    options: &Options,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary> {
    let mut counted = Counted { out, bytes: 0 };
    let mut summary = Summary::default();
    let span = Span::of(history, options);
    let mut exporter: Box<dyn Exporter + '_> = match options.format {
        Format::Perfetto => Box::new(perfetto::Trace::begin(history, &mut counted)?),
        Format::Pprof => {
            let samples = sampled::of(history, options)?;
            let weight = options.weight;
            Box::new(pprof::Profile::new(history, weight, samples, &mut counted))
        }
        Format::Folded => {
            let samples = sampled::of(history, options)?;
            Box::new(folded::Folded::new(options.weight, samples, &mut counted))
        }
        Format::Ndjson => Box::new(ndjson::Lines::new(history, &mut counted)),
        Format::Text => Box::new(lines::Text::new(history, &mut counted)),
        Format::Csv => Box::new(lines::Values::new(history, &mut counted)?),
    };
    let (mut rows, mut seen) = (history.calls_within(span.from..span.to), 0);
    while let Some(row) = rows.next() {
        let (file, call) = row?;
        seen += 1;
        if seen % 4096 == 0 {
            progress(seen + rows.skipped());
        }
        let wanted = span.has(file, &call)
            && options
                .filter
                .as_ref()
                .is_none_or(|filter| filter.holds(&call));
        if wanted {
            summary.exported += 1;
            exporter.call(file, &call)?;
        }
    }
    summary.rows = seen + rows.skipped();
    summary.moved = exporter.finish()?;
    counted.flush().context(CANNOT_WRITE)?;
    summary.bytes = counted.bytes;
    progress(summary.rows);
    Ok(summary)
}

/// The span of time to export, in nanoseconds since 1970.
struct Span {
    from: i128,
    to: i128,
}

impl Span {
    fn of(history: &History, options: &Options) -> Span {
        let starts = history.files.iter().map(|file| {
            let meta = &file.meta;
            i128::from(meta.started_ns) + i128::from(meta.realtime_offset_ns)
        });
        let start = starts.min().unwrap_or(0);
        let at = |offset: u64| start + i128::from(offset);
        Span {
            from: options.from_ns.map_or(i128::MIN, at),
            to: options.to_ns.map_or(i128::MAX, at),
        }
    }

    fn has(&self, file: &File, call: &Call) -> bool {
        let began = realtime(file, call.start_ns);
        self.from <= began && began < self.to
    }
}

struct Counted<'a> {
    out: &'a mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
