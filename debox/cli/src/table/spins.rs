//! Kernel locks for which calls spun.

use std::io::{self, Write};

use debox::report::{Report, Spin};

use super::grid::{number, text, Cell, Grid, Tone};
use super::{heading, kernel_frame, shown, TableOptions};

const ROWS: usize = 6;
/// The smallest part of the kernel's CPU time for which the table is printed.
const LEAST: f64 = 0.01;

pub fn print(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    let kernel_cpu_ns = report.totals.kernel_cpu_ns;
    rows(
        out,
        &report.spins,
        Others::default(),
        kernel_cpu_ns,
        options,
    )
}

/// Locks that are not in the list.
#[derive(Debug, Clone, Copy, Default)]
pub struct Others {
    pub locks: u64,
    pub spin_ns: u64,
}

pub fn rows(
    out: &mut impl Write,
    spins: &[Spin],
    others: Others,
    kernel_cpu_ns: u64,
    options: &TableOptions,
) -> io::Result<()> {
    let total = |spins: &[Spin], of: fn(&Spin) -> u64| {
        spins
            .iter()
            .fold(0u64, |sum, spin| sum.saturating_add(of(spin)))
    };
    let all = total(spins, |spin| spin.spin_ns).saturating_add(others.spin_ns);
    let is_much = all as f64 >= kernel_cpu_ns as f64 * LEAST;
    if spins.is_empty() || (!is_much && !options.all) {
        return Ok(());
    }
    heading(out, "For which locks of the kernel it spun", options)?;
    let mut grid = Grid::new([
        text("lock"),
        text("taken in"),
        text("call"),
        number("spins"),
        number("time"),
        number("longest").gives_way(1),
    ]);
    let shown = shown(spins.len(), ROWS, options);
    for spin in &spins[..shown] {
        let lock = match &spin.lock.name {
            Some(name) => format!("{} {name}", spin.lock.kind),
            None => spin.lock.kind.clone(),
        };
        grid.row([
            Cell::text(lock),
            Cell::text(kernel_frame(&spin.site, options).to_string()),
            Cell::text(&spin.syscall),
            Cell::number(spin.count),
            Cell::time(spin.spin_ns),
            Cell::time(spin.max_ns),
        ]);
    }
    let rest = &spins[shown..];
    let count = (rest.len() as u64).saturating_add(others.locks);
    if count > 0 {
        // How often they spun is not known of those that were left out of the recording.
        let spun = match others.locks {
            0 => Cell::number(total(rest, |spin| spin.count)),
            _ => Cell::blank(),
        };
        let spin_ns = total(rest, |spin| spin.spin_ns).saturating_add(others.spin_ns);
        grid.quiet_row([
            Cell::text(format!("… {count} more")).tone(Tone::Quiet),
            Cell::blank(),
            Cell::blank(),
            spun,
            Cell::time(spin_ns),
            Cell::blank(),
        ]);
    }
    grid.print(out, options)
}
