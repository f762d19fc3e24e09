// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells in columns. comfy-table measures them and wraps their text.

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, TableStyle,
};

/// How a cell should look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    /// Printed for completeness: zeros, idle waits.
    Quiet,
    /// Worth a look.
    Warn,
}

/// How wide a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// As its widest cell: the column is never wrapped.
    Content,
    /// Wrapped, but not narrower than this, padding included.
    AtLeast(u16),
    /// Wrapped to the space that is left.
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub width: Width,
    pub is_right_aligned: bool,
    /// Blanks before and after each cell.
    pub padding: (u16, u16),
}

pub struct Layout(Table);

impl Layout {
    /// A table with these heads. Without any, it has no line for them.
    pub fn new<S: AsRef<str>>(heads: impl IntoIterator<Item = S>) -> Layout {
        let mut table = Table::new();
        table.load_style(TableStyle::new());
        table.style_text_only();
        let dim = |head: S| Cell::new(head.as_ref()).add_attribute(Attribute::Dim);
        let heads: Vec<Cell> = heads.into_iter().map(dim).collect();
        if !heads.is_empty() {
            table.set_header(heads);
        }
        Layout(table)
    }

    /// Adds a row. The text must be printable: a line break in it begins a new line of the cell.
    pub fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = (S, Tone)>) {
        let styled = |(text, tone): (S, Tone)| {
            let cell = Cell::new(text.as_ref());
            match tone {
                Tone::Plain => cell,
                Tone::Quiet => cell.add_attribute(Attribute::Dim),
                Tone::Warn => cell.fg(Color::Yellow),
            }
        };
        self.0.add_row(cells.into_iter().map(styled));
    }

    /// For each column, the width of its widest line, head included.
    pub fn content_widths(&self) -> Vec<usize> {
        let widths = self.0.column_max_content_widths();
        widths.into_iter().map(usize::from).collect()
    }

    /// The lines of the table, without blanks at their ends.
    pub fn lines(mut self, columns: &[Column], width: usize, has_colours: bool) -> Vec<String> {
        let table = &mut self.0;
        table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(u16::try_from(width).unwrap_or(u16::MAX));
        for (at, column) in columns.iter().enumerate() {
            let Some(to) = table.column_mut(at) else {
                continue;
            };
            to.set_padding(column.padding);
            if column.is_right_aligned {
                to.set_cell_alignment(CellAlignment::Right);
            }
            match column.width {
                Width::Content => to.set_constraint(ColumnConstraint::ContentWidth),
                Width::AtLeast(width) => to.set_constraint(ColumnConstraint::LowerBoundary(
                    comfy_table::Width::Fixed(width),
                )),
                Width::Any => to,
            };
        }
        if has_colours {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let lines = table.lines();
        lines.map(|line| line.trim_end().to_string()).collect()
    }
}
