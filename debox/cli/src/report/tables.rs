//! The report on a terminal: findings first, then the figures that they rest on.

use std::io::{self, Write};

use anstyle::Style;
use debox_report::{Budget, Comparison, Difference, Report, Rest, Verdict};

use crate::table::grid::{name, note, number, text, Cell, Grid, Tone};
use crate::table::processes::CommandLines;
use crate::table::{heading, line, samples, shown, TableOptions};
use crate::units;

const CALLS: usize = 15;
const LABELS: usize = 12;
const WAITS: usize = 10;
const THREADS: usize = 8;
const IDLE: &str = "idle";

pub fn print(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    summary(out, report, options)?;
    findings(out, report, options)?;
    if let Some(comparison) = &report.against {
        against(out, report, comparison, options)?;
    }
    if let Some(samples) = &report.samples {
        samples::print(out, samples, options)?;
    }
    calls(out, report, options)?;
    super::user_level::print(out, report, options)?;
    labels(out, report, options)?;
    waits(out, report, options)?;
    cpu_waits(out, report, options)?;
    spins(out, report, options)?;
    growth(out, report, options)?;
    super::slowest::print(out, report, options)?;
    super::slowest::in_flight(out, report, options)?;
    threads(out, report, options)?;
    heading(out, "What is missing or uncertain", options)?;
    for sentence in &report.caveats {
        note(out, sentence, options)?;
    }
    Ok(())
}

/// Shows the largest owner of each call.
fn cpu_waits(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    let Some(waits) = &report.cpu_waits else {
        return Ok(());
    };
    let calls = report.calls.iter().chain(&report.between_calls);
    let wall_ns = calls.fold(0u64, |sum, call| sum.saturating_add(call.budget.wall_ns));
    crate::table::cpu_waits::rows(out, &waits.rows(&report.threads), wall_ns, options)
}

/// Shows the kernel's locks that calls spun on.
fn spins(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    let (Some(spins), Some(account)) = (&report.spins, &report.account) else {
        return Ok(());
    };
    let others = crate::table::spins::Others {
        locks: report.spins_left_out,
        spin_ns: report.spins_left_out_ns,
    };
    crate::table::spins::rows(out, spins, others, account.kernel_cpu_ns, options)
}

fn active(budget: &Budget) -> u64 {
    budget.wall_ns.saturating_sub(budget.idle_ns)
}

/// Quotes a word of a command for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_=+./,:@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn summary(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    let recording = &report.recording;
    let commands: Vec<String> = recording
        .commands
        .iter()
        .map(|words| words.iter().map(|word| quoted(word)).collect::<Vec<_>>())
        .map(|words| words.join(" "))
        .collect();
    let command = commands.join("; ");
    let of = if command.is_empty() {
        "a running process"
    } else {
        &command
    };
    let of: String = of
        .chars()
        .filter(|letter| !letter.is_control())
        .take(200)
        .collect();
    line(
        out,
        &format!("debox report: {of}"),
        Style::new().bold(),
        options,
    )?;
    let mut style = Style::new().bold();
    // A deadlock comes first, among the findings.
    let blocked_loop = report.loop_text.iter();
    let blocked_loop = blocked_loop.filter(|_| report.deadlocks.is_empty());
    let beside_idle = beside_idle(report);
    for text in blocked_loop
        .chain(&report.headline_text)
        .chain(&beside_idle)
    {
        line(out, text, style, options)?;
        style = Style::new();
    }
    let totals = &report.totals;
    let computed = match &report.account {
        Some(account) => format!("; between calls {} CPU", units::time(account.user_cpu_ns)),
        None => String::new(),
    };
    note(
        out,
        &format!(
            "{} of {} in {}; in calls {}: {} CPU, {} blocked (of it {} idle), {} waiting for \
             a CPU, {} preempted{computed}",
            units::counted(recording.calls, "call"),
            units::counted(recording.threads, "thread"),
            units::time(recording.span_ns),
            units::time(totals.wall_ns),
            units::time(totals.cpu_ns),
            units::time(totals.blocked_ns),
            units::time(totals.idle_ns),
            units::time(totals.runqueue_ns),
            units::time(totals.preempted_ns),
        ),
        options,
    )?;
    if !recording.lost.is_none() || !recording.complete || recording.cut_off_bytes > 0 {
        let text = "  Something is missing from this recording: see the end of the report.";
        line(
            out,
            text,
            Style::new().fg_color(Some(anstyle::AnsiColor::Yellow.into())),
            options,
        )?;
    }
    Ok(())
}

/// What matters apart from idle waits, if these come first.
fn beside_idle(report: &Report) -> Option<String> {
    let first = report.headline.as_ref()?.shares.first()?;
    let active = report.active_text.first()?;
    (first.class.as_deref() == Some(IDLE)).then(|| format!("without idle waits: {active}"))
}

fn findings(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    heading(out, "Findings", options)?;
    let mut grid = Grid::new([number(""), text("")]);
    for (index, finding) in report.findings.iter().enumerate() {
        grid.row([
            Cell::text(format!("{}.", index + 1)),
            Cell::text(&finding.text),
        ]);
    }
    grid.print(out, options)
}

