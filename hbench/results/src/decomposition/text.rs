// SPDX-License-Identifier: MIT OR Apache-2.0
//! A decomposition on a terminal.

use std::io::{self, Write};

use kit_console::printable;

use super::{Decomposition, TreeNode};
use crate::words::{percent, time};

/// Rows of the call tree that are shown.
const TREE_ROWS: usize = 24;
const NAME: usize = 34;

pub fn decomposition(out: &mut impl Write, found: &Decomposition) -> io::Result<()> {
    headline(out, found)?;
    own(out, found)?;
    calls(out, found)?;
    places(out, found)?;
    inside(out, found)?;
    writeln!(
        out,
        "\n  What lies between the parts and the undisturbed time"
    )?;
    for residual in &found.residuals {
        let ns = residual.ns.map_or("unknown".to_string(), time);
        let (class, about) = (printable(&residual.class), printable(&residual.about));
        writeln!(out, "    {class:<15}{ns:>9}  {about}")?;
    }
    for missing in &found.missing {
        writeln!(out, "  {}.", printable(missing))?;
    }
    Ok(())
}

fn headline(out: &mut impl Write, found: &Decomposition) -> io::Result<()> {
    writeln!(
        out,
        "{}: {} for {}. Observed it took {}; observing costs {}.",
        printable(&found.benchmark),
        time(found.undisturbed_ns),
        printable(&found.operation),
        time(found.observed_ns),
        percent(found.observed_ns / found.undisturbed_ns - 1.0)
    )?;
    if let Some(beside) = found.beside_ns {
        writeln!(
            out,
            "  {} of it is work beside the operation, which the benchmark subtracts.",
            time(beside)
        )?;
    }
    Ok(())
}

/// The parts add up to the thread's time.
fn own(out: &mut impl Write, found: &Decomposition) -> io::Result<()> {
    let (own, others) = (&found.own, &found.others);
    writeln!(
        out,
        "\n  {:<NAME$}{:>10}{:>8}{:>15}",
        "time of the thread that measures", "", "", "other threads"
    )?;
    let whole = own.sum_ns();
    for (name, ns, other) in [
        ("program", own.user_ns, others.user_ns),
        ("kernel, in calls", own.kernel_ns, others.kernel_ns),
        ("interrupts", own.irq_ns, others.irq_ns),
        ("asleep in calls", own.blocked_ns, others.blocked_ns),
        (
            "woken, waiting for a CPU",
            own.runqueue_ns,
            others.runqueue_ns,
        ),
        ("pushed off the CPU", own.preempted_ns, others.preempted_ns),
    ] {
        writeln!(
            out,
            "    {name:<32}{:>10}{:>8}{:>15}",
            time(ns),
            percent(ns / found.observed_ns),
            time(other)
        )?;
    }
    writeln!(
        out,
        "    {:<32}{:>10}{:>8}{:>15}",
        "sum",
        time(whole),
        percent(whole / found.observed_ns),
        time(others.sum_ns())
    )?;
    writeln!(
        out,
        "    page faults: {:.2} for an operation{}; their time is that of the part in which they occur",
        found.faults_minor + found.faults_major,
        match found.faults_major >= 0.005 {
            true => format!(", {:.2} of them from disk", found.faults_major),
            false => String::new(),
        }
    )
}

fn calls(out: &mut impl Write, found: &Decomposition) -> io::Result<()> {
    if found.calls.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n  {:<NAME$}{:>8}{:>10}{:>10}{:>10}{:>10}{:>8}",
        "calls of all threads", "count", "cpu", "irq", "asleep", "no CPU", "faults"
    )?;
    for row in &found.calls {
        writeln!(
            out,
            "    {:<32}{:>8.2}{:>10}{:>10}{:>10}{:>10}{:>8.2}",
            printable(&row.call),
            row.count,
            time(row.cpu_ns),
            time(row.irq_ns),
            time(row.blocked_ns),
            time(row.waiting_ns),
            row.faults
        )?;
    }
    Ok(())
}

fn places(out: &mut impl Write, found: &Decomposition) -> io::Result<()> {
    if !found.places.is_empty() {
        writeln!(
            out,
            "\n  {:<NAME$}{:>8}{:>10}",
            "where they slept", "count", "time"
        )?;
    }
    for row in &found.places {
        let name = format!("{}: {}", row.call, row.label);
        writeln!(
            out,
            "    {:<32}{:>8.2}{:>10}  {}",
            printable(&name),
            row.count,
            time(row.blocked_ns),
            printable(&row.site)
        )?;
    }
    Ok(())
}

fn inside(out: &mut impl Write, found: &Decomposition) -> io::Result<()> {
    let Some(tree) = found.tree.as_ref().filter(|tree| !tree.calls.is_empty()) else {
        return Ok(());
    };
    writeln!(
        out,
        "\n  {:<56}{:>10}{:>10}   (by {}; traced, an operation takes {})",
        "inside the calls",
        "time",
        "self",
        printable(&tree.method),
        time(tree.traced_ns)
    )?;
    // The rows with the most time, with all that lead to them.
    let mut times: Vec<f64> = Vec::new();
    for node in &tree.calls {
        collect(node, &mut times);
    }
    times.sort_unstable_by(|a, b| b.total_cmp(a));
    let least = times.get(TREE_ROWS - 1).copied().unwrap_or(0.0);
    let mut rows = TREE_ROWS;
    for node in &tree.calls {
        branch(out, node, 0, least, &mut rows)?;
    }
    let left_out = times.len().saturating_sub(TREE_ROWS - rows);
    if left_out > 0 {
        writeln!(out, "    and {left_out} more (--format json)")?;
    }
    Ok(())
}

fn collect(node: &TreeNode, into: &mut Vec<f64>) {
    into.push(node.ns);
    node.children.iter().for_each(|child| collect(child, into));
}

fn branch(
    out: &mut impl Write,
    node: &TreeNode,
    depth: usize,
    least: f64,
    rows: &mut usize,
) -> io::Result<()> {
    if *rows == 0 || node.ns < least {
        return Ok(());
    }
    *rows -= 1;
    let count = match node.entered {
        Some(entered) => format!(" x {entered:.2}"),
        None => String::new(),
    };
    let name = format!("{}{}{count}", "  ".repeat(depth.min(16)), node.function);
    writeln!(
        out,
        "    {:<54}{:>10}{:>10}",
        printable(&name),
        time(node.ns),
        time(node.self_ns)
    )?;
    for child in &node.children {
        branch(out, child, depth + 1, least, rows)?;
    }
    Ok(())
}
