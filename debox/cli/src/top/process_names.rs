// SPDX-License-Identifier: MIT OR Apache-2.0
//! What processes are called, where they belong, and which numbers they have inside of their containers.

use std::fs;
use std::rc::Rc;

use debox::live::Look;
use debox::targets::{inner_pid, place_of};
use foldhash::HashMap;
use kit_console::printable;

/// The most processes whose names are remembered.
const MOST: usize = 50_000;

/// Titles that are read again in one look.
const TITLES: usize = 64;

/// The longest title that is kept.
const TITLE_MAX: usize = 80;

/// Numbers of a process and a thread in their own PID namespace, where they have others there.
pub type Inside = Option<(u32, u32)>;

/// What is remembered of processes.
#[derive(Default)]
pub struct ProcessNames {
    names: HashMap<u32, Rc<str>>,
    /// Processes whose titles are read next.
    queue: Vec<(u32, Rc<str>)>,
    places: HashMap<u32, Rc<str>>,
    inside: HashMap<u32, Option<u32>>,
    /// Whether the numbers inside of containers are asked for.
    pub shows_inside: bool,
}

impl ProcessNames {
    /// Takes in the names that a look shows.
    pub fn take_in(&mut self, look: &Look) {
        if self.names.len() > MOST || self.inside.len() > MOST {
            let shows_inside = self.shows_inside;
            *self = ProcessNames {
                shows_inside,
                ..ProcessNames::default()
            };
        }
        for thread in &look.threads {
            if thread.has_ended {
                self.inside.remove(&thread.tid);
            }
            if thread.has_ended && thread.tid == thread.pid {
                self.names.remove(&thread.pid);
                self.places.remove(&thread.pid);
            }
        }
        for thread in look.threads.iter().filter(|thread| !thread.has_ended) {
            if thread.tid == thread.pid && !self.names.contains_key(&thread.pid) {
                let name = name_of(thread.pid, &thread.comm);
                self.names.insert(thread.pid, name);
            }
        }
        if self.queue.is_empty() {
            self.queue = look
                .threads
                .iter()
                .filter(|thread| thread.tid == thread.pid && !thread.has_ended)
                .map(|thread| (thread.pid, Rc::clone(&thread.comm)))
                .collect();
        }
        let rest = self.queue.len().saturating_sub(TITLES);
        for (pid, comm) in self.queue.split_off(rest) {
            self.names.insert(pid, name_of(pid, &comm));
        }
    }

    /// The name, or the title that the process has given itself.
    pub fn process(&mut self, pid: u32, comm: &str) -> Rc<str> {
        let name = self.names.entry(pid).or_insert_with(|| name_of(pid, comm));
        Rc::clone(name)
    }

    /// The container or unit; `-`: none.
    pub fn place(&mut self, pid: u32) -> Rc<str> {
        let place = self
            .places
            .entry(pid)
            .or_insert_with(|| match place_of(pid) {
                Some(place) => printable(&place).into(),
                None => "-".into(),
            });
        Rc::clone(place)
    }

    pub fn inside(&mut self, pid: u32, tid: u32) -> Inside {
        if !self.shows_inside {
            return None;
        }
        let mut inner = |id: u32| *self.inside.entry(id).or_insert_with(|| inner_pid(id));
        Some((inner(pid)?, inner(tid)?))
    }
}

fn name_of(pid: u32, comm: &str) -> Rc<str> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    match title(&line, comm) {
        Some(title) => printable(&title).into(),
        None => printable(comm).into(),
    }
}

/// The title that a program has written over its command line: `postgres: walwriter`, `nginx: worker process`.
fn title(line: &[u8], comm: &str) -> Option<String> {
    let end = line
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(line.len());
    let text = String::from_utf8_lossy(&line[..end]);
    let text = text.trim_end();
    let rest = text.strip_prefix(comm)?;
    rest.starts_with(": ")
        .then(|| text.chars().take(TITLE_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_titles_take_the_place_of_names() {
        let of = |line: &str, comm: &str| title(line.as_bytes(), comm);
        let walwriter = "postgres: walwriter ";
        assert_eq!(
            of(walwriter, "postgres").as_deref(),
            Some("postgres: walwriter")
        );
        assert_eq!(
            of("nginx: worker process\0\0", "nginx").as_deref(),
            Some("nginx: worker process")
        );
        assert_eq!(of("/usr/bin/node\0service.js\0", "node"), None);
        assert_eq!(of("redis-server *:6379", "redis-server"), None);
        assert_eq!(of("", "kworker"), None);
    }
}