fn change(difference: &Difference) -> Cell {
    let Some((low, high)) = difference.change_percent else {
        return Cell::text("too few").tone(Tone::Quiet);
    };
    // Larger percentages are hard to read: shown as factors.
    let range = if low >= 900.0 {
        format!(
            "{:.0} to {:.0} times as much",
            low / 100.0 + 1.0,
            high / 100.0 + 1.0
        )
    } else {
        format!("{low:+.1} to {high:+.1} %")
    };
    match difference.verdict {
        Verdict::None => Cell::text(format!("none shown ({range})")).tone(Tone::Quiet),
        Verdict::TooFew => Cell::text("too few").tone(Tone::Quiet),
        Verdict::More => Cell::text(range).tone(Tone::Warn),
        Verdict::Less => Cell::text(range),
    }
}

fn against(
    out: &mut impl Write,
    report: &Report,
    comparison: &Comparison,
    options: &TableOptions,
) -> io::Result<()> {
    heading(
        out,
        &format!("Against {}", comparison.base.join(", ")),
        options,
    )?;
    let mut grid = Grid::new([
        name("call"),
        number("calls"),
        number("median"),
        name("change"),
        number("99%").gives_way(2),
        name("change 99%").gives_way(2),
        number("total").gives_way(1),
        name("change total").gives_way(1),
    ]);
    let shown = shown(comparison.calls.len(), CALLS, options);
    for call in &comparison.calls[..shown] {
        let pair = |difference: &Difference| {
            let (base, new) = (units::time(difference.base_ns), units::time(difference.ns));
            Cell::text(
                format!("{base} > {new}")
                    .replace(" > ", "→")
                    .replace(' ', ""),
            )
        };
        grid.row([
            Cell::text(&call.call),
            Cell::text(format!(
                "{}→{}",
                units::count(call.base_count),
                units::count(call.count)
            )),
            pair(&call.median),
            change(&call.median),
            pair(&call.p99),
            change(&call.p99),
            pair(&call.total),
            change(&call.total),
        ]);
    }
    grid.print(out, options)?;
    let text =
        "In brackets: the interval in which the change is, at 99 %. `none shown`: no difference \
                that the data show. Two runs cannot tell how much runs differ by themselves.";
    note(out, text, options)?;
    // A caveat that applies to both is printed once.
    let own = |sentence: &&String| !report.caveats.contains(sentence);
    for sentence in comparison.base_caveats.iter().filter(own) {
        note(out, &format!("Of the other: {sentence}"), options)?;
    }
    Ok(())
}

fn calls(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    if report.calls.is_empty() {
        return Ok(());
    }
    heading(out, "Where the time went, by call", options)?;
    let mut grid = Grid::new([
        name("call"),
        number("calls"),
        number("wall"),
        number("cpu"),
        number("blocked"),
        number("idle").when_used(),
        number("runqueue").when_used().gives_way(2),
        number("preempted").when_used().gives_way(3),
        number("median").gives_way(1),
        number("99%").gives_way(1),
        number("longest").gives_way(1),
        text("errors").when_used().gives_way(4),
    ]);
    let rows: Vec<_> = report.calls.iter().chain(&report.between_calls).collect();
    let shown = shown(rows.len(), CALLS, options);
    for call in &rows[..shown] {
        let errors: Vec<String> = call
            .errors
            .iter()
            .take(2)
            .map(|(e, n)| format!("{e}/{n}"))
            .collect();
        grid.row([
            Cell::text(&call.name),
            Cell::number(call.count),
            Cell::time(call.budget.wall_ns),
            Cell::time(call.budget.cpu_ns),
            Cell::time(call.budget.blocked_ns),
            Cell::time(call.budget.idle_ns),
            Cell::time(call.budget.runqueue_ns),
            Cell::time(call.budget.preempted_ns),
            Cell::time(call.median_ns),
            Cell::time(call.p99_ns),
            Cell::time(call.max_ns),
            Cell::text(errors.join(" ")),
        ]);
    }
    grid.print(out, options)?;
    if shown < rows.len() {
        note(
            out,
            &format!("… {} more calls (--all)", rows.len() - shown),
            options,
        )?;
    }
    Ok(())
}

/// One line per label, with `call/sleeps`: the matrix, as far as the terminal is wide enough.
fn labels(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    let matrix = &report.matrix;
    if matrix.labels.is_empty() {
        return Ok(());
    }
    heading(out, "What it waited for, by label and call", options)?;
    let mut grid = Grid::new([
        name("label"),
        name("class"),
        number("sleeps"),
        number("time"),
        text("call/sleeps"),
    ]);
    let shown = shown(matrix.labels.len(), LABELS, options);
    for (at, label) in matrix.labels[..shown].iter().enumerate() {
        let mut by_call: Vec<(&String, u64)> = matrix
            .calls
            .iter()
            .zip(&matrix.cells)
            .map(|(call, row)| (call, row[at].sleeps))
            .filter(|(_, sleeps)| *sleeps > 0)
            .collect();
        by_call.sort_by_key(|(_, sleeps)| std::cmp::Reverse(*sleeps));
        let by_call: Vec<String> = by_call
            .iter()
            .map(|(call, n)| format!("{call}/{}", units::count(*n)))
            .collect();
        let cells = [
            Cell::text(&label.label),
            Cell::text(&label.class),
            Cell::number(label.sleeps),
            Cell::time(label.blocked_ns),
            Cell::text(by_call.join(" ")),
        ];
        if label.class == IDLE {
            grid.quiet_row(cells);
        } else {
            grid.row(cells);
        }
    }
    grid.print(out, options)?;
    let left = matrix.labels.len() - shown + matrix.labels_left_out;
    if left > 0 {
        note(out, &format!("… {left} more labels"), options)?;
    }
    Ok(())
}

