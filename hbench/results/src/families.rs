// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the descriptors of processes are, from the calls that made them.
//!
//! `pipe` and `socketpair` do not return their descriptors. POSIX gives them the lowest that are free, and the others
//! are known: they were returned, or inherited.

use std::collections::{BTreeMap, HashMap};

use debox_model::history::Call;

/// What a descriptor leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    File,
    Pipe,
    Unix,
    Tcp,
    Udp,
    /// A counter, a timer, an epoll.
    Event,
    /// It was there before the recording, or its call was not seen.
    Unknown,
}

#[derive(Debug, Clone, Copy)]
struct Descriptor {
    family: Family,
    /// It does not outlive `execve`.
    is_private: bool,
}

type Table = BTreeMap<u64, Descriptor>;

/// The tables of all processes.
#[derive(Debug, Default)]
pub struct Families {
    tables: HashMap<u32, Table>,
    /// The process that started each.
    parents: HashMap<u32, u32>,
}

/// Such a descriptor number is no descriptor: -1, AT_FDCWD.
const DESCRIPTOR_MAX: u64 = 1 << 30;

const O_CLOEXEC: u64 = 0o2_000_000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_FILES: u64 = 0x400;
const F_DUPFD: u64 = 0;
const F_SETFD: u64 = 2;
const F_DUPFD_CLOEXEC: u64 = 1030;

impl Families {
    /// `parents`: the processes of which it is known who started them.
    pub fn new(parents: impl IntoIterator<Item = (u32, u32)>) -> Families {
        Families {
            tables: HashMap::new(),
            parents: parents.into_iter().collect(),
        }
    }

    /// The family of a descriptor, as the process has it now.
    pub fn of(&mut self, pid: u32, descriptor: u64) -> Family {
        let found = self.table(pid).get(&descriptor);
        found.map_or(Family::Unknown, |found| found.family)
    }

    fn table(&mut self, pid: u32) -> &mut Table {
        if !self.tables.contains_key(&pid) {
            let parent = self
                .parents
                .get(&pid)
                .and_then(|parent| self.tables.get(parent));
            let standard = Descriptor {
                family: Family::Unknown,
                is_private: false,
            };
            let inherited = || (0..3).map(|number| (number, standard)).collect();
            let table = parent.cloned().unwrap_or_else(inherited);
            self.tables.insert(pid, table);
        }
        self.tables.entry(pid).or_default()
    }

    /// Follows what a call does to the descriptors of its process.
    pub fn follow(&mut self, call: &Call) {
        self.learn_from_sleeps(call);
        if call.in_flight || call.ia32 || call.restarted || call.ret < 0 {
            return;
        }
        let [first, second, third] = call.args;
        let is_private = |flags: u64| flags & O_CLOEXEC != 0;
        let returned = call.ret as u64;
        use Family::{Event, File, Pipe};
        match &*call.name {
            "open" | "creat" => self.add(call.pid, returned, File, is_private(second)),
            "openat" | "memfd_create" => self.add(call.pid, returned, File, is_private(third)),
            // Its flags are in memory.
            "openat2" => self.add(call.pid, returned, File, true),
            "socket" => {
                let family = of_socket(first, second);
                self.add(call.pid, returned, family, is_private(second));
            }
            "accept" | "accept4" => {
                let family = self.of(call.pid, first);
                self.add(call.pid, returned, family, false);
            }
            "epoll_create" | "epoll_create1" | "eventfd" | "eventfd2" | "timerfd_create"
            | "signalfd" | "signalfd4" | "inotify_init" | "inotify_init1" | "io_uring_setup"
            | "pidfd_open" => {
                self.add(call.pid, returned, Event, true);
            }
            "pipe" => self.add_pair(call.pid, Pipe, false),
            "pipe2" => self.add_pair(call.pid, Pipe, is_private(second)),
            "socketpair" => {
                let family = of_socket(first, second);
                self.add_pair(call.pid, family, is_private(second));
            }
            "dup" => self.copy(call.pid, first, returned, false),
            "dup2" => self.copy(call.pid, first, second, false),
            "dup3" => self.copy(call.pid, first, second, is_private(third)),
            "fcntl" if second == F_DUPFD => self.copy(call.pid, first, returned, false),
            "fcntl" if second == F_DUPFD_CLOEXEC => self.copy(call.pid, first, returned, true),
            "fcntl" if second == F_SETFD => {
                if let Some(found) = self.table(call.pid).get_mut(&first) {
                    found.is_private = third & 1 != 0;
                }
            }
            "close" => drop(self.table(call.pid).remove(&first)),
            // Its third argument may only mark them.
            "close_range" if third == 0 && first <= second => {
                self.table(call.pid)
                    .retain(|number, _| !(first..=second).contains(number));
            }
            "execve" | "execveat" => self.table(call.pid).retain(|_, found| !found.is_private),
            "fork" | "vfork" | "clone" | "clone3" => self.start(call),
            _ => {}
        }
    }

