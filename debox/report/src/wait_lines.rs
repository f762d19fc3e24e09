// SPDX-License-Identifier: MIT OR Apache-2.0
//! What futex waits are for, by the functions of the program that led to them, and in which line a wait stands.

use debox_model::frame;
use debox_model::runtimes::{Purpose, Runtimes};
use rustc_hash::FxHashMap;

use crate::names::{Name, Names, NONE};

/// What is known of the stacks and resources that were seen.
#[derive(Default)]
pub struct WaitLines {
    by_stack: FxHashMap<Name, Purpose>,
    words: FxHashMap<Name, Name>,
    of_processes: FxHashMap<u32, Name>,
}

impl WaitLines {
    #[inline]
    pub fn purpose(&mut self, stack: Name, names: &Names) -> Purpose {
        if stack == NONE {
            return Purpose::Unknown;
        }
        let known = self.by_stack.entry(stack).or_insert_with(|| {
            let frames = frame::unfold(&names.get(stack));
            Runtimes::builtin().purpose(&frames)
        });
        *known
    }

    /// What a futex wait's line is for. The word names it, which has the same address in processes that share it. Where
    /// the word is not the lock's, it is any lock of the process: which one is unknown.
    pub fn line(&mut self, of: Purpose, resource: Name, pid: u32, names: &Names) -> Name {
        if matches!(of, Purpose::Lock | Purpose::Request) {
            let of_process = || names.of(&format!("locks of process {pid}"));
            return *self.of_processes.entry(pid).or_insert_with(of_process);
        }
        if resource == NONE {
            return NONE;
        }
        let word = || match names.get(resource).split_once(" of process ") {
            Some((address, _)) => names.of(address),
            None => resource,
        };
        *self.words.entry(resource).or_insert_with(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_words_line_is_the_same_in_all_processes_and_a_monitors_is_the_processs() {
        let names = Names::default();
        let mut lines = WaitLines::default();
        let [one, other] = [5, 6].map(|pid| {
            let word = names.of(&format!("0x7f10e6005000 of process {pid}"));
            lines.line(Purpose::LockWord, word, pid, &names)
        });
        assert_eq!(one, other);
        let named = names.of("main_arena (libc.so.6)");
        assert_eq!(lines.line(Purpose::Unknown, named, 5, &names), named);
        assert_eq!(lines.line(Purpose::Unknown, NONE, 5, &names), NONE);
        let [one, other, again] = [5, 6, 5].map(|pid| {
            let parked = names.of(&format!("0x1000 of process {pid}"));
            lines.line(Purpose::Lock, parked, pid, &names)
        });
        assert_eq!(one, again);
        assert_ne!(one, other);
    }

    #[test]
    fn a_stack_is_read_whichever_way_it_leads_to_the_lock() {
        let names = Names::default();
        let mut lines = WaitLines::default();
        let mut of = |text: &str| lines.purpose(names.of(text), &names);
        let monitor = "start_thread (pthread_create.c:442);ObjectMonitor::enter(JavaThread*)+0x268 (libjvm.so);\
                       ___pthread_cond_wait (pthread_cond_wait.c:618)";
        assert_eq!(of(monitor), Purpose::Lock);
        assert_eq!(
            of("main+0x1;pthread_mutex_lock (pthread_mutex_lock.c:93)"),
            Purpose::LockWord
        );
        assert_eq!(
            of("main+0x1;pthread_cond_wait (pthread_cond_wait.c:618)"),
            Purpose::Unknown
        );
        assert_eq!(lines.purpose(NONE, &names), Purpose::Unknown);
    }
}