fn waits(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    let waits: Vec<_> = report
        .waits
        .iter()
        .filter(|wait| wait.class != IDLE)
        .collect();
    if waits.is_empty() {
        return Ok(());
    }
    heading(out, "Who waited for what, and for whom", options)?;
    let mut grid = Grid::new([number("time"), text("")]);
    let shown = shown(waits.len(), WAITS, options);
    for wait in &waits[..shown] {
        let mut sentence = debox_report::wait_sentence(wait);
        if !wait.waker.is_empty() {
            sentence.push_str(&format!(" The longest was ended by {}.", wait.waker));
        }
        // Of a single wait, the sentence before says it.
        if let (true, [most, ..]) = (wait.count > 1, &wait.held_up_by[..]) {
            let (comm, ns) = (&most.comm, units::time(most.ns));
            let words = format!(" Of all, {comm} ({}) held up {ns}.", most.tid);
            sentence.push_str(&words);
        }
        grid.row([Cell::time(wait.blocked_ns), Cell::text(sentence)]);
    }
    grid.print(out, options)?;
    let left = (waits.len() - shown) as u64;
    if left > 0 {
        note(
            out,
            &format!(
                "… {} more kinds of waits were shorter (--all)",
                units::count(left)
            ),
            options,
        )?;
    }
    Ok(())
}

fn growth(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    if report.trends.is_empty() {
        return Ok(());
    }
    heading(
        out,
        "Cost against invocation: the median CPU time of a call",
        options,
    )?;
    let mut grid = Grid::new([
        name("call"),
        number("calls"),
        number("at first"),
        number("in the middle"),
        number("at last"),
        number("rank corr."),
        name(""),
    ]);
    for trend in &report.trends {
        let bins = &trend.cpu.bins;
        let (Some(first), Some(last)) = (bins.first(), bins.last()) else {
            continue;
        };
        let growth = match (trend.cpu.grows, trend.wall.grows) {
            (true, _) => Cell::text("grows").tone(Tone::Warn),
            (false, true) => Cell::text("its wall time grows").tone(Tone::Warn),
            _ => Cell::blank(),
        };
        grid.row([
            Cell::text(&trend.call),
            Cell::number(trend.count),
            Cell::time(first.3),
            Cell::time(bins[bins.len() / 2].3),
            Cell::time(last.3),
            trend
                .cpu
                .rho
                .map_or_else(Cell::unmeasured, |rho| Cell::text(format!("{rho:.2}"))),
            growth,
        ]);
    }
    grid.print(out, options)
}

fn threads(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    if report.threads.len() < 2 {
        return Ok(());
    }
    heading(out, "Threads", options)?;

    let mut grid = Grid::new([
        name("thread"),
        number("process"),
        number("calls"),
        number("wall"),
        number("without idle"),
        number("cpu"),
        number("user cpu").when_used(),
        number("blocked"),
        name("").when_used(),
        text("command line").when_used(),
    ]);
    let threads = report.threads.iter();
    let threads = threads.map(|thread| (thread.pid, thread.comm.as_str()));
    let lines = CommandLines::of(&report.recording.processes, threads);
    let shown = shown(report.threads.len(), THREADS, options);
    for thread in &report.threads[..shown] {
        grid.row([
            Cell::text(format!("{} ({})", thread.comm, thread.tid)),
            Cell::id(thread.pid),
            Cell::number(thread.calls),
            Cell::time(thread.budget.wall_ns),
            Cell::time(active(&thread.budget)),
            Cell::time(thread.budget.cpu_ns),
            thread.user_cpu_ns.map_or_else(Cell::blank, Cell::time),
            Cell::time(thread.budget.blocked_ns),
            match thread.rest {
                Some(Rest::AtRest) => Cell::text("at rest").tone(Tone::Quiet),
                Some(Rest::CannotTell) => Cell::text("at rest or stuck").tone(Tone::Quiet),
                Some(Rest::Stuck) => Cell::text("stuck"),
                None => Cell::blank(),
            },
            lines.cell(Some(thread.pid), options),
        ]);
    }
    grid.print(out, options)?;
    let left = (report.threads.len() - shown) as u64 + report.threads_left_out;
    if left > 0 {
        note(
            out,
            &format!("… {} more threads", units::count(left)),
            options,
        )?;
    }
    Ok(())
}
