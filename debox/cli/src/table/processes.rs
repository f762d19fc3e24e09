//! Distinguishes processes of the same name: by their command lines, and by titles that they have set.

use std::collections::{BTreeMap, BTreeSet};

use debox::report::Process;

use super::grid::Cell;
use super::TableOptions;

/// Long enough to distinguish most command lines.
const SHOWN: usize = 60;

/// Command lines by process number.
pub struct CommandLines(BTreeMap<u32, String>);

impl CommandLines {
    /// Command lines of processes that share a name but were started differently, and of processes that have set a
    /// title. `threads`: process numbers and names.
    pub fn of<'a>(
        processes: &[Process],
        threads: impl Iterator<Item = (u32, &'a str)>,
    ) -> CommandLines {
        // A process has an entry for each program that it executed; the last one is current.
        let last: BTreeMap<u32, &Process> = processes
            .iter()
            .map(|process| (process.pid, process))
            .collect();
        let mut by_name: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for (pid, name) in threads {
            by_name.entry(name).or_default().insert(pid);
        }
        let mut lines = BTreeMap::new();
        for pids in by_name.values() {
            let known: Vec<&&Process> = pids.iter().filter_map(|pid| last.get(pid)).collect();
            let different: BTreeSet<String> = known.iter().map(|process| process.name()).collect();
            for process in known {
                if different.len() > 1 || process.title.is_some() {
                    lines.insert(process.pid, process.name());
                }
            }
        }
        CommandLines(lines)
    }

    /// A cell for a column that is shown if any process needs it.
    pub fn cell(&self, pid: Option<u32>, options: &TableOptions) -> Cell {
        let line = pid.and_then(|pid| self.0.get(&pid));
        line.map_or_else(Cell::blank, |line| Cell::text(shortened(line, options)))
    }
}

/// Shortens a command line to fit into a table.
pub fn shortened(line: &str, options: &TableOptions) -> String {
    if options.all || line.chars().count() <= SHOWN {
        return line.to_string();
    }
    line.chars().take(SHOWN - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, command: &str, title: Option<&str>) -> Process {
        Process {
            pid,
            command: vec![command.to_string()],
            title: title.map(String::from),
            ..Process::default()
        }
    }

    #[test]
    fn only_what_a_name_does_not_tell_is_shown() {
        let processes = [
            process(1, "git fetch", None),
            process(2, "git log", None),
            process(3, "make", None),
            process(4, "sh", None),
            process(4, "server", Some("server: idle")),
            process(5, "same", None),
            process(6, "same", None),
        ];
        let threads = [
            (1, "git"),
            (2, "git"),
            (3, "make"),
            (4, "server"),
            (5, "x"),
            (6, "x"),
        ];
        let lines = CommandLines::of(&processes, threads.into_iter());
        let expected = [(1, "git fetch"), (2, "git log"), (4, "server: idle")];
        assert_eq!(
            lines.0,
            expected.map(|(pid, line)| (pid, line.to_string())).into()
        );
    }

    #[test]
    fn long_lines_are_cut_unless_all_is_asked_for() {
        let options = TableOptions {
            color: false,
            width: 80,
            all: false,
        };
        let line = "x".repeat(100);
        assert_eq!(shortened(&line, &options).chars().count(), SHOWN);
        let all = TableOptions {
            all: true,
            ..options
        };
        assert_eq!(shortened(&line, &all), line);
    }
}
