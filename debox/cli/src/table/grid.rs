//! A table without lines that fits the terminal.
//!
//! The kit lays out the cells. This module adds what a report needs: columns that appear only if they have
//! content, columns that are dropped on a narrow terminal (and are then named below the table), and cells whose
//! meaning (`zero`, `not measured`, `idle`) is a tone rather than a colour.

use std::io::{self, Write};

use kit_console::printable;
use kit_console::table::{self, Layout, Width};

use super::TableOptions;
use crate::units;

/// Indentation of tables.
const INDENT: usize = 2;
/// Columns of running text wrap before other columns are dropped. Words stay whole up to the first of these widths
/// that fits.
const WORDS_MAX: [usize; 3] = [60, 40, 28];

/// Words up to this width stay whole in any table that fits.
const SHORTEST_WORD: usize = 28;

/// Stands for a space at which a cell is not wrapped; replaced by a space when printed.
const KEPT_SPACE: char = '\u{a0}';

/// Units that belong to the number before them.
const UNITS: &[&str] = &[
    "ns", "us", "ms", "s", "min", "h", "%", "B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB",
];

pub use table::Tone;

pub struct Cell {
    text: String,
    tone: Tone,
    /// Zero, not measured or blank: a column that has only such cells is not needed.
    empty: bool,
}

impl Cell {
    /// Names and stacks come from the monitored programs, so control characters are shown as escapes.
    pub fn text(text: impl AsRef<str>) -> Self {
        let text = printable(text.as_ref()).into_owned();
        let empty = text.is_empty();
        Self {
            text,
            tone: Tone::Plain,
            empty,
        }
    }

    pub fn blank() -> Self {
        Self::text("")
    }

    pub fn number(n: u64) -> Self {
        Self::measured(n, units::count)
    }

    pub fn time(ns: u64) -> Self {
        Self::measured(ns, units::time)
    }

    /// `-` means "not measured", which is different from zero.
    pub fn time_if(ns: Option<u64>) -> Self {
        ns.map_or_else(Self::unmeasured, Self::time)
    }

    pub fn bytes_if(size: Option<u64>) -> Self {
        size.map_or_else(Self::unmeasured, |size| Self::measured(size, units::bytes))
    }

    /// A process or thread number, printed without separators.
    pub fn id(id: u32) -> Self {
        Self::text(id.to_string())
    }

    pub fn unmeasured() -> Self {
        Self {
            text: "-".to_string(),
            tone: Tone::Quiet,
            empty: true,
        }
    }

    pub fn tone(mut self, tone: Tone) -> Self {
        // A zero is quiet in any row.
        if !self.empty {
            self.tone = tone;
        }
        self
    }

    fn measured(value: u64, show: impl Fn(u64) -> String) -> Self {
        let tone = if value == 0 { Tone::Quiet } else { Tone::Plain };
        // In a column, a space inside a number would look like the gap between columns.
        let text = show(value).replace(' ', "");
        Self {
            text,
            tone,
            empty: value == 0,
        }
    }
}

/// The text, with unbreakable spaces between numbers and their units.
fn with_units(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        let is_behind_number = text[..at].ends_with(|c: char| c.is_ascii_digit());
        let is_kept = character == ' ' && is_behind_number && begins_with_unit(&text[at + 1..]);
        kept.push(if is_kept { KEPT_SPACE } else { character });
    }
    kept
}

fn begins_with_unit(text: &str) -> bool {
    let ends_word = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    UNITS
        .iter()
        .any(|unit| text.strip_prefix(unit).is_some_and(ends_word))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Name,
    Number,
    Text,
}

pub struct Column {
    head: String,
    kind: Kind,
    when_used: bool,
    /// Columns with a higher rank are dropped first; columns of rank 0 stay.
    gives_way: u8,
}

/// A column of names: left-aligned, never wrapped.
pub fn name(head: &str) -> Column {
    Column {
        head: head.to_string(),
        kind: Kind::Name,
        when_used: false,
        gives_way: 0,
    }
}

/// A column of numbers: right-aligned, never wrapped.
pub fn number(head: &str) -> Column {
    Column {
        kind: Kind::Number,
        ..name(head)
    }
}

/// A column of running text: left-aligned, wrapped.
pub fn text(head: &str) -> Column {
    Column {
        kind: Kind::Text,
        ..name(head)
    }
}

impl Column {
    /// Hides the column if all its cells are empty.
    pub fn when_used(mut self) -> Self {
        self.when_used = true;
        self
    }

    pub fn gives_way(mut self, rank: u8) -> Self {
        self.gives_way = rank;
        self
    }
}

