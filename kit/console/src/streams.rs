//! Standard output and standard error: the one place that writes to them.
#![allow(clippy::disallowed_methods)]

use std::env;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use crate::clean::{Allowed, Clean};
use crate::printable::printable;

/// Standard output, gathered into few writes. What is not finished may be lost.
pub struct StandardOutput(BufWriter<Clean<StdoutLock<'static>>>);

impl StandardOutput {
    pub fn open(allowed: Allowed) -> StandardOutput {
        StandardOutput(BufWriter::new(Clean::new(io::stdout().lock(), allowed)))
    }

    /// Writes all that is left.
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

/// Prints to standard output all that `write` writes. A reader who has gone is not an error.
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

/// Writes to standard error all that `write` writes, in one piece.
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

/// Writes one line to standard error. If it cannot be written, there is nowhere left to say so.
pub fn say(line: &str) {
    let line = format!("{}\n", printable(line));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes an error to standard error. Lines after the first stand further in, so that a name in it that
/// has several lines cannot look like another message.
pub fn say_error(program: &str, words: &str) {
    let words = words.trim_end().replace('\n', "\n  ");
    let _ = print_error(Allowed::Text, |out| writeln!(out, "{program}: {words}"));
}

/// Whether somebody reads standard output on a terminal.
pub fn is_read() -> bool {
    io::stdout().is_terminal()
}

/// Whether somebody reads standard error on a terminal.
pub fn error_is_read() -> bool {
    io::stderr().is_terminal()
}

/// What text on standard output may have.
pub fn colours() -> Allowed {
    coloured(is_read())
}

/// What text on standard error may have.
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
