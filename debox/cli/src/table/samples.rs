//! Where threads computed, according to samples.

use std::io::{self, Write};

use debox::report::{interval, SampledFunction, Samples};

use super::grid::{number, text, Cell, Grid, Tone};
use super::{heading, shown, TableOptions};
use crate::units;

const ROWS: usize = 10;

pub fn print(out: &mut impl Write, samples: &Samples, options: &TableOptions) -> io::Result<()> {
    if samples.total == 0 {
        return Ok(());
    }
    heading(out, &title(samples), options)?;
    let mut grid = Grid::new([
        text("function"),
        text("most at").when_used(),
        number("samples"),
        number("share"),
        number("95 % sure").gives_way(1),
        number("in calls").when_used().gives_way(2),
        text("mostly inside").when_used().gives_way(3),
    ]);
    let functions = &samples.functions;
    let shown = shown(functions.len(), ROWS, options);
    for function in &functions[..shown] {
        grid.row(row(function, samples.total));
    }
    let listed: u64 = functions[..shown].iter().map(|row| row.samples).sum();
    let rest = samples.total.saturating_sub(listed);
    if rest > 0 {
        let name = match functions.len() - shown {
            0 => "elsewhere, or not known".to_string(),
            more => format!("… {more} more"),
        };
        grid.quiet_row([
            Cell::text(name).tone(Tone::Quiet),
            Cell::blank(),
            Cell::number(rest),
            Cell::text(percent(rest, samples.total)),
            Cell::blank(),
            Cell::blank(),
            Cell::blank(),
        ]);
    }
    grid.print(out, options)
}

/// `Where it computed: 118 samples (199 in a second of each CPU)`
fn title(samples: &Samples) -> String {
    let rate = 1_000_000_000 / samples.period_ns.max(1);
    let mut text = format!(
        "Where it computed: {}, {rate} in a second of each CPU",
        units::counted(samples.total, "sample")
    );
    if samples.in_interrupts > 0 {
        let count = units::count(samples.in_interrupts);
        text.push_str(&format!("; {count} in interrupts are left out"));
    }
    if samples.lost > 0 {
        text.push_str(&format!("; {} were lost", units::count(samples.lost)));
    }
    text
}

fn row(function: &SampledFunction, of: u64) -> [Cell; 7] {
    let (low, high) = interval(function.samples, of);
    [
        Cell::text(&function.function),
        Cell::text(function.place.as_deref().unwrap_or_default()),
        Cell::number(function.samples),
        Cell::text(percent(function.samples, of)),
        Cell::text(format!("{:.0}-{:.0} %", low * 100.0, high * 100.0)),
        Cell::number(function.in_calls),
        Cell::text(function.inside.as_deref().unwrap_or_default()),
    ]
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.0} %", part as f64 * 100.0 / of.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::sample;

    #[test]
    fn shares_have_their_numbers_and_what_is_missing_is_told() {
        let samples = sample::samples();
        let options = TableOptions {
            color: false,
            width: 120,
            all: false,
        };
        let mut out = Vec::new();
        print(&mut out, &samples, &options).expect("memory takes everything");
        let shown = String::from_utf8(out).expect("text");
        let rows: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert!(
            shown.contains("1,000 samples, 199 in a second of each CPU; 3 in interrupts are left out; 4 were lost"),
            "{shown}"
        );
        let fill = ["fill", "fill.c:3", "750", "75", "%", "72-78", "%", "0"];
        assert_eq!(rows[3], fill, "{shown}");
        assert_eq!(rows[4].last(), Some(&"write"), "{shown}");
        assert_eq!(
            rows[5][..4],
            ["elsewhere,", "or", "not", "known"],
            "{shown}"
        );
        assert!(rows[5].contains(&"150"), "{shown}");
    }

    #[test]
    fn nothing_is_printed_without_samples() {
        let options = TableOptions {
            color: false,
            width: 120,
            all: false,
        };
        let mut out = Vec::new();
        print(&mut out, &Samples::default(), &options).expect("memory takes everything");
        assert!(out.is_empty());
    }
}
