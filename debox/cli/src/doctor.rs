//! `debox doctor`: what this machine allows, what is missing, what it costs, and how to fix it.

use std::ffi::CString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use anyhow::Result;
use debox::doctor::{self, Diagnosis, Finding};
use kit_console::Allowed;

use crate::options::{Doctor, Format};
use crate::table::{self, TableOptions};

/// Exit status if DeBox does not work on this machine.
const PREVENTED: u8 = 1;

/// Width of the table where standard output is no terminal.
const WIDTH: usize = 100;

pub fn doctor(arguments: Doctor) -> Result<u8> {
    let mut findings = doctor::examine();
    findings.push(place_for_the_library());
    let diagnosis = Diagnosis::new(findings);
    match arguments.format {
        Format::Json => kit_console::print(Allowed::Json, |out| {
            serde_json::to_writer_pretty(&mut *out, &diagnosis)?;
            writeln!(out)
        })?,
        Format::Table => {
            let allowed = kit_console::colours();
            let options = TableOptions {
                color: allowed == Allowed::Colours,
                width: kit_console::terminal_width(libc::STDOUT_FILENO).unwrap_or(WIDTH),
                all: true,
            };
            let (version, kernel) = (env!("CARGO_PKG_VERSION"), &diagnosis.kernel);
            kit_console::print(allowed, |out| {
                writeln!(out, "debox {version} on Linux {kernel}\n")?;
                table::doctor::print(out, &diagnosis.findings, &options)
            })?;
        }
    }
    Ok(if diagnosis.ok { 0 } else { PREVENTED })
}

/// The dynamic loader maps the user tap's library from the directory for temporary files.
fn place_for_the_library() -> Finding {
    let need = "place for the user tap's library";
    let directory = std::env::temp_dir();
    let shown = directory.display();
    let finding = match is_mounted_noexec(directory.as_os_str().as_bytes()) {
        Ok(false) => return Finding::met(need, shown.to_string()),
        Ok(true) => Finding::limits(need, format!("{shown} is mounted noexec")),
        Err(error) => Finding::limits(need, format!("{shown}: {error}")),
    };
    finding
        .cost("--tap user does not work: programs cannot load it from there")
        .remedy("set TMPDIR to a directory that programs can be run from")
}

fn is_mounted_noexec(path: &[u8]) -> io::Result<bool> {
    let path = CString::new(path)?;
    // SAFETY: plain integers, for which zero is a value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string, and `found` takes what the call writes.
    if unsafe { libc::statvfs(path.as_ptr(), &mut found) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(found.f_flag & libc::ST_NOEXEC != 0)
}
