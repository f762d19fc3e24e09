//! The processes' names from their command lines: the words with which a program was started, and the title that
//! it has written over them since.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::report::Process;
use crate::tables::{self, types};
use crate::targets::{inner_pid, place_of};

/// Limits on what is kept, so that a session's memory is bounded.
const MAX_PROCESSES: usize = 20_000;
const MAX_BYTES: usize = 4096;
const MAX_WORDS: usize = 256;

/// How often titles of living processes are read, and of how many processes at once.
const INTERVAL: Duration = Duration::from_secs(1);
const AT_ONCE: usize = 64;

/// Replaces words that are truncated.
const CUT: &str = "…";

/// A process that has not ended yet.
#[derive(Clone, Copy)]
struct Living {
    /// The index of its last program in the list.
    at: usize,
    /// Whether it still runs the program that it was forked from.
    is_copy: bool,
    /// It was not there when it was last looked at: the probes' word of its end may still be under way.
    is_gone: bool,
}

impl Living {
    fn new(at: usize, is_copy: bool) -> Living {
        Living {
            at,
            is_copy,
            is_gone: false,
        }
    }
}

/// The titles of a session's processes.
#[derive(Default)]
pub(crate) struct Titles {
    /// In the order in which programs began.
    processes: Vec<Process>,
    /// By process id, for processes that may still exist.
    living: HashMap<u32, Living>,
    /// How many programs there was no room for.
    left_out: u64,
    /// Processes without room that still run the program that they were forked from: their next program is not
    /// counted again.
    copies_left_out: HashSet<u32>,
    /// The processes to be read next.
    queue: Vec<u32>,
    looked: Option<Instant>,
}

impl Titles {
    /// Takes a title that the probes have sent.
    pub fn take(&mut self, seen: &types::title_seen) {
        let pid = seen.tgid;
        let memory: Vec<u8> = seen.words.iter().map(|byte| *byte as u8).collect();
        let bytes = (seen.bytes as usize).min(memory.len());
        let line = || Line::of(&memory[..bytes], seen.words_bytes as usize);
        match seen.reason {
            tables::TITLE_OF_PARENT => {
                let parent = self.living.get(&seen.parent);
                let named = parent.map(|parent| self.processes[parent.at].clone());
                let named = named.unwrap_or_default();
                // A child belongs where its parent does, until it is moved.
                let child = Process {
                    pid,
                    parent: Some(seen.parent),
                    from_ns: seen.at_ns,
                    inner_pid: named.inner_pid.and_then(|_| inner_pid(pid)),
                    ..named
                };
                self.begin(child, true);
            }
            tables::TITLE_OF_PROGRAM => {
                let before = self.living.remove(&pid);
                let known = before.map(|before| &self.processes[before.at]);
                // Those of a process that has ended meanwhile cannot be read.
                let process = Process {
                    pid,
                    parent: known.and_then(|known| known.parent),
                    from_ns: seen.at_ns,
                    command: line().arguments(),
                    title: None,
                    place: place_of(pid).or_else(|| known?.place.clone()),
                    inner_pid: inner_pid(pid).or(known.and_then(|known| known.inner_pid)),
                };
                match before {
                    // It has only run the program that it was forked from.
                    Some(Living {
                        at, is_copy: true, ..
                    }) => {
                        let from_ns = self.processes[at].from_ns;
                        self.processes[at] = Process { from_ns, ..process };
                        self.living.insert(pid, Living::new(at, false));
                    }
                    _ => self.begin(process, false),
                }
            }
            tables::TITLE_AT_END => {
                self.rename(pid, &line());
                self.living.remove(&pid);
                self.copies_left_out.remove(&pid);
            }
            _ => {}
        }
    }

    /// Adds a process that is already running.
    pub fn add_running(&mut self, pid: u32, now_ns: u64) {
        if self.living.contains_key(&pid) {
            return;
        }
        let Some(line) = Line::now(pid) else { return };
        let stat = procfs::process::Process::new(pid as i32).and_then(|process| process.stat());
        let process = Process {
            pid,
            parent: stat.ok().map(|stat| stat.ppid as u32),
            from_ns: now_ns,
            command: line.arguments(),
            title: None,
            place: place_of(pid),
            inner_pid: inner_pid(pid),
        };
        self.begin(process, false);
    }

    fn begin(&mut self, process: Process, is_copy: bool) {
        if self.processes.len() < MAX_PROCESSES {
            let at = self.processes.len();
            self.living.insert(process.pid, Living::new(at, is_copy));
            self.processes.push(process);
            return;
        }
        let is_counted = self.copies_left_out.remove(&process.pid) && !is_copy;
        self.left_out += u64::from(!is_counted);
        if is_copy && self.copies_left_out.len() < MAX_PROCESSES {
            self.copies_left_out.insert(process.pid);
        }
    }

