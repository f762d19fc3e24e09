// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table of names, numbers and words.

use std::io::{self, Write};

use super::layout::{Column, Layout, Tone, Width};
use crate::printable;

/// The widest table, in columns of the terminal: the eye loses the line in a wider one.
const WIDTH_MAX: usize = 400;

/// The narrowest table. On a narrower terminal its lines are broken.
const WIDTH_MIN: usize = 40;

/// Minimum width of a wrapped column, padding included.
const WRAPPED_MIN: u16 = 8;

pub struct Grid {
    layout: Layout,
    columns: Vec<Column>,
    width: usize,
}

impl Grid {
    /// Columns whose name begins with `>` contain numbers. The other columns are wrapped.
    pub fn new(heads: &[&str], width: usize) -> Grid {
        Grid::with_least(heads, width, WRAPPED_MIN)
    }

    /// Like `new`, with another minimum width of the wrapped columns, padding included.
    pub fn with_least(heads: &[&str], width: usize, least: u16) -> Grid {
        Grid::with_widths(heads, width, |_, is_number| match is_number {
            true => Width::Content,
            false => Width::AtLeast(least),
        })
    }

    /// Like `new`, but only the last column is wrapped.
    pub fn with_remarks(heads: &[&str], width: usize) -> Grid {
        let last = heads.len().saturating_sub(1);
        Grid::with_widths(heads, width, |at, _| match at == last {
            true => Width::Any,
            false => Width::Content,
        })
    }

    fn with_widths(heads: &[&str], width: usize, of: impl Fn(usize, bool) -> Width) -> Grid {
        let column = |(at, head): (usize, &&str)| {
            let is_number = head.starts_with('>');
            Column {
                width: of(at, is_number),
                is_right_aligned: is_number,
                padding: (if at == 0 { 2 } else { 1 }, 1),
            }
        };
        Grid {
            layout: Layout::new(heads.iter().map(|head| head.trim_start_matches('>'))),
            columns: heads.iter().enumerate().map(column).collect(),
            width: width.clamp(WIDTH_MIN, WIDTH_MAX),
        }
    }

    /// Adds a row. What could control a terminal is escaped.
    pub fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let shown = |cell: S| (printable(cell.as_ref()).into_owned(), Tone::Plain);
        self.layout.row(cells.into_iter().map(shown));
    }

    pub fn print(self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let lines = self.layout.lines(&self.columns, self.width, false);
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(mut grid: Grid, rows: &[[&str; 3]]) -> String {
        for row in rows {
            grid.row(row);
        }
        let mut out = Vec::new();
        grid.print(&mut out).expect("memory takes it");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn numbers_stand_right_and_words_are_wrapped() {
        let rows = [
            ["read", "1,234", "a remark that does not fit into one line"],
            ["write", "5", ""],
        ];
        let heads = ["call", ">number", "remark"];
        let wrapped = "  call   number  remark\n  \
                         read    1,234  a remark that does not\n                 \
                                        fit into one line\n  \
                         write       5\n";
        assert_eq!(printed(Grid::new(&heads, 40), &rows), wrapped);
        assert_eq!(printed(Grid::with_remarks(&heads, 40), &rows), wrapped);
    }

    #[test]
    fn what_comes_from_outside_controls_no_terminal() {
        let shown = printed(Grid::new(&["a", ">b", "c"], 80), &[["\x1b[2J", "\n", "x"]]);
        assert_eq!(shown, "  a         b  c\n  \\x1b[2J  \\n  x\n");
    }
}
