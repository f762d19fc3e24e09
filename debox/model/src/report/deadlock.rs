//! Threads that wait for each other, and their description in words.

use serde::{Deserialize, Serialize};

use crate::frame::Frame;

/// A cycle of threads: each waits for what the next one holds, and the last for what the first one holds. All
/// of these waits were observed at the same moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadlock {
    /// When it was found, from the start of monitoring.
    pub found_ns: u64,
    /// Whether one of the waits has a time limit, so the deadlock may end.
    pub may_end: bool,
    /// Other threads that wait for these.
    pub behind: u64,
    pub waits: Vec<DeadlockWait>,
}

/// One wait of a deadlock: for what the thread of the next wait holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlockWait {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub syscall: String,
    /// `mutex`, `priority-inheritance mutex`, `robust mutex`, `rwlock`, `end of a thread` (`pthread_join`),
    /// `flock` or `POSIX file lock`.
    pub lock: String,
    /// The lock's variable or address, or the file's path.
    pub name: Option<String>,
    pub has_timeout: bool,
    /// The innermost frame of the program's own code in the wait's stack.
    pub caller: Option<Frame>,
    /// The user stack, innermost first.
    pub frames: Vec<Frame>,
}

impl DeadlockWait {
    /// `worker (12)`
    fn thread(&self) -> String {
        format!("{} ({})", self.comm, self.tid)
    }

    /// The lock that the thread waits for.
    fn what(&self) -> String {
        match &self.name {
            Some(name) => format!("{} {name}", self.lock),
            None => self.lock.clone(),
        }
    }
}

impl Deadlock {
    /// `deadlock of 2 threads: each waits for what the next one holds`
    pub fn title(&self) -> String {
        let mut text = match (self.waits.as_slice(), self.may_end) {
            ([_], false) => "deadlock: a thread waits for what it holds itself".to_string(),
            ([_], true) => "a thread waits for what it holds itself, with a time limit".to_string(),
            (waits, false) => format!(
                "deadlock of {} threads: each waits for what the next one holds",
                waits.len()
            ),
            (waits, true) => format!(
                "{} threads wait for each other, and one of them with a time limit",
                waits.len()
            ),
        };
        match self.behind {
            0 => {}
            1 => text.push_str("; one more thread waits for these"),
            others => text.push_str(&format!("; {others} more threads wait for these")),
        }
        text
    }

    /// One for each wait: `worker (12) waits for mutex a (program), held by other (13), at f+0x1 (a.c:7)`
    pub fn lines(&self) -> Vec<String> {
        let holders = self.waits.iter().cycle().skip(1);
        let line = |(wait, holder): (&DeadlockWait, &DeadlockWait)| {
            let mut text = format!("{} waits for ", wait.thread());
            if wait.lock == THREAD_END {
                text.push_str(&format!("the end of {}", holder.thread()));
            } else if wait.tid == holder.tid {
                text.push_str(&format!("{}, which it holds itself", wait.what()));
            } else {
                text.push_str(&format!("{}, held by {}", wait.what(), holder.thread()));
            }
            if wait.pid != holder.pid {
                text.push_str(&format!(" of process {}", holder.pid));
            }
            if let Some(caller) = &wait.caller {
                text.push_str(&format!(", at {caller}"));
            }
            text
        };
        self.waits.iter().zip(holders).map(line).collect()
    }
}

/// `pthread_join()`.
const THREAD_END: &str = "end of a thread";

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(tid: u32, name: &str) -> DeadlockWait {
        DeadlockWait {
            pid: 10,
            tid,
            comm: format!("thread{tid}"),
            lock: "mutex".into(),
            name: Some(name.into()),
            caller: Some(format!("take_{name}+0x1 (locks.c:{tid})").into()),
            ..DeadlockWait::default()
        }
    }

    #[test]
    fn a_circle_is_told_in_its_order() {
        let mut deadlock = Deadlock {
            waits: vec![wait(11, "a"), wait(12, "b")],
            ..Deadlock::default()
        };
        assert_eq!(
            deadlock.title(),
            "deadlock of 2 threads: each waits for what the next one holds"
        );
        assert_eq!(
            deadlock.lines(),
            [
                "thread11 (11) waits for mutex a, held by thread12 (12), at take_a+0x1 (locks.c:11)",
                "thread12 (12) waits for mutex b, held by thread11 (11), at take_b+0x1 (locks.c:12)",
            ]
        );
        deadlock.waits[1].pid = 9;
        assert!(deadlock.lines()[0].contains("thread12 (12) of process 9,"));
        deadlock.may_end = true;
        deadlock.behind = 3;
        assert_eq!(
            deadlock.title(),
            "2 threads wait for each other, and one of them with a time limit; 3 more threads wait \
             for these"
        );
    }

    #[test]
    fn one_thread_may_be_enough() {
        let mut deadlock = Deadlock {
            waits: vec![wait(11, "a")],
            ..Deadlock::default()
        };
        assert_eq!(
            deadlock.title(),
            "deadlock: a thread waits for what it holds itself"
        );
        let [line] = <[String; 1]>::try_from(deadlock.lines()).unwrap();
        assert!(line.starts_with("thread11 (11) waits for mutex a, which it holds itself, at "));
        deadlock.waits.push(wait(12, "b"));
        deadlock.waits[1].lock = THREAD_END.into();
        deadlock.waits[1].caller = None;
        assert_eq!(
            deadlock.lines()[1],
            "thread12 (12) waits for the end of thread11 (11)"
        );
    }
}
