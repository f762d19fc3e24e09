//! The names of a history's processes, from their command lines.

use std::collections::{BTreeMap, HashMap};

use debox_model::history::Text;
use debox_model::report::Process;

use crate::meta::Meta;
use crate::read::History;

/// The most entries in a file's metadata, and the most bytes of their texts: the metadata is written again with
/// each group.
const MAX: usize = 4096;
const MAX_BYTES: usize = 512 << 10;

impl Meta {
    /// Stores the processes' names, as far as there is room. `unknown`: how many more programs there were.
    pub fn set_processes(&mut self, processes: &[Process], unknown: u64) {
        let mut bytes = 0;
        let fits = |process: &&Process| {
            let words = process.command.iter().chain(&process.title);
            let words = words.chain(&process.place);
            bytes += words.map(|word| word.len() + 8).sum::<usize>();
            bytes <= MAX_BYTES
        };
        self.processes = processes
            .iter()
            .take(MAX)
            .take_while(fits)
            .cloned()
            .collect();
        let no_room = (processes.len() - self.processes.len()) as u64;
        self.processes_left_out = no_room.saturating_add(unknown);
    }

    /// Copies them, and those that were not recorded, to the metadata of another file of the same recording.
    pub fn copy_processes_to(&self, other: &mut Meta) {
        other.processes.clone_from(&self.processes);
        other.not_recorded.clone_from(&self.not_recorded);
        other.processes_left_out = self.processes_left_out;
    }
}

#[derive(Debug)]
struct Named {
    process: Process,
    name: Text,
}

impl Named {
    fn new(process: &Process) -> Named {
        Named {
            process: process.clone(),
            name: process.name().into(),
        }
    }
}

/// The processes' names in all files of a history, by process and time.
#[derive(Debug, Default)]
pub struct ProcessNames {
    /// By the host's index in `hosts` and the process id, in the order of time.
    names: HashMap<(usize, u32), BTreeMap<u64, Named>>,
    hosts: Vec<String>,
}

impl ProcessNames {
    pub fn of(history: &History) -> ProcessNames {
        let mut all = ProcessNames::default();
        for file in &history.files {
            let meta = &file.meta;
            let host = all.host(&meta.host).unwrap_or_else(|| {
                all.hosts.push(meta.host.clone());
                all.hosts.len() - 1
            });
            for process in &meta.processes {
                let of_process = all.names.entry((host, process.pid)).or_default();
                // A later file of the recording has a later title.
                of_process.insert(process.from_ns, Named::new(process));
            }
        }
        all
    }

    fn host(&self, host: &str) -> Option<usize> {
        self.hosts.iter().position(|known| known == host)
    }

    /// The name of the process that had this id at that time (`CLOCK_MONOTONIC`), if it is known.
    pub fn at(&self, host: &str, pid: u32, at_ns: u64) -> Option<&Text> {
        self.named_at(host, pid, at_ns).map(|named| &named.name)
    }

    /// The program that it ran then, if that is known.
    pub fn program_at(&self, host: &str, pid: u32, at_ns: u64) -> Option<&Process> {
        self.named_at(host, pid, at_ns).map(|named| &named.process)
    }

    fn named_at(&self, host: &str, pid: u32, at_ns: u64) -> Option<&Named> {
        let of_process = self.names.get(&(self.host(host)?, pid))?;
        let before = of_process.range(..=at_ns).next_back();
        let found = before.or_else(|| of_process.iter().next());
        found.map(|(_, named)| named)
    }

    /// The last program of each process, by host and process id.
    pub fn last(&self) -> impl Iterator<Item = (&str, &Process)> {
        self.names.iter().filter_map(|((host, _), of_process)| {
            let (_, last) = of_process.iter().next_back()?;
            Some((self.hosts[*host].as_str(), &last.process))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, from_ns: u64, name: &str) -> Process {
        Process {
            pid,
            from_ns,
            command: vec![name.to_string()],
            ..Process::default()
        }
    }

    #[test]
    fn a_description_has_as_many_processes_as_there_is_room_for() {
        let mut meta = Meta::default();
        let long = "x".repeat(1 << 10);
        let processes: Vec<Process> = (0..1000).map(|pid| process(pid, 0, &long)).collect();
        meta.set_processes(&processes, 0);
        assert!((400..520).contains(&meta.processes.len()));
        assert_eq!(meta.processes_left_out, 1000 - meta.processes.len() as u64);
        meta.set_processes(&vec![process(1, 0, "a"); MAX + 3], 4);
        assert_eq!((meta.processes.len(), meta.processes_left_out), (MAX, 7));
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let mut names = ProcessNames::default();
        names.hosts.push("here".to_string());
        let of_seven = [process(7, 10, "first"), process(7, 20, "second")];
        let of_seven = of_seven.map(|process| (process.from_ns, Named::new(&process)));
        names.names.insert((0, 7), BTreeMap::from(of_seven));
        let name = |at_ns| names.at("here", 7, at_ns);
        assert_eq!(name(15).map(|name| &**name), Some("first"));
        assert_eq!(name(20).map(|name| &**name), Some("second"));
        let program = names.program_at("here", 7, 15);
        assert_eq!(program.map(|program| program.from_ns), Some(10));
        assert_eq!(
            name(5).map(|name| &**name),
            Some("first"),
            "before it was first seen"
        );
        assert!(names.at("there", 7, 15).is_none());
        assert!(names.at("here", 8, 15).is_none());
    }
}
