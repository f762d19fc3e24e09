// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws the screen. Everything that colours say, words say, too.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, Wrap};
use ratatui::Frame;

use super::facts::Facts;
use super::rows::{Row, Share};
use super::text::{cells, fit, losses, sort_name, summary, ID_WIDTH, PERCENT_WIDTH, TIME_WIDTH};
use super::timeline::{Timeline, LINES};
use super::view::View;
use crate::options::By;
use crate::units;

const KEYS: &str =
    "Enter open  Esc back  ptuclkro by  s sort  / filter  T time line  ? keys  q quit";

/// Colours that people who see few of them can tell apart; none at all if NO_COLOR says so.
#[derive(Clone, Copy)]
pub struct Theme {
    pub has_colours: bool,
}

impl Theme {
    fn coloured(self, colour: Color) -> Style {
        match self.has_colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    /// What holds something up.
    pub fn harm(self) -> Style {
        self.coloured(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    fn quiet(self) -> Style {
        self.coloured(Color::Blue)
    }

    pub fn head(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD)
    }
}

/// The frame around every page: two lines above, one below. Returns what is left.
pub fn frame(frame: &mut Frame, facts: &Facts, view: &View, title: &str, theme: Theme) -> Rect {
    let [head, place, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let paused = if view.is_paused { "PAUSED  " } else { "" };
    frame.render_widget(
        Line::from(format!("{paused}debox top: {title}")).style(theme.harm()),
        head,
    );
    let second = losses(facts).unwrap_or_else(|| match facts.seconds > 0.0 {
        true => summary(facts),
        false => "measuring the first interval".to_string(),
    });
    frame.render_widget(Line::from(second), place);
    let foot_line = match (&view.typed, &view.message) {
        (Some(typed), message) => {
            let message = message
                .as_ref()
                .map_or(String::new(), |message| format!("   {message}"));
            Line::from(format!("filter: {typed}_{message}"))
        }
        (None, Some(message)) => Line::from(message.clone()).style(theme.harm()),
        (None, None) => Line::from(KEYS).style(theme.quiet()),
    };
    frame.render_widget(foot_line, foot);
    body
}

/// The table, and more about the selected row below it.
pub fn rows(frame: &mut Frame, area: Rect, facts: &Facts, rows: &[Row], view: &View, theme: Theme) {
    let [table, more] = Layout::vertical([Constraint::Min(2), Constraint::Length(3)]).areas(area);
    let has_ids = matches!(view.choice.by, By::Process | By::Thread);
    let fixed =
        1 + 2 * (PERCENT_WIDTH + 1) + TIME_WIDTH + 1 + if has_ids { ID_WIDTH + 1 } else { 0 };
    let left = usize::from(table.width).saturating_sub(fixed);
    let name_width = left * 4 / 12;
    let why_width = left * 5 / 12;
    let held_width = left.saturating_sub(name_width + why_width + 1);
    let line = |id: &str, name: &str, rest: [&str; 5]| {
        let [wait, cpu, longest, why, held_by] = rest;
        let id = if has_ids {
            format!("{} ", right(id, ID_WIDTH))
        } else {
            String::new()
        };
        format!(
            "{id}{} {} {} {} {} {}",
            fit(name, name_width),
            right(wait, PERCENT_WIDTH),
            right(cpu, PERCENT_WIDTH),
            right(longest, TIME_WIDTH),
            fit(why, why_width),
            fit(held_by, held_width),
        )
    };
    let id = if view.choice.by == By::Thread {
        "TID"
    } else {
        "PID"
    };
    let head = line(
        id,
        super::text::by_name(view.choice.by),
        ["WAIT", "CPU", "LONGEST", "WHY", "HELD BY"],
    );
    let mut lines = vec![Line::from(head).style(theme.head())];
    let selected = view.selected_at(rows);
    let room = usize::from(table.height).saturating_sub(1);
    let first = (selected + 1).saturating_sub(room);
    for (at, row) in rows.iter().enumerate().skip(first).take(room) {
        let shown = cells(row, facts.seconds);
        let text = line(
            &shown.id,
            &shown.name,
            [
                &shown.wait,
                &shown.cpu,
                &shown.longest,
                &shown.why,
                &shown.held_by,
            ],
        );
        let style = match (
            at == selected,
            row.blocks_loop || row.harm_ns * 10 > row.waiting_ns,
        ) {
            (true, _) => theme.selected(),
            (false, true) if row.harm_ns > 0 => theme.harm(),
            _ => Style::new(),
        };
        lines.push(Line::from(text).style(style));
    }
    if rows.is_empty() {
        lines.push(Line::from(
            "Nothing waited for anything but work (i shows waits for work).",
        ));
    }
    frame.render_widget(Paragraph::new(lines), table);
    let sorted = format!(
        "{} of {} rows, sorted by {}",
        room.min(rows.len()),
        rows.len(),
        sort_name(view.choice.sort)
    );
    let mut below = vec![Line::from(sorted).style(theme.quiet())];
    if let Some(row) = rows.get(selected) {
        below.push(Line::from(format!("why: {}", several(&row.why))));
        below.push(Line::from(format!("held by: {}", several(&row.held_by))));
    }
    frame.render_widget(Paragraph::new(below), more);
}

fn right(text: &str, width: usize) -> String {
    let text = fit(text, text.chars().count().min(width));
    format!("{text:>width$}")
}

fn several(shares: &[Share]) -> String {
    if shares.is_empty() {
        return "not known".to_string();
    }
    let words: Vec<String> = shares
        .iter()
        .take(3)
        .map(|share| format!("{} {} ({})", share.what, units::time(share.ns), share.kind))
        .collect();
    words.join(", ")
}

/// A line for each kind of wait.
pub fn timeline(frame: &mut Frame, area: Rect, timeline: &Timeline, interval_s: f64, theme: Theme) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    let minutes = timeline.len() as f64 * interval_s / 60.0;
    let text = format!(
        "The last {minutes:.1} minutes, the present at the right. Percent of one thread's time: now, and at most."
    );
    frame.render_widget(Line::from(text).style(theme.head()), head);
    let heights = LINES.map(|_| Constraint::Max(2));
    for (at, area) in Layout::vertical(heights).split(body).iter().enumerate() {
        let [name, bars] =
            Layout::horizontal([Constraint::Length(30), Constraint::Min(10)]).areas(*area);
        let values = timeline.line(at, usize::from(bars.width));
        let most = values.iter().copied().max().unwrap_or(0);
        let now = values.last().copied().unwrap_or(0);
        let words = format!("{:<14}{now:>6}% {most:>6}%", LINES[at]);
        frame.render_widget(Line::from(words), name);
        let padded: Vec<u64> =
            std::iter::repeat_n(0, usize::from(bars.width).saturating_sub(values.len()))
                .chain(values)
                .collect();
        let style = if at < 5 { theme.harm() } else { theme.quiet() };
        frame.render_widget(
            Sparkline::default()
                .data(padded)
                .max(most.max(1))
                .style(style),
            bars,
        );
    }
}

/// What the keys do.
pub fn help(frame: &mut Frame, area: Rect, theme: Theme) {
    const HELP: [(&str, &str); 17] = [
        ("Up Down PgUp PgDn", "select a row"),
        (
            "Enter, Right",
            "open it: a process's threads, a thread's waits and calls",
        ),
        ("Esc, Left", "go back; at the top, turn the filter off"),
        ("p t u", "by process, thread, unit or container"),
        ("c l k", "by call, label, class of the wait"),
        ("r o", "by resource, owner"),
        ("g", "go to the thread that holds what the row waits for"),
        ("s", "sort by the next column"),
        (
            "/",
            "filter: class == disk && longest > 10ms, comm == nginx*",
        ),
        ("i", "also show waits for work (events, timers, requests)"),
        ("n", "numbers of processes inside or outside of containers"),
        ("Space", "pause the screen; measuring goes on"),
        ("T", "time line of the last minutes"),
        ("w", "write what is on the screen to a JSON file"),
        ("R", "record the selected process for 10 s (debox record)"),
        ("q", "quit"),
        ("any key", "leave this page"),
    ];
    let mut lines = vec![
        Line::from(
            "WAIT: time of waiting, without waits for work. 100% is one thread's whole time.",
        ),
        Line::from(
            "WHY: the longest wait. HELD BY: its owner, or else what it is for, or who ended it.",
        ),
        Line::from(
            "Rows that are held up (locks, disks, memory, CPUs, blocked event loops) come first.",
        ),
        Line::from(""),
    ];
    lines.extend(HELP.map(|(key, does)| {
        Line::from(vec![
            Span::styled(format!("{key:<19}"), theme.harm()),
            Span::from(does),
        ])
    }));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}
