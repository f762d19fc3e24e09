//! Where the report goes. Standard output belongs to the command.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use debox::report::Report;
use debox_console::Allowed;

use crate::options::{Format, Measure};
use crate::table::{self, TableOptions};

pub struct Output {
    format: Format,
    file: Option<(File, PathBuf)>,
    all: bool,
}

impl Output {
    /// Opens the file first: a report must not be lost because there is nowhere to put it.
    pub fn prepare(measure: &Measure) -> Result<Output> {
        let file = match &measure.output {
            None => None,
            Some(path) => {
                let file = File::create(path)
                    .with_context(|| format!("cannot write the report to {}", path.display()))?;
                Some((file, path.clone()))
            }
        };
        Ok(Output {
            format: measure.format,
            file,
            all: measure.all,
        })
    }

    pub fn write(&self, report: &Report) -> Result<()> {
        let Some((file, path)) = &self.file else {
            return Ok(self.to_standard_error(report)?);
        };
        let mut bytes = Vec::new();
        self.format_to(&mut bytes, report, false)?;
        let written = (&mut &*file)
            .write_all(&bytes)
            .and_then(|()| file.sync_data_if_regular());
        if let Err(error) = written {
            // The measurement is worth more than the order that standard error is kept in.
            let above = match self.to_standard_error(report) {
                Ok(()) => " (it is printed above)",
                Err(_) => "",
            };
            return Err(error)
                .with_context(|| format!("cannot write the report to {}{above}", path.display()));
        }
        Ok(())
    }

    /// The same where the exit status is the command's: it stays that, even if standard error does not
    /// take the report.
    pub fn write_after_command(&self, report: &Report) -> Result<()> {
        match self.write(report) {
            Err(_) if self.file.is_none() => Ok(()),
            written => written,
        }
    }

    fn to_standard_error(&self, report: &Report) -> io::Result<()> {
        let allowed = match self.format {
            Format::Json => Allowed::Json,
            Format::Table => debox_console::error_colours(),
        };
        let color = allowed == Allowed::Colours;
        debox_console::print_error(allowed, |out| self.format_to(out, report, color))
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

/// A reader who has gone has seen enough.
pub fn quiet_if_closed(error: anyhow::Error) -> Result<()> {
    let kind = error.downcast_ref().map(io::Error::kind);
    match kind == Some(io::ErrorKind::BrokenPipe) {
        true => Ok(()),
        false => Err(error),
    }
}

/// The tables of a report on standard error.
pub fn print(report: &Report) -> Result<()> {
    let output = Output {
        format: Format::Table,
        file: None,
        all: false,
    };
    output.write_after_command(report)
}

trait SyncIfRegular {
    fn sync_data_if_regular(&self) -> io::Result<()>;
}

impl SyncIfRegular for File {
    /// Delayed allocation can put off "no space left" until the data is written back.
    fn sync_data_if_regular(&self) -> io::Result<()> {
        if self.metadata()?.is_file() {
            self.sync_data()?;
        }
        Ok(())
    }
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
