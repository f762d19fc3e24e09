// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of `debox top --batch`.

use std::fmt::Write as _;

use super::facts::Facts;
use super::rows::Row;
use super::text::{by_name, cells, fit, losses, summary, ID_WIDTH, PERCENT_WIDTH, TIME_WIDTH};
use crate::options::By;

/// The table of one interval.
pub fn table(facts: &Facts, rows: &[Row], by: By, most: usize) -> String {
    let mut text = String::new();
    let now = jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S");
    let has_ids = matches!(by, By::Process | By::Thread);
    let id = match by {
        By::Thread => "TID",
        _ => "PID",
    };
    let shown = &rows[..rows.len().min(most)];
    let all: Vec<_> = shown.iter().map(|row| cells(row, facts.seconds)).collect();
    let width = |head: &str, cell: &dyn Fn(usize) -> usize, most: usize| {
        (0..all.len())
            .map(cell)
            .max()
            .unwrap_or(0)
            .max(head.len())
            .min(most)
    };
    let name = by_name(by).to_uppercase();
    let name_width = width(&name, &|at| all[at].name.chars().count(), 40);
    let why_width = width("WHY", &|at| all[at].why.chars().count(), 48);
    let mut line = |id: &str, cells: [&str; 6]| {
        if has_ids {
            let _ = write!(text, "{id:>ID_WIDTH$} ");
        }
        let [name, wait, cpu, longest, why, held_by] = cells;
        let _ = write!(
            text,
            "{} {wait:>PERCENT_WIDTH$} {cpu:>PERCENT_WIDTH$} {longest:>TIME_WIDTH$} {} {held_by}",
            fit(name, name_width),
            fit(why, why_width),
        );
        text.truncate(text.trim_end().len());
        text.push('\n');
    };
    line(id, [&name, "WAIT", "CPU", "LONGEST", "WHY", "HELD BY"]);
    for cells in &all {
        line(
            &cells.id,
            [
                &cells.name,
                &cells.wait,
                &cells.cpu,
                &cells.longest,
                &cells.why,
                &cells.held_by,
            ],
        );
    }
    let mut whole = format!("{now}: {}\n{text}", summary(facts));
    if rows.is_empty() {
        whole.push_str("Nothing waited for anything but work.\n");
    }
    if rows.len() > shown.len() {
        let _ = writeln!(whole, "({} more rows: --rows)", rows.len() - shown.len());
    }
    if let Some(losses) = losses(facts) {
        let _ = writeln!(whole, "{losses}.");
    }
    whole.push('\n');
    whole
}
