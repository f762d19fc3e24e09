// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is on the screen, and what keys change.

use std::rc::Rc;
use std::time::{Duration, Instant};

use debox::predicate::Predicate;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::rows::{Choice, Row};
use super::text::by_name;
use crate::options::{By, SortBy};

/// The longest filter that can be typed.
const FILTER_MAX: usize = 400;

/// Kinds of what a row waits for that are threads: a lock's owner, and the process that keeps a disk busy.
const OWNERS: [&str; 2] = ["owner", "user"];

/// Which page is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    Rows,
    Thread,
    Timeline,
    Help,
}

/// What a key asks of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Nothing,
    Quit,
    Save,
    /// Shows a thread, by its number.
    OpenThread(u32),
    CloseThread,
    /// Records the process of the selected row.
    Record(u32),
}

/// How long a table is read before the next key, at most.
const READING: Duration = Duration::from_secs(10);

/// The state of the screen.
pub struct View {
    pub choice: Choice,
    pub page: Page,
    /// The key of the selected row: rows move.
    pub selected: Option<Rc<str>>,
    /// Whether it was chosen with a key; otherwise it was the first row when it was shown.
    is_chosen: bool,
    /// Until when what the last key brought counts as being read.
    reading_until: Option<Instant>,
    /// The selected line of a thread's page.
    pub line: usize,
    pub is_paused: bool,
    /// The filter that is being typed.
    pub typed: Option<String>,
    pub message: Option<String>,
    /// Whether numbers are those inside of containers.
    pub shows_inside: bool,
}

impl View {
    pub fn new(choice: Choice) -> View {
        View {
            choice,
            page: Page::Rows,
            selected: None,
            is_chosen: false,
            reading_until: None,
            line: 0,
            is_paused: false,
            typed: None,
            message: None,
            shows_inside: false,
        }
    }

    /// The index of the selected row; 0 if it is gone.
    pub fn selected_at(&self, rows: &[Row]) -> usize {
        let selected = self.selected.as_ref();
        selected
            .and_then(|key| rows.iter().position(|row| row.key == *key))
            .unwrap_or(0)
    }

    /// Takes new rows. While they are read, the first one stays selected, wherever it goes: what Enter opens must not
    /// change in the moment before it is pressed.
    pub fn settle(&mut self, rows: &[Row], now: Instant) {
        let is_reading = self.reading_until.is_some_and(|until| now < until);
        if self.is_chosen && self.selected.is_some() {
            return;
        }
        let is_there = |key: &Rc<str>| rows.iter().any(|row| row.key == *key);
        self.selected.take_if(|key| !is_reading || !is_there(key));
        if is_reading && self.selected.is_none() {
            self.selected = rows.first().map(|row| Rc::clone(&row.key));
            self.is_chosen = false;
        }
    }

