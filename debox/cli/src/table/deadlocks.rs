//! Threads that wait for each other. Printed first, because nothing else matters to them.

use std::io::{self, Write};

use anstyle::Style;
use debox::report::Deadlock;

use super::grid::note;
use super::{line, TableOptions};

pub fn print(
    out: &mut impl Write,
    deadlocks: &[Deadlock],
    options: &TableOptions,
) -> io::Result<()> {
    for deadlock in deadlocks {
        line(out, &deadlock.title(), Style::new().bold(), options)?;
        for wait in deadlock.lines() {
            note(out, &wait, options)?;
        }
    }
    Ok(())
}