pub struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Grid {
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self {
            columns: columns.into(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        let cells = cells.into();
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    pub fn quiet_row(&mut self, cells: impl Into<Vec<Cell>>) {
        let cells = cells.into().into_iter().map(|cell| cell.tone(Tone::Quiet));
        self.row(cells.collect::<Vec<_>>());
    }

    pub fn print(&self, out: &mut impl Write, options: &TableOptions) -> io::Result<()> {
        let (columns, left_out, gap) = self.fit(options);
        for row in self.lay_out(&columns, gap, options) {
            let row = row.replace(KEPT_SPACE, " ");
            writeln!(out, "{:INDENT$}{}", "", row.trim_end())?;
        }
        if left_out.is_empty() {
            return Ok(());
        }
        let left_out = left_out.join(", ");
        note(
            out,
            &format!("left out to fit {} columns: {left_out}", options.width),
            options,
        )
    }

    /// The columns to show, the heads of those that were dropped, and the gap between columns.
    fn fit(&self, options: &TableOptions) -> (Vec<usize>, Vec<&str>, usize) {
        let used = |column: usize| self.rows.iter().any(|row| !row[column].empty);
        let mut columns: Vec<usize> = (0..self.columns.len())
            .filter(|&column| !self.columns[column].when_used || used(column))
            .collect();
        let mut left_out = Vec::new();
        loop {
            for gap in [2, 1] {
                if self.least_width(&columns, gap) <= options.width {
                    return (columns, left_out, gap);
                }
            }
            // Columns of zeros are dropped first, because that loses nothing.
            let next = columns
                .iter()
                .enumerate()
                .filter(|(_, &column)| self.columns[column].gives_way > 0)
                .max_by_key(|(_, &column)| (!used(column), self.columns[column].gives_way));
            let Some((position, _)) = next else {
                return (columns, left_out, 1);
            };
            left_out.push(self.columns[columns.remove(position)].head.as_str());
        }
    }

    fn least_width(&self, columns: &[usize], gap: usize) -> usize {
        self.least_width_with(columns, gap, SHORTEST_WORD)
    }

    fn least_width_with(&self, columns: &[usize], gap: usize, word_max: usize) -> usize {
        let content: usize = self.least_widths(columns, word_max).iter().sum();
        INDENT + content + gap * columns.len().saturating_sub(1)
    }

    /// For each column, the width of names and numbers, and of the longest word of a text.
    fn least_widths(&self, columns: &[usize], word_max: usize) -> Vec<usize> {
        let widths = |show: fn(&str) -> String| {
            let widths = self.layout(columns, show).content_widths();
            widths.into_iter()
        };
        let whole = widths(str::to_string);
        let words = widths(|text| with_units(text).replace(' ', "\n"));
        let least =
            |((&column, whole), word): ((&usize, usize), usize)| match self.columns[column].kind {
                Kind::Text => word.min(word_max),
                Kind::Name | Kind::Number => whole,
            };
        columns.iter().zip(whole).zip(words).map(least).collect()
    }

    fn lay_out(&self, columns: &[usize], gap: usize, options: &TableOptions) -> Vec<String> {
        let last = columns.len().saturating_sub(1);
        let has_room =
            |word_max: &usize| self.least_width_with(columns, gap, *word_max) <= options.width;
        let word_max = WORDS_MAX.into_iter().find(has_room);
        let least = self.least_widths(columns, word_max.unwrap_or(SHORTEST_WORD));
        // On a terminal that is too narrow for everything, breaking a word is better than breaking a line.
        let fits = self.least_width(columns, gap) <= options.width;
        let column = |(position, &column): (usize, &usize)| {
            let padding = if position == last { 0 } else { gap as u16 };
            let kind = self.columns[column].kind;
            table::Column {
                width: match kind {
                    Kind::Text if fits => {
                        let width = u16::try_from(least[position]).unwrap_or(u16::MAX);
                        Width::AtLeast(width.saturating_add(padding))
                    }
                    Kind::Text => Width::Any,
                    Kind::Name | Kind::Number => Width::Content,
                },
                is_right_aligned: kind == Kind::Number,
                padding: (0, padding),
            }
        };
        let layout: Vec<_> = columns.iter().enumerate().map(column).collect();
        let width = options.width.saturating_sub(INDENT).max(1);
        self.layout(columns, with_units)
            .lines(&layout, width, options.color)
    }

    /// The cells of some columns.
    fn layout(&self, columns: &[usize], show: fn(&str) -> String) -> Layout {
        let has_heads = self.columns.iter().any(|column| !column.head.is_empty());
        let head = |&column: &usize| self.columns[column].head.as_str();
        let heads = columns.iter().filter(|_| has_heads).map(head);
        let mut layout = Layout::new(heads);
        for row in &self.rows {
            layout.row(columns.iter().map(|&column| {
                let cell = &row[column];
                (show(&cell.text), cell.tone)
            }));
        }
        layout
    }
}

/// A sentence below a table, wrapped and quiet.
pub fn note(out: &mut impl Write, sentence: &str, options: &TableOptions) -> io::Result<()> {
    let mut grid = Grid::new([text("")]);
    grid.quiet_row([Cell::text(sentence)]);
    grid.print(out, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text_of_cell: &str, width: usize) -> String {
        let mut grid = Grid::new([name("a"), text("b")]);
        grid.row([Cell::text("name"), Cell::text(text_of_cell)]);
        let options = TableOptions {
            color: false,
            width,
            all: false,
        };
        let mut out = Vec::new();
        grid.print(&mut out, &options).expect("memory takes it");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        for width in 20..60 {
            let table = printed(
                "it slept 1.92 s in 40 sleeps, 99 % of all, 17.15 ms longest",
                width,
            );
            for whole in ["1.92 s", "99 %", "17.15 ms"] {
                assert!(table.contains(whole), "{width}: {table}");
            }
            assert!(!table.contains(KEPT_SPACE));
        }
    }

    #[test]
    fn long_names_stay_whole_where_there_is_room() {
        let name = "std::sys::pal::unix::thread::Thread::new";
        assert!(printed(&format!("called from {name} and others"), 60).contains(name));
        assert!(printed(&"x".repeat(200), 60)
            .lines()
            .all(|line| line.chars().count() <= 60));
    }

    #[test]
    fn what_only_looks_like_a_unit_is_wrapped() {
        assert_eq!(
            with_units("3 sleeps, 4 s, 5 msx"),
            "3 sleeps, 4\u{a0}s, 5 msx"
        );
    }
}
