//! What `debox doctor` found, for people: each need, whether it is met, what its lack costs and
//! the remedy.

use std::io::{self, Write};

use anstyle::Style;

use super::grid::{name, text, Cell, Grid, Tone};
use super::{line, TableOptions};

/// Whether a need is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Met,
    /// Debox works, and shows less.
    Limits,
    /// Debox does not work here.
    Prevents,
}

/// One thing that was looked at.
#[derive(Debug, Clone)]
pub struct Finding {
    pub need: String,
    pub standing: Standing,
    /// What was found: a version, a sentence.
    pub found: String,
    /// What the lack costs; empty when the need is met.
    pub cost: String,
    /// What would cure it; empty when nothing is known to.
    pub remedy: String,
}

/// Prints the findings in the given order, and the verdict.
pub fn print(out: &mut impl Write, findings: &[Finding], options: &TableOptions) -> io::Result<()> {
    let mut grid = Grid::new([name(""), name(""), text("")]);
    for finding in findings {
        let (word, tone) = match finding.standing {
            Standing::Met => ("yes", Tone::Quiet),
            Standing::Limits => ("limited", Tone::Warn),
            Standing::Prevents => ("no", Tone::Warn),
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
    match (how_many(Standing::Prevents), how_many(Standing::Limits)) {
        (0, 0) => "debox works here, with nothing missing".to_string(),
        (0, limits) => format!("debox works here, within {}", plural(limits, "limit")),
        (obstacles, _) => format!(
            "debox does not work here: {}",
            plural(obstacles, "obstacle")
        ),
    }
}