    fn rename(&mut self, pid: u32, line: &Line) {
        let Some(living) = self.living.get(&pid) else {
            return;
        };
        let process = &mut self.processes[living.at];
        let text = line.text();
        if !text.is_empty() && text != process.command.join(" ") {
            process.title = Some(text);
        }
    }

    /// Checks from time to time whether living processes have new titles.
    pub fn look(&mut self) {
        if self.looked.is_some_and(|last| last.elapsed() < INTERVAL) {
            return;
        }
        self.looked = Some(Instant::now());
        if self.queue.is_empty() {
            self.queue = self.living.keys().copied().collect();
        }
        let rest = self.queue.len().saturating_sub(AT_ONCE);
        for pid in self.queue.split_off(rest) {
            self.look_at(pid);
        }
    }

    /// Reads the titles of all living processes, at the end.
    pub fn look_at_all(&mut self) {
        let living: Vec<u32> = self.living.keys().copied().collect();
        for pid in living {
            self.look_at(pid);
        }
    }

    fn look_at(&mut self, pid: u32) {
        match Line::now(pid) {
            Some(line) => self.rename(pid, &line),
            None => match self.living.get_mut(&pid) {
                Some(living) if !living.is_gone => living.is_gone = true,
                _ => drop(self.living.remove(&pid)),
            },
        }
    }

    /// All processes of the session, with an entry for each program that a process ran.
    pub fn list(&self) -> Vec<Process> {
        self.processes.clone()
    }

    /// How many programs are not in the list, because it is full.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The same as a sentence.
    pub fn unseen(&self) -> Option<String> {
        let programs = match self.left_out {
            0 => return None,
            1 => "line of 1 program is".to_string(),
            many => format!("lines of {many} programs are"),
        };
        Some(format!(
            "The command {programs} not known: there is room for those of {MAX_PROCESSES}."
        ))
    }
}

/// A command line as stored in a process's memory.
struct Line {
    words: Vec<String>,
    is_cut: bool,
}

impl Line {
    /// Parses `memory`, which begins with the words, `words_bytes` long when the program was started. A longer
    /// title extends to its first zero byte; as in the kernel, it is recognised by the last byte of the words
    /// not being zero any more.
    fn of(memory: &[u8], words_bytes: usize) -> Line {
        let whole = memory.get(..words_bytes);
        match whole {
            Some(words) if words.last().is_none_or(|last| *last == 0) => Line::split(words, false),
            Some(_) => {
                let end = memory.iter().position(|byte| *byte == 0);
                Line::split(&memory[..end.unwrap_or(memory.len())], end.is_none())
            }
            None => Line::split(memory, true),
        }
    }

