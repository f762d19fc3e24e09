// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where threads' time went between two looks.

use foldhash::HashMap;

use super::thread_id::{id_of, ThreadId};
use crate::collect::close_open_part;
use crate::history::Text;
use crate::options::Tap;
use crate::recorder::texts::Texts;
use crate::tables::{self, types, CALL_NONE};

/// A thread's time between two looks.
#[derive(Debug, Clone)]
pub struct LiveThread {
    pub pid: u32,
    pub tid: u32,
    pub comm: Text,
    pub calls: u64,
    pub cpu_ns: u64,
    pub blocked_ns: u64,
    pub runqueue_ns: u64,
    pub preempted_ns: u64,
    /// The call that it is in.
    pub call: Option<Text>,
    pub has_ended: bool,
}

/// The threads' totals at the last look.
#[derive(Default)]
pub(super) struct ThreadTimes {
    totals: HashMap<ThreadId, Totals>,
    looks: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    /// The look that they are of.
    look: u64,
    calls: u64,
    parts: [u64; tables::PARTS],
}

impl ThreadTimes {
    /// Closes the open parts of those that live.
    pub fn look(
        &mut self,
        texts: &mut Texts,
        living: &mut [types::thread],
        ended: &[types::thread],
        now_ns: u64,
    ) -> Vec<LiveThread> {
        self.looks += 1;
        let look = self.looks;
        let mut threads = Vec::with_capacity(living.len() + ended.len());
        for thread in ended {
            let last = self.totals.remove(&id_of(thread)).unwrap_or_default();
            threads.push(since(texts, thread, &totals(thread, look), &last, true));
        }
        for thread in living {
            close_open_part(thread, now_ns, Tap::Kernel);
            let last = self.totals.entry(id_of(thread)).or_default();
            let now = totals(thread, look);
            threads.push(since(texts, thread, &now, last, false));
            *last = now;
        }
        self.totals.retain(|_, totals| totals.look == look);
        threads
    }
}

fn totals(thread: &types::thread, look: u64) -> Totals {
    let mut parts = thread.between;
    for (sum, in_calls) in parts.iter_mut().zip(thread.in_calls) {
        tables::add(sum, in_calls);
    }
    Totals {
        look,
        calls: thread.calls,
        parts,
    }
}

fn since(
    texts: &mut Texts,
    thread: &types::thread,
    now: &Totals,
    last: &Totals,
    has_ended: bool,
) -> LiveThread {
    // A part that was open may turn out to be shorter by what the scheduler knows better.
    let part = |part: usize| now.parts[part].saturating_sub(last.parts[part]);
    LiveThread {
        pid: thread.tgid,
        tid: thread.tid,
        comm: texts.comm(&thread.comm),
        calls: now.calls.saturating_sub(last.calls),
        cpu_ns: part(tables::PART_CPU) + part(tables::PART_IRQ),
        blocked_ns: part(tables::PART_BLOCKED),
        runqueue_ns: part(tables::PART_RUNQUEUE),
        preempted_ns: part(tables::PART_PREEMPTED),
        call: (thread.call != CALL_NONE && !has_ended).then(|| texts.call(thread.call)),
        has_ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Detail;

    #[test]
    fn a_look_shows_what_came_since_the_last_one() {
        let mut texts = Texts::new(Detail::default());
        let mut times = ThreadTimes::default();
        let mut thread = types::thread {
            tid: 7,
            tgid: 7,
            state: tables::THREAD_LIVE,
            call: CALL_NONE,
            mode: tables::MODE_BLOCKED,
            begin_ns: 1_000,
            birth_ns: 1_000,
            ..types::thread::default()
        };
        let first = times.look(&mut texts, &mut [thread], &[], 1_500);
        assert_eq!(first[0].blocked_ns, 500);
        thread.calls = 3;
        let second = times.look(&mut texts, &mut [thread], &[], 2_500);
        assert_eq!((second[0].blocked_ns, second[0].calls), (1_000, 3));
        thread.between[tables::PART_BLOCKED] = 2_000;
        let last = times.look(&mut texts, &mut [], &[thread], 4_000);
        assert_eq!((last[0].blocked_ns, last[0].has_ended), (500, true));
        assert!(times.totals.is_empty());
    }
}