    pub fn press(&mut self, key: KeyEvent, rows: &[Row]) -> Action {
        self.reading_until = Some(Instant::now() + READING);
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Action::Quit;
        }
        if self.typed.is_some() {
            self.type_filter(key.code);
            return Action::Nothing;
        }
        self.message = None;
        match (self.page, key.code) {
            (_, KeyCode::Char('q')) => return Action::Quit,
            (_, KeyCode::Char(' ')) => self.is_paused = !self.is_paused,
            (_, KeyCode::Char('w')) => return Action::Save,
            (Page::Help | Page::Timeline, _) => self.page = Page::Rows,
            (_, KeyCode::Char('?' | 'h')) => self.page = Page::Help,
            (Page::Rows, KeyCode::Char('T')) => self.page = Page::Timeline,
            (Page::Thread, code) => return self.press_on_thread(code),
            (Page::Rows, code) => return self.press_on_rows(code, rows),
        }
        Action::Nothing
    }

    fn press_on_thread(&mut self, code: KeyCode) -> Action {
        match code {
            KeyCode::Up => self.line = self.line.saturating_sub(1),
            KeyCode::Down => self.line += 1,
            KeyCode::PageUp => self.line = self.line.saturating_sub(10),
            KeyCode::PageDown => self.line += 10,
            KeyCode::Home => self.line = 0,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => {
                self.page = Page::Rows;
                return Action::CloseThread;
            }
            _ => {}
        }
        Action::Nothing
    }

    fn press_on_rows(&mut self, code: KeyCode, rows: &[Row]) -> Action {
        let at = self.selected_at(rows);
        match code {
            KeyCode::Up => self.select(rows, at.saturating_sub(1)),
            KeyCode::Down => self.select(rows, at + 1),
            KeyCode::PageUp => self.select(rows, at.saturating_sub(10)),
            KeyCode::PageDown => self.select(rows, at + 10),
            KeyCode::Home => self.selected = None,
            KeyCode::End => self.select(rows, rows.len()),
            KeyCode::Enter | KeyCode::Right => return self.open(rows.get(at)),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.go_back(),
            KeyCode::Char('g') => return self.go_to_holder(rows.get(at)),
            KeyCode::Char('R') => {
                let pid = rows.get(at).and_then(|row| row.pid);
                self.message = Some("select a process or a thread to record it".to_string());
                return pid.map_or(Action::Nothing, Action::Record);
            }
            KeyCode::Char('/') => {
                let filter = self.choice.filter.as_ref();
                self.typed = Some(filter.map(Predicate::to_string).unwrap_or_default());
            }
            KeyCode::Char('i') => self.choice.with_idle = !self.choice.with_idle,
            KeyCode::Char('n') => {
                self.shows_inside = !self.shows_inside;
                let how = if self.shows_inside {
                    "inside of"
                } else {
                    "outside of"
                };
                self.message = Some(format!("from the next look on: numbers {how} containers"));
            }
            KeyCode::Char('s') => {
                self.choice.sort = next_sort(self.choice.sort);
                self.selected.take_if(|_| !self.is_chosen);
            }
            KeyCode::Char(letter) => {
                if let Some(by) = by_letter(letter) {
                    self.choice.by = by;
                    self.selected = None;
                }
            }
            _ => {}
        }
        Action::Nothing
    }

    fn select(&mut self, rows: &[Row], at: usize) {
        let row = rows.get(at).or(rows.last());
        self.selected = row.map(|row| Rc::clone(&row.key));
        self.is_chosen = true;
    }

    /// Goes from a group to what is in it: to a process's threads, from a thread to its page, otherwise to processes.
    fn open(&mut self, row: Option<&Row>) -> Action {
        let Some(row) = row else {
            return Action::Nothing;
        };
        if let Some(tid) = row.tid {
            return Action::OpenThread(tid);
        }
        self.choice
            .within
            .push((self.choice.by, Rc::clone(&row.key)));
        self.choice.by = match self.choice.by {
            By::Process => By::Thread,
            _ => By::Process,
        };
        self.selected = None;
        Action::Nothing
    }

    fn go_back(&mut self) {
        if let Some((by, key)) = self.choice.within.pop() {
            self.choice.by = by;
            self.selected = Some(key);
            self.is_chosen = true;
        } else if self.choice.filter.take().is_some() {
            self.message = Some("the filter is off".to_string());
        }
    }

    /// The thread that holds what the selected row waits for: the number after the name.
    fn go_to_holder(&mut self, row: Option<&Row>) -> Action {
        let holder = row.and_then(|row| {
            row.held_by
                .iter()
                .find(|share| OWNERS.contains(&&*share.kind))
        });
        let tid = holder.and_then(|share| share.what.rsplit_once('/')?.1.parse().ok());
        if tid.is_none() {
            self.message = Some("no owner is known of what this row waits for".to_string());
        }
        tid.map_or(Action::Nothing, Action::OpenThread)
    }

    fn type_filter(&mut self, code: KeyCode) {
        let Some(text) = &mut self.typed else { return };
        match code {
            KeyCode::Esc => self.typed = None,
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char(letter) if text.len() < FILTER_MAX => text.push(letter),
            KeyCode::Enter if text.trim().is_empty() => {
                (self.choice.filter, self.typed) = (None, None);
                self.message = None;
            }
            KeyCode::Enter => match Predicate::parse(text) {
                Ok(filter) => {
                    (self.choice.filter, self.typed) = (Some(filter), None);
                    self.message = None;
                }
                Err(error) => {
                    let error = error.to_string();
                    self.message = Some(error.lines().next().unwrap_or("not a filter").to_string());
                }
            },
            _ => {}
        }
    }

    /// Where one is, in words.
    pub fn place(&self) -> String {
        let mut text = format!("by {}", by_name(self.choice.by));
        for (by, key) in &self.choice.within {
            text.push_str(&format!(", in {} {key}", by_name(*by)));
        }
        if let Some(filter) = &self.choice.filter {
            text.push_str(&format!(", where {filter}"));
        }
        if self.choice.with_idle {
            text.push_str(", with waits for work");
        }
        text
    }
}

fn by_letter(letter: char) -> Option<By> {
    Some(match letter {
        'p' => By::Process,
        't' => By::Thread,
        'u' => By::Unit,
        'c' => By::Call,
        'l' => By::Label,
        'k' => By::Class,
        'r' => By::Resource,
        'o' => By::Owner,
        _ => return None,
    })
}

fn next_sort(sort: SortBy) -> SortBy {
    match sort {
        SortBy::Wait => SortBy::Cpu,
        SortBy::Cpu => SortBy::Longest,
        SortBy::Longest => SortBy::Waits,
        SortBy::Waits => SortBy::Name,
        SortBy::Name => SortBy::Wait,
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