    /// The current command line of a process; `None` if the process is gone or has none.
    fn now(pid: u32) -> Option<Line> {
        use std::io::Read;

        let file = std::fs::File::open(format!("/proc/{pid}/cmdline")).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES as u64 + 1)
            .read_to_end(&mut bytes)
            .ok()?;
        let is_cut = bytes.len() > MAX_BYTES;
        bytes.truncate(MAX_BYTES);
        (!bytes.is_empty()).then(|| Line::split(&bytes, is_cut))
    }

    fn split(bytes: &[u8], is_cut: bool) -> Line {
        let end = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        let words = bytes[..end].split(|byte| *byte == 0);
        let words = words.map(|word| String::from_utf8_lossy(word).trim_end().to_string());
        let mut words: Vec<String> = words.take(MAX_WORDS + 1).collect();
        let is_cut = is_cut || words.len() > MAX_WORDS;
        words.truncate(MAX_WORDS);
        if end == 0 {
            words.clear();
        }
        Line { words, is_cut }
    }

    fn arguments(&self) -> Vec<String> {
        let cut = self.is_cut.then(|| CUT.to_string());
        self.words.iter().cloned().chain(cut).collect()
    }

    fn text(&self) -> String {
        self.arguments().join(" ").trim_end().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: u32, reason: u32, parent: u32, memory: &[u8], words: usize) -> types::title_seen {
        let mut seen = types::title_seen {
            tgid: pid,
            reason,
            parent,
            bytes: memory.len() as u32,
            words_bytes: words as u32,
            ..types::title_seen::default()
        };
        for (to, byte) in seen.words.iter_mut().zip(memory) {
            *to = *byte as i8;
        }
        seen
    }

    fn names(titles: &Titles) -> Vec<(u32, String, Option<String>)> {
        let list = titles.list().into_iter();
        list.map(|process| (process.pid, process.command.join(" "), process.title))
            .collect()
    }

    /// A process may end, and be looked for, before its last title has been taken.
    #[test]
    fn the_last_title_of_a_process_that_is_gone_is_taken() {
        let gone = u32::MAX;
        let mut titles = Titles::default();
        titles.take(&seen(gone, tables::TITLE_OF_PROGRAM, 0, b"server\0", 7));
        titles.look();
        let ended = b"worker\0";
        titles.take(&seen(gone, tables::TITLE_AT_END, 0, ended, 7));
        let named = (gone, "server".to_string(), Some("worker".to_string()));
        assert_eq!(names(&titles), [named]);
    }

    /// If no word of its end comes, nothing of it is kept.
    #[test]
    fn a_process_that_stays_away_is_forgotten() {
        let mut titles = Titles::default();
        titles.take(&seen(u32::MAX, tables::TITLE_OF_PROGRAM, 0, b"server\0", 7));
        titles.look_at(u32::MAX);
        assert_eq!(titles.living.len(), 1);
        titles.look_at(u32::MAX);
        assert!(titles.living.is_empty());
    }

    #[test]
    fn a_process_is_called_by_its_last_program_and_by_the_title_that_it_took() {
        let mut titles = Titles::default();
        titles.take(&seen(
            1,
            tables::TITLE_OF_PROGRAM,
            0,
            b"sh\0-c\0git log\0HOME=/",
            14,
        ));
        titles.take(&seen(2, tables::TITLE_OF_PARENT, 1, b"", 0));
        titles.take(&seen(
            2,
            tables::TITLE_OF_PROGRAM,
            0,
            b"git\0log\0HOME=/",
            8,
        ));
        titles.take(&seen(3, tables::TITLE_OF_PARENT, 1, b"", 0));
        let ended = b"worker: of a long title, over the environment\0=/root";
        titles.take(&seen(3, tables::TITLE_AT_END, 0, ended, 14));
        assert_eq!(
            names(&titles),
            [
                (1, "sh -c git log".to_string(), None),
                (2, "git log".to_string(), None),
                (
                    3,
                    "sh -c git log".to_string(),
                    Some("worker: of a long title, over the environment".to_string())
                ),
            ]
        );
        assert_eq!(titles.list()[1].parent, Some(1));
    }

    #[test]
    fn a_second_program_is_an_entry_of_its_own() {
        let mut titles = Titles::default();
        titles.take(&seen(1, tables::TITLE_OF_PROGRAM, 0, b"sh\0run\0", 7));
        titles.take(&seen(1, tables::TITLE_OF_PROGRAM, 0, b"server\0", 7));
        let names: Vec<String> = names(&titles)
            .into_iter()
            .map(|(_, name, _)| name)
            .collect();
        assert_eq!(names, ["sh run", "server"]);
    }

    #[test]
    fn what_does_not_fit_is_marked() {
        let memory = vec![b'a'; 512];
        assert!(Line::of(&memory, 9000).text().ends_with(CUT));
        assert_eq!(Line::of(b"", 12).arguments(), [CUT]);
        assert_eq!(Line::of(b"", 0).arguments(), [""; 0]);
        assert_eq!(Line::of(b"a\0\0b\0\0\0", 7).arguments(), ["a", "", "b"]);
    }

    #[test]
    fn programs_without_room_are_counted_once() {
        let mut titles = Titles::default();
        for pid in 1..=MAX_PROCESSES as u32 {
            titles.take(&seen(pid, tables::TITLE_OF_PARENT, 0, b"", 0));
        }
        assert_eq!((titles.left_out(), titles.unseen()), (0, None));
        // Forked, and then a program of its own: one entry, as it would be in the list.
        let beyond = MAX_PROCESSES as u32 + 1;
        titles.take(&seen(beyond, tables::TITLE_OF_PARENT, 1, b"", 0));
        titles.take(&seen(beyond, tables::TITLE_OF_PROGRAM, 0, b"ls\0", 3));
        assert_eq!(titles.left_out(), 1);
        let says = titles.unseen().expect("a sentence");
        assert!(says.contains("line of 1 program is not known"), "{says}");
        // Its second program is a second one. So is another process with the same number.
        titles.take(&seen(beyond, tables::TITLE_OF_PROGRAM, 0, b"cat\0", 4));
        titles.take(&seen(beyond, tables::TITLE_AT_END, 0, b"cat\0", 4));
        titles.take(&seen(beyond, tables::TITLE_OF_PARENT, 1, b"", 0));
        titles.take(&seen(beyond, tables::TITLE_AT_END, 0, b"", 0));
        titles.take(&seen(beyond, tables::TITLE_OF_PROGRAM, 0, b"ls\0", 3));
        assert_eq!(titles.left_out(), 4);
        assert_eq!(titles.list().len(), MAX_PROCESSES);
        // The first ones still have their room.
        titles.take(&seen(7, tables::TITLE_OF_PROGRAM, 0, b"top\0", 4));
        assert_eq!(titles.left_out(), 4);
    }

    #[test]
    fn running_processes_are_asked() {
        let mut titles = Titles::default();
        let pid = std::process::id();
        titles.add_running(pid, 7);
        titles.look_at_all();
        let known = titles.list();
        assert_eq!(known[0].pid, pid);
        assert!(known[0].parent.is_some());
        let program = std::env::args().next().expect("a name");
        assert_eq!(known[0].command.first(), Some(&program));
        assert_eq!(known[0].title, None);
    }
}
