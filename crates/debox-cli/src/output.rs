//! Where the report goes. Standard output belongs to the command.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{bail, Result};
use debox::report::Report;
use debox_files::output;

use crate::options::{Format, Measure};
use crate::table::{self, TableOptions};

pub struct Output {
    format: Format,
    file: Option<PathBuf>,
    all: bool,
}

impl Output {
    /// Tries the file first: a report must not be lost because there is nowhere to put it.
    pub fn prepare(measure: &Measure) -> Result<Output> {
        if let Some(path) = &measure.output {
            output::check(path)?;
        }
        Ok(Output {
            format: measure.format,
            file: measure.output.clone(),
            all: measure.all,
        })
    }

    pub fn write(&self, report: &Report) -> Result<()> {
        let Some(path) = &self.file else {
            let stderr = io::stderr();
            let color = stderr.is_terminal() && std::env::var_os("NO_COLOR").is_none();
            return Ok(self.format_to(&mut stderr.lock(), report, color)?);
        };
        let mut bytes = Vec::new();
        self.format_to(&mut bytes, report, false)?;
        if let Err(error) = output::replace(path, &bytes) {
            // The measurement is worth more than the order that standard error is kept in.
            io::stderr().write_all(&bytes)?;
            bail!("{error:#} (the report is printed above)");
        }
        Ok(())
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

/// The tables of a report on standard error.
pub fn print(report: &Report) -> Result<()> {
    let output = Output {
        format: Format::Table,
        file: None,
        all: false,
    };
    output.write(report)
}

/// Columns of the terminal that a descriptor is, or 100.
pub fn terminal_width(descriptor: i32) -> usize {
    // SAFETY: the ioctl fills in the structure it is given.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let known = unsafe { libc::ioctl(descriptor, libc::TIOCGWINSZ, &mut size) } == 0;
    if known && size.ws_col > 0 {
        usize::from(size.ws_col)
    } else {
        100
    }
}
