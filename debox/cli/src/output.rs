//! Where the report goes. Standard output belongs to the command.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{bail, Result};
use debox::report::Report;
use kit_console::Allowed;
use kit_files::output;

use crate::options::{Format, Measure};
use crate::table::{self, TableOptions};

pub struct Output {
    format: Format,
    file: Option<PathBuf>,
    all: bool,
}

impl Output {
    /// Opens the file before the measurement, so that a report is not lost because its file cannot be
    /// written.
    pub fn prepare(measure: &Measure) -> Result<Output> {
        if let Some(path) = &measure.output {
            output::check(path)?;
        }
        Ok(Output {
            format: measure.format,
            file: measure.output.clone(),
            all: measure.all_rows,
        })
    }

    pub fn write(&self, report: &Report) -> Result<()> {
        let Some(path) = &self.file else {
            return Ok(self.to_standard_error(report)?);
        };
        let mut bytes = Vec::new();
        self.format_to(&mut bytes, report, false)?;
        if let Err(error) = output::replace(path, &bytes) {
            // Printing the report unasked is better than losing the measurement.
            let above = match self.to_standard_error(report) {
                Ok(()) => " (the report is printed above)",
                Err(_) => "",
            };
            bail!("{error:#}{above}");
        }
        Ok(())
    }

    /// Like `write`, for commands that exit with the monitored command's status: it stays the same
    /// even if standard error does not take the report.
    pub fn write_after_command(&self, report: &Report) -> Result<()> {
        match self.write(report) {
            Err(_) if self.file.is_none() => Ok(()),
            written => written,
        }
    }

    fn to_standard_error(&self, report: &Report) -> io::Result<()> {
        let allowed = match self.format {
            Format::Json => Allowed::Json,
            Format::Table => kit_console::error_colours(),
        };
        let color = allowed == Allowed::Colours;
        kit_console::print_error(allowed, |out| self.format_to(out, report, color))
    }

    fn format_to(&self, out: &mut impl Write, report: &Report, color: bool) -> io::Result<()> {
        match self.format {
            Format::Json => {
                serde_json::to_writer_pretty(&mut *out, report)?;
                writeln!(out)
            }
            Format::Table => {
                let options = TableOptions {
                    color,
                    width: terminal_width(2),
                    all: self.all,
                };
                table::print(out, report, &options)
            }
        }
    }
}

/// Turns a closed pipe into success: the reader has seen enough.
pub fn quiet_if_closed(error: anyhow::Error) -> Result<()> {
    let kind = error.downcast_ref().map(io::Error::kind);
    match kind == Some(io::ErrorKind::BrokenPipe) {
        true => Ok(()),
        false => Err(error),
    }
}

/// Prints the report's tables to standard error.
#[cfg(feature = "recordings")]
pub fn print(report: &Report) -> Result<()> {
    let output = Output {
        format: Format::Table,
        file: None,
        all: false,
    };
    output.write_after_command(report)
}

/// Width of the terminal behind a descriptor; if it is no terminal, `COLUMNS`, or 100.
pub fn terminal_width(descriptor: i32) -> usize {
    let wished = || columns_wished(std::env::var("COLUMNS").ok().as_deref());
    let known = kit_console::terminal_width(descriptor);
    known.or_else(wished).unwrap_or(100)
}

fn columns_wished(variable: Option<&str>) -> Option<usize> {
    let columns = variable?.trim().parse().ok()?;
    (20..=10_000).contains(&columns).then_some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_width_that_was_asked_for_is_taken_if_a_table_fits() {
        assert_eq!(columns_wished(Some("160")), Some(160));
        for wrong in [
            None,
            Some(""),
            Some("wide"),
            Some("0"),
            Some("-3"),
            Some("99999999999"),
        ] {
            assert_eq!(columns_wished(wrong), None, "{wrong:?}");
        }
    }
}