    fn start(&mut self, call: &Call) {
        let is_thread = &*call.name == "clone" && call.args[0] & CLONE_THREAD != 0;
        let Ok(child) = u32::try_from(call.ret) else {
            return;
        };
        if child == 0 || child == call.pid || is_thread {
            return;
        }
        self.parents.insert(child, call.pid);
        // Its first call may have been recorded before its parent's.
        let shares = &*call.name == "clone" && call.args[0] & CLONE_FILES != 0;
        if !shares && !self.tables.contains_key(&child) {
            self.table(child);
        }
    }

    /// What a thread slept on says what its descriptor is.
    fn learn_from_sleeps(&mut self, call: &Call) {
        let is_transfer = matches!(&*call.name, "read" | "write" | "readv" | "writev");
        let is_pipe = |kind: &str| kind == "pipe";
        let slept = call
            .sleeps
            .iter()
            .any(|sleep| sleep.resource_kind.as_deref().is_some_and(is_pipe));
        if is_transfer && slept {
            self.add(call.pid, call.args[0], Family::Pipe, false);
        }
    }

    fn add(&mut self, pid: u32, number: u64, family: Family, is_private: bool) {
        if number < DESCRIPTOR_MAX {
            self.table(pid)
                .insert(number, Descriptor { family, is_private });
        }
    }

    fn add_pair(&mut self, pid: u32, family: Family, is_private: bool) {
        for _ in 0..2 {
            let table = self.table(pid);
            let mut free = 0;
            for number in table.keys() {
                if *number != free {
                    break;
                }
                free += 1;
            }
            self.add(pid, free, family, is_private);
        }
    }

    fn copy(&mut self, pid: u32, from: u64, to: u64, is_private: bool) {
        if from != to {
            let family = self.of(pid, from);
            self.add(pid, to, family, is_private);
        }
    }
}

fn of_socket(domain: u64, kind: u64) -> Family {
    const UNIX: u64 = 1;
    const IPV4: u64 = 2;
    const IPV6: u64 = 10;
    const STREAM: u64 = 1;
    const DATAGRAM: u64 = 2;
    match (domain, kind & 0xf) {
        (UNIX, _) => Family::Unix,
        (IPV4 | IPV6, STREAM) => Family::Tcp,
        (IPV4 | IPV6, DATAGRAM) => Family::Udp,
        _ => Family::Unknown,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn call(pid: u32, name: &str, args: [u64; 3], ret: i64) -> Call {
        Call {
            pid,
            tid: pid,
            name: name.into(),
            number: 1,
            args,
            ret,
            ..Call::default()
        }
    }

    #[test]
    fn pairs_get_the_lowest_descriptors_that_are_free() {
        let mut families = Families::default();
        families.follow(&call(1, "openat", [0, 0, 0], 3));
        families.follow(&call(1, "pipe2", [0, O_CLOEXEC, 0], 0));
        families.follow(&call(1, "close", [3, 0, 0], 0));
        families.follow(&call(1, "socketpair", [1, 1, 0], 0));
        let mut of = |number| families.of(1, number);
        assert_eq!([of(4), of(5)], [Family::Pipe; 2]);
        assert_eq!([of(3), of(6)], [Family::Unix; 2]);
        assert_eq!([of(0), of(7)], [Family::Unknown; 2]);
    }

    #[test]
    fn children_inherit_and_programs_lose_what_is_private() {
        let mut families = Families::new([(3, 2)]);
        families.follow(&call(1, "socket", [2, 1, 0], 3));
        families.follow(&call(1, "pipe2", [0, O_CLOEXEC, 0], 0));
        families.follow(&call(1, "clone", [17, 0, 0], 2));
        families.follow(&call(1, "close", [3, 0, 0], 0));
        families.follow(&call(2, "dup2", [4, 0, 0], 0));
        families.follow(&call(2, "execve", [0, 0, 0], 0));
        assert_eq!(families.of(1, 3), Family::Unknown);
        assert_eq!(families.of(2, 3), Family::Tcp);
        assert_eq!(families.of(2, 0), Family::Pipe);
        assert_eq!(families.of(2, 4), Family::Unknown);
        // Its start was not recorded, but its parent is known.
        assert_eq!(families.of(3, 3), Family::Tcp);
        // An error does nothing.
        families.follow(&call(2, "close", [3, 0, 0], -9));
        assert_eq!(families.of(2, 3), Family::Tcp);
        families.follow(&call(2, "close_range", [3, u64::MAX, 0], 0));
        assert_eq!(families.of(2, 3), Family::Unknown);
    }

    #[test]
    fn a_connection_is_what_its_listener_is() {
        let mut families = Families::default();
        families.follow(&call(1, "socket", [10, 0o2_000_001, 0], 3));
        families.follow(&call(1, "accept4", [3, 0, 0], 4));
        families.follow(&call(1, "fcntl", [4, F_DUPFD, 9], 9));
        families.follow(&call(1, "socket", [2, 2, 0], 5));
        assert_eq!(families.of(1, 9), Family::Tcp);
        assert_eq!(families.of(1, 5), Family::Udp);
        families.follow(&call(1, "openat", [0, 0, 0], i64::MAX));
        assert_eq!(families.of(1, i64::MAX as u64), Family::Unknown);
    }
}
