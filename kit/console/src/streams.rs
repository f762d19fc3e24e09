//! Standard output and standard error: only this module writes to them.
#![allow(clippy::disallowed_methods)]

use std::env;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use crate::clean::{Allowed, Clean};
use crate::printable::printable;

/// Buffered standard output. Without `finish`, buffered output may be lost.
pub struct StandardOutput(BufWriter<Clean<StdoutLock<'static>>>);

impl StandardOutput {
    pub fn open(allowed: Allowed) -> StandardOutput {
        StandardOutput(BufWriter::new(Clean::new(io::stdout().lock(), allowed)))
    }

    /// Writes what is still buffered.
    pub fn finish(self) -> io::Result<()> {
        let clean = self
            .0
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        clean.finish()?.flush()
    }
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Prints what `write` writes to standard output. A closed pipe is not an error.
pub fn print(
    allowed: Allowed,
    write: impl FnOnce(&mut StandardOutput) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = StandardOutput::open(allowed);
    let written = write(&mut out).and_then(|()| out.finish());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            let text = format!("cannot write to standard output: {error}");
            Err(io::Error::new(error.kind(), text))
        }
        Ok(()) => Ok(()),
    }
}

/// Writes what `write` writes to standard error, in one piece.
pub fn print_error(
    allowed: Allowed,
    write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    write(&mut bytes)?;
    let mut clean = Clean::new(Vec::new(), allowed);
    clean.write_all(&bytes)?;
    io::stderr().write_all(&clean.finish()?)
}

/// Writes one line to standard error. Failures are ignored, because they cannot be reported anywhere.
pub fn say(line: &str) {
    let line = format!("{}\n", printable(line));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes an error to standard error. Further lines are indented, so that a name with line breaks
/// cannot look like another message.
pub fn say_error(program: &str, words: &str) {
    let words = words.trim_end().replace('\n', "\n  ");
    let _ = print_error(Allowed::Text, |out| writeln!(out, "{program}: {words}"));
}

/// Whether standard output is a terminal.
pub fn is_read() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard error is a terminal.
pub fn error_is_read() -> bool {
    io::stderr().is_terminal()
}

/// What text on standard output may contain.
pub fn colours() -> Allowed {
    coloured(is_read())
}

/// What text on standard error may contain.
pub fn error_colours() -> Allowed {
    coloured(error_is_read())
}

fn coloured(is_read: bool) -> Allowed {
    let is_dumb = env::var_os("TERM").is_some_and(|kind| kind == "dumb");
    match is_read && !is_dumb && env::var_os("NO_COLOR").is_none() {
        true => Allowed::Colours,
        false => Allowed::Text,
    }
}
