//! Reads from `/proc` the call that a sleeping task is in, and how often it has slept.

use std::fs::File;
use std::os::unix::fs::FileExt;

use procfs::process::Process;

/// A thread, as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    pub tid: u32,
    pub pid: u32,
    pub comm: String,
    /// How often it has left the CPU to sleep. If two readings are the same, it has not gone to sleep in
    /// between: it stayed asleep, or ran.
    pub switches: u64,
    pub threads: u32,
    /// The number of its PID namespaces, and its id in the innermost one.
    pub depth: usize,
    pub own_number: u32,
}

impl Task {
    pub fn read(tid: u32) -> Option<Task> {
        Task::parse(tid, &std::fs::read(format!("/proc/{tid}/status")).ok()?)
    }

    /// `tid`: in this process's namespace.
    fn parse(tid: u32, status: &[u8]) -> Option<Task> {
        let text = String::from_utf8_lossy(status);
        let field = |name: &str| {
            let lines = &mut text.lines();
            let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim)
        };
        let numbers = field("NSpid").unwrap_or_default().split_whitespace();
        let own_number = numbers.clone().last().and_then(|last| last.parse().ok());
        Some(Task {
            tid,
            pid: field("Tgid")?.parse().ok()?,
            comm: field("Name")?.to_string(),
            switches: field("voluntary_ctxt_switches")?.parse().ok()?,
            threads: field("Threads")?.parse().ok()?,
            depth: numbers.count(),
            own_number: own_number.unwrap_or(tid),
        })
    }

    /// The live thread that has the id `number` in this thread's namespace. `is_private`: it has to be in
    /// the same process.
    pub fn named(&self, number: u32, is_private: bool) -> Option<Task> {
        if self.depth <= 1 {
            let found = Task::read(number)?;
            return (!is_private || found.pid == self.pid).then_some(found);
        }
        let namespace = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = namespace(self.pid)?;
        let processes = match is_private {
            true => vec![self.pid],
            false => entries("/proc"),
        };
        let processes = processes.into_iter();
        let mut inside = processes.filter(|pid| namespace(*pid).as_ref() == Some(&own));
        inside.find_map(|pid| {
            let mut tasks = threads(pid).into_iter().filter_map(Task::read);
            tasks.find(|task| task.own_number == number && task.depth == self.depth)
        })
    }
}

pub(crate) fn threads(pid: u32) -> Vec<u32> {
    entries(&format!("/proc/{pid}/task"))
}

/// The names in a directory that are numbers.
fn entries(path: &str) -> Vec<u32> {
    let found = std::fs::read_dir(path).into_iter().flatten().flatten();
    found
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The call that a task sleeps in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub number: u32,
    pub args: [u64; 6],
}

impl Call {
    /// `None` also if the task runs, or sleeps outside of calls.
    pub fn of(tid: u32) -> Option<Call> {
        Call::parse(&std::fs::read_to_string(format!("/proc/{tid}/syscall")).ok()?)
    }

    fn parse(text: &str) -> Option<Call> {
        let mut words = text.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let mut args = [0; 6];
        for arg in &mut args {
            *arg = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        }
        Some(Call { number, args })
    }
}

/// A reader of a process's memory, which returns false unless all bytes could be read.
pub(crate) fn read_memory(pid: u32) -> Option<impl Fn(u64, &mut [u8]) -> bool> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    Some(move |address: u64, bytes: &mut [u8]| memory.read_exact_at(bytes, address).is_ok())
}

/// Whether the processes share the memory that is at `address` in the first, and anywhere in the other.
pub(super) fn shares_memory(pid: u32, address: u64, other: u32) -> bool {
    let maps = |pid: u32| Process::new(pid as i32).and_then(|process| process.maps());
    let (Ok(own), Ok(others)) = (maps(pid), maps(other)) else {
        return false;
    };
    let holds = |map: &&procfs::process::MemoryMap| {
        (map.address.0..map.address.1).contains(&address) && map.inode != 0
    };
    let Some(map) = own.iter().find(holds) else {
        return false;
    };
    let offset = map.offset + (address - map.address.0);
    let is_same = |found: &procfs::process::MemoryMap| {
        let end = found.offset + (found.address.1 - found.address.0);
        (found.dev, found.inode) == (map.dev, map.inode) && (found.offset..end).contains(&offset)
    };
    others.iter().any(is_same)
}

/// A line of `/proc/locks`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileLock {
    /// 0: the lock is held; otherwise it waits for the last lock before it with a lower level.
    level: usize,
    is_flock: bool,
    pid: u32,
    /// Device and inode.
    pub file: String,
}

/// The lock that a process waits for, and the process that holds it. `None` also if several of its
/// threads wait for locks of this kind, since the list only has processes.
pub(super) fn file_lock(locks: &str, pid: u32, is_flock: bool) -> Option<(FileLock, u32)> {
    let locks: Vec<FileLock> = locks.lines().filter_map(FileLock::parse).collect();
    let is_wait = |lock: &FileLock| lock.level > 0 && lock.pid == pid && lock.is_flock == is_flock;
    let at = locks.iter().position(is_wait)?;
    if locks[at + 1..].iter().any(is_wait) {
        return None;
    }
    let wanted = &locks[at];
    let before = locks[..at].iter().rev();
    let holder = before.into_iter().find(|lock| lock.level < wanted.level)?;
    Some((wanted.clone(), holder.pid))
}

