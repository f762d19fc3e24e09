// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws a thread's page.

use debox::history::Call;
use kit_console::printable;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};
use ratatui::Frame;

use super::draw::Theme;
use super::facts::{Fact, Facts};
use super::rows::{holder, resource};
use super::text::{fit, percent};
use super::thread_page::{chain, stack, what, ThreadPage};
use super::view::View;
use crate::task_name::task_name;
use crate::units;

/// Waits first, then calls; below, more about the selected one.
pub fn thread(
    frame: &mut Frame,
    area: Rect,
    facts: &Facts,
    page: &ThreadPage,
    view: &mut View,
    theme: Theme,
) {
    let waits = page.waits(facts);
    let last = (waits.len() + page.calls.len()).saturating_sub(1);
    view.line = view.line.min(last);
    let height = area.height;
    let waits_height = (waits.len() as u16 + 1).clamp(2, (height / 4).max(3));
    let [of_waits, of_calls, more] = Layout::vertical([
        Constraint::Length(waits_height),
        Constraint::Min(3),
        Constraint::Length((height / 2).min(10)),
    ])
    .areas(area);
    let width = usize::from(area.width);
    let style = |at: usize| match at == view.line {
        true => theme.selected(),
        false => ratatui::style::Style::new(),
    };
    let head = wait_line(
        width,
        ["WAIT", "LONGEST", "WAITS", "CALL", "WHY", "FOR", "HELD BY"],
    );
    let mut lines = vec![Line::from(head).style(theme.head())];
    let room = usize::from(waits_height).saturating_sub(1);
    let first = (view.line.min(waits.len().saturating_sub(1)) + 1).saturating_sub(room);
    for (at, fact) in waits.iter().enumerate().skip(first).take(room) {
        lines.push(Line::from(of_wait(width, fact, facts.seconds)).style(style(at)));
    }
    if waits.is_empty() {
        lines.push(Line::from("It waited for nothing in this interval."));
    }
    frame.render_widget(Paragraph::new(lines), of_waits);

    let lost = match page.lost {
        0 => String::new(),
        lost => format!("; {} lost", units::counted(lost, "call")),
    };
    let head = format!("Its last calls that waited, from 100 us on{lost}");
    let mut lines = vec![Line::from(fit(&head, width)).style(theme.head())];
    let room = usize::from(of_calls.height).saturating_sub(1);
    let selected = view.line.checked_sub(waits.len());
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(room));
    for (at, call) in page.calls.iter().enumerate().skip(first).take(room) {
        lines.push(Line::from(of_call(width, call)).style(style(waits.len() + at)));
    }
    if page.calls.is_empty() {
        lines.push(Line::from(
            page.problem
                .clone()
                .unwrap_or_else(|| "None has ended yet.".to_string()),
        ));
    }
    frame.render_widget(Paragraph::new(lines), of_calls);

    let lines = match (
        waits.get(view.line),
        selected.and_then(|at| page.calls.get(at)),
    ) {
        (Some(fact), _) => about_wait(facts, fact),
        (None, Some(call)) => about_call(call),
        (None, None) => Vec::new(),
    };
    let lines: Vec<Line> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), more);
}

fn wait_line(width: usize, cells: [&str; 7]) -> String {
    let [wait, longest, waits, call, why, what, held_by] = cells;
    let left = width.saturating_sub(6 + 8 + 7 + 16 + 3);
    format!(
        "{wait:>6} {longest:>7} {waits:>6} {} {} {} {}",
        fit(call, 15),
        fit(why, left * 4 / 10),
        fit(what, left * 3 / 10),
        fit(held_by, left * 3 / 10),
    )
}

fn of_wait(width: usize, fact: &Fact, seconds: f64) -> String {
    let wait = &fact.wait;
    let count = match (wait.count, wait.open_ns) {
        (0, Some(_)) => "lasts".to_string(),
        (count, _) => units::count(count),
    };
    wait_line(
        width,
        [
            &percent(wait.blocked_ns, seconds),
            &units::time(wait.max_ns),
            &count,
            &printable(&wait.call),
            &printable(&wait.label),
            &resource(wait).unwrap_or_else(|| "-".to_string()),
            &holder(wait).unwrap_or_else(|| "-".to_string()),
        ],
    )
}

fn of_call(width: usize, call: &Call) -> String {
    let longest = call.sleeps.iter().max_by_key(|sleep| sleep.blocked_ns);
    let label = longest.map_or("", |sleep| &sleep.label);
    let text = format!(
        "{:>7} {:>7} asleep  {} {} from {}",
        units::time(call.wall_ns),
        units::time(call.budget.blocked_ns),
        fit(&printable(&call.name), 15),
        fit(&printable(label), 18),
        call.caller
            .as_ref()
            .map_or("?".into(), |caller| printable(caller)),
    );
    fit(&text, width)
}

fn about_wait(facts: &Facts, fact: &Fact) -> Vec<String> {
    // The columns above have no room for long names.
    let mut lines = vec![what(fact)];
    if let Some(user) = &fact.disk_user {
        lines.push(format!(
            "most of the requests to that disk are those of {}/{}",
            user.name, user.pid
        ));
    }
    lines.extend(chain(facts, fact));
    lines.push(format!("kernel: {}", stack(fact.wait.stack.as_deref())));
    lines
}

fn about_call(call: &Call) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(sleep) = call.sleeps.iter().max_by_key(|sleep| sleep.blocked_ns) {
        let owner = match (&sleep.owner_comm, sleep.owner_tid) {
            (Some(comm), Some(tid)) => format!(", held by {}", printable(&task_name(comm, tid))),
            _ => String::new(),
        };
        let resource = sleep
            .resource
            .as_ref()
            .map_or(String::new(), |name| format!(" for {}", printable(name)));
        lines.push(format!(
            "{} {}{resource}{owner}",
            units::time(sleep.blocked_ns),
            printable(&sleep.label)
        ));
        lines.push(format!("kernel: {}", stack(sleep.stack.as_deref())));
    }
    lines.push(format!("program: {}", stack(call.stack.as_deref())));
    lines
}
