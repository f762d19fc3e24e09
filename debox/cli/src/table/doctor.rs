//! What `debox doctor` found, for people: each requirement, whether it is met, what it costs if it
//! is not, and how to fix it.

use std::io::{self, Write};

use anstyle::Style;

pub use debox::doctor::{Finding, Standing};

use super::grid::{name, text, Cell, Grid, Tone};
use super::{line, TableOptions};

/// Prints the findings in the given order, then the verdict.
pub fn print(out: &mut impl Write, findings: &[Finding], options: &TableOptions) -> io::Result<()> {
    let mut grid = Grid::new([name(""), name(""), text("")]);
    for finding in findings {
        let (word, tone) = match finding.standing {
            Standing::Met => ("yes", Tone::Quiet),
            Standing::Limits => ("limited", Tone::Warn),
            Standing::Prevents => ("no", Tone::Warn),
            Standing::Unchecked => ("unknown", Tone::Plain),
            Standing::Unused => ("unused", Tone::Quiet),
        };
        grid.row([
            Cell::text(word).tone(tone),
            Cell::text(&finding.need),
            Cell::text(&finding.found),
        ]);
        let remedy = if finding.remedy.is_empty() {
            String::new()
        } else {
            format!("Remedy: {}", finding.remedy)
        };
        for explanation in [&finding.cost, &remedy] {
            if !explanation.is_empty() {
                grid.row([Cell::blank(), Cell::blank(), Cell::text(explanation)]);
            }
        }
    }
    grid.print(out, options)?;
    writeln!(out)?;
    line(out, &verdict(findings), Style::new().bold(), options)
}

fn verdict(findings: &[Finding]) -> String {
    let how_many = |standing| {
        findings
            .iter()
            .filter(|finding| finding.standing == standing)
            .count()
    };
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let mut verdict = match (how_many(Standing::Prevents), how_many(Standing::Limits)) {
        (0, 0) => "debox works here, with nothing missing".to_string(),
        (0, limits) => format!("debox works here, within {}", plural(limits, "limit")),
        _ => format!("debox does not work here: {}", obstacles(findings)),
    };
    match how_many(Standing::Unchecked) {
        0 => {}
        unchecked => verdict.push_str(&format!("; {unchecked} not known")),
    }
    verdict
}

fn obstacles(findings: &[Finding]) -> String {
    let prevents = |finding: &&Finding| finding.standing == Standing::Prevents;
    let needs: Vec<&str> = findings
        .iter()
        .filter(prevents)
        .map(|finding| finding.need.as_str())
        .collect();
    needs.join(", ")
}