impl FileLock {
    fn parse(line: &str) -> Option<FileLock> {
        let (_, rest) = line.split_once(": ")?;
        let indented = rest.len() - rest.trim_start().len();
        let (level, rest) = match rest.trim_start().strip_prefix("->") {
            Some(rest) => (indented + 1, rest),
            None => (0, rest),
        };
        let mut words = rest.split_whitespace();
        let kind = words.next()?;
        let pid = words.nth(2)?.parse().ok()?; // -1: held by an open file, not by a process
        (kind == "FLOCK" || kind == "POSIX").then_some(FileLock {
            level,
            is_flock: kind == "FLOCK",
            pid,
            file: words.next()?.to_string(),
        })
    }
}

/// Whether another process also has the open file through which the lock is held, and so may release the
/// lock.
pub(super) fn is_passed_on(holder: u32, file: &str) -> bool {
    let has_it = |pid: u32| {
        let infos = std::fs::read_dir(format!("/proc/{pid}/fdinfo"));
        infos.into_iter().flatten().flatten().any(|info| {
            let text = std::fs::read_to_string(info.path()).unwrap_or_default();
            let locks = text.lines().filter_map(|line| line.strip_prefix("lock:"));
            let locks = locks.filter_map(|line| FileLock::parse(line.trim()));
            let mut held = locks.filter(|lock| lock.level == 0 && lock.is_flock);
            held.any(|lock| lock.pid == holder && lock.file == file)
        })
    };
    let mut others = entries("/proc").into_iter().filter(|pid| *pid != holder);
    others.any(has_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_is_read() {
        // SAFETY: the call has no arguments.
        let tid = unsafe { libc::gettid() } as u32;
        let task = Task::read(tid).unwrap();
        assert_eq!(task.pid, std::process::id());
        assert!(task.threads >= 1 && task.depth >= 1);
        let found = task.named(task.own_number, true).unwrap();
        assert_eq!((found.tid, found.pid), (tid, task.pid));
        assert!(Call::of(tid).is_some_and(|call| call.number == libc::SYS_read as u32));
    }

    #[test]
    fn a_thread_of_another_process_is_not_private() {
        let task = Task::read(std::process::id()).unwrap();
        if task.depth == 1 {
            assert!(task.named(1, true).is_none());
            assert_eq!(task.named(1, false).map(|task| task.pid), Some(1));
        }
        assert!(task.named(u32::MAX >> 2, false).is_none());
    }

    #[test]
    fn calls_are_parsed() {
        let call = Call::parse("202 0x1 0x80 0x2 0x0 0x0 0x5 0x7ff 0x8ff\n").unwrap();
        assert_eq!((call.number, call.args), (202, [1, 0x80, 2, 0, 0, 5]));
        for text in ["running\n", "-1 0x7ff 0x8ff", "", "202 0x1"] {
            assert_eq!(Call::parse(text), None, "{text}");
        }
    }

    #[test]
    fn names_in_status_do_no_harm() {
        let status = b"Name:\ta: b\\nTgid:\t7\nTgid:\t9\nNSpid:\t9\t2\nThreads:\t3\n\
            voluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t5\n";
        let task = Task::parse(9, status).unwrap();
        assert_eq!((task.pid, task.depth, task.own_number), (9, 2, 2));
        assert_eq!((task.switches, task.threads), (12, 3));
        assert!(Task::parse(9, b"Name:\tx\n").is_none());
    }

    const LOCKS: &str = "\
1: POSIX  ADVISORY  WRITE 10 fe:00:1 0 EOF
2: FLOCK  ADVISORY  WRITE 20 fe:00:2 0 EOF
2: -> FLOCK  ADVISORY  WRITE 30 fe:00:2 0 EOF
2:  -> FLOCK  ADVISORY  WRITE 40 fe:00:2 0 EOF
2: -> FLOCK  ADVISORY  WRITE 50 fe:00:2 0 EOF
3: OFDLCK ADVISORY  WRITE -1 fe:00:3 0 EOF
";

    #[test]
    fn waits_for_file_locks_name_the_holder() {
        let holder = |pid| file_lock(LOCKS, pid, true).map(|(_, holder)| holder);
        assert_eq!(holder(30), Some(20));
        assert_eq!(holder(40), Some(30));
        assert_eq!(holder(50), Some(20));
        assert_eq!(holder(20), None);
        assert_eq!(file_lock(LOCKS, 30, false), None);
        let twice = format!("{LOCKS}2: -> FLOCK  ADVISORY  READ 30 fe:00:2 0 EOF\n");
        assert_eq!(file_lock(&twice, 30, true), None);
    }
}
