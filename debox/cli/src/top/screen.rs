// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal: keys in, pages out.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use debox::live::Live;
use kit_files::output;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::DefaultTerminal;

use super::draw::{self, Theme};
use super::facts::{Facts, Known};
use super::recordings::Recordings;
use super::rows::{rows, Choice, Row};
use super::thread_page::ThreadPage;
use super::timeline::Timeline;
use super::view::{Action, Page, View};
use super::{draw_thread, json};
use crate::attach::is_stopped;
use crate::following::Following;
use crate::options::Top;

/// How long keys are waited for before events are received.
const KEYS: Duration = Duration::from_millis(50);

/// What is shown, and where from.
struct Screen<'a> {
    live: &'a mut Live,
    following: &'a mut Following,
    interval: Duration,
    theme: Theme,
    view: View,
    known: Known,
    timeline: Timeline,
    facts: Facts,
    rows: Vec<Row>,
    thread: Option<ThreadPage>,
    recordings: Recordings,
}

/// Shows the screen until it is left.
pub fn run(
    live: &mut Live,
    following: &mut Following,
    arguments: &Top,
    choice: Choice,
) -> Result<()> {
    let mut terminal =
        ratatui::try_init().context("cannot use the terminal: --batch prints tables")?;
    let mut view = View::new(choice);
    view.shows_inside = arguments.inside;
    let mut screen = Screen {
        live,
        following,
        interval: arguments.interval,
        theme: Theme {
            has_colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        },
        view,
        known: Known::default(),
        timeline: Timeline::default(),
        facts: Facts::default(),
        rows: Vec::new(),
        thread: None,
        recordings: Recordings::default(),
    };
    let done = screen.show(&mut terminal);
    ratatui::restore();
    done
}

impl Screen<'_> {
    fn show(&mut self, terminal: &mut DefaultTerminal) -> Result<()> {
        let mut next = Instant::now() + self.interval.min(Duration::from_millis(500));
        self.draw(terminal)?;
        while !is_stopped() {
            let left = next.saturating_duration_since(Instant::now());
            let mut changed = false;
            if event::poll(left.min(KEYS)).context("cannot read the terminal")? {
                match event::read().context("cannot read the terminal")? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        let action = self.view.press(key, &self.rows);
                        if !self.act(action, terminal)? {
                            return Ok(());
                        }
                        self.take_rows();
                        changed = true;
                    }
                    Event::Resize(..) => changed = true,
                    _ => {}
                }
            }
            if let Some(message) = self.recordings.ended() {
                self.view.message = Some(message);
                changed = true;
            }
            self.following.wait(self.live, Duration::ZERO)?;
            self.live.poll(Duration::ZERO)?;
            if let Some(thread) = &mut self.thread {
                thread.poll(self.view.is_paused)?;
            }
            if Instant::now() >= next {
                next = Instant::now() + self.interval;
                // The tables are emptied even if nothing is to be shown.
                self.known.names.shows_inside = self.view.shows_inside;
                let facts = self.known.facts(self.live.look()?);
                self.timeline.add(&facts);
                if !self.view.is_paused {
                    self.facts = facts;
                    self.take_rows();
                }
                changed = true;
            }
            if changed {
                self.draw(terminal)?;
            }
        }
        Ok(())
    }

    fn take_rows(&mut self) {
        self.rows = rows(&self.facts, &self.view.choice);
        self.view.settle(&self.rows, Instant::now());
    }

    /// Does what a key asks for. Returns whether to go on.
    fn act(&mut self, action: Action, terminal: &mut DefaultTerminal) -> Result<bool> {
        match action {
            Action::Nothing => {}
            Action::Quit => return Ok(false),
            Action::CloseThread => self.thread = None,
            Action::Save => {
                let saved = self.save();
                self.view.message = Some(match saved {
                    Ok(name) => format!("written to {name}"),
                    Err(error) => format!("not written: {error:#}"),
                });
            }
            Action::Record(pid) => {
                self.view.message = Some(self.recordings.start(pid));
            }
            Action::OpenThread(tid) => {
                self.view.message = Some("its calls are shown in a moment".to_string());
                self.draw(terminal)?;
                self.view.message = None;
                self.open_thread(tid);
            }
        }
        Ok(true)
    }

    fn open_thread(&mut self, tid: u32) {
        let found = self
            .facts
            .threads
            .iter()
            .find(|fact| fact.thread.tid == tid);
        let Some(fact) = found else {
            self.view.message = Some(format!("thread {tid} is not monitored, or has ended"));
            return;
        };
        let thread = &fact.thread;
        let title = format!(
            "thread {tid} {} of process {} {}, {}",
            kit_console::printable(&thread.comm),
            thread.pid,
            fact.process,
            fact.place
        );
        self.thread = Some(ThreadPage::open(thread.pid, tid, title));
        (self.view.page, self.view.line) = (Page::Thread, 0);
    }

    fn draw(&mut self, terminal: &mut DefaultTerminal) -> Result<()> {
        let (facts, theme) = (&self.facts, self.theme);
        let (view, rows) = (&mut self.view, &self.rows);
        let title = match (view.page, &self.thread) {
            (Page::Thread, Some(thread)) => thread.title.clone(),
            (Page::Help, _) => "keys".to_string(),
            _ => view.place(),
        };
        let drawn = terminal.draw(|frame| {
            let body = draw::frame(frame, facts, view, &title, theme);
            match (view.page, &self.thread) {
                (Page::Thread, Some(thread)) => {
                    draw_thread::thread(frame, body, facts, thread, view, theme)
                }
                (Page::Timeline, _) => {
                    draw::timeline(
                        frame,
                        body,
                        &self.timeline,
                        self.interval.as_secs_f64(),
                        theme,
                    );
                }
                (Page::Help, _) => draw::help(frame, body, theme),
                _ => draw::rows(frame, body, facts, rows, view, theme),
            }
        });
        drawn.map(drop).context("cannot write to the terminal")
    }

    /// Writes the rows to a new file in the working directory, and returns its name.
    fn save(&self) -> Result<String> {
        let choice = &self.view.choice;
        let filter = choice.filter.as_ref().map(ToString::to_string);
        let object = json::of(&self.facts, &self.rows, choice.by, filter, &choice.within);
        let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
        let name = format!("debox-top-{now}.json");
        let text = serde_json::to_string_pretty(&object)? + "\n";
        output::replace(Path::new(&name), text.as_bytes())?;
        Ok(name)
    }
}
