//! Matches the program's own measurements around its calls with the kernel's records.
//!
//! The stamps of a call arrive with the thread's next call (`keep_stamps` in `debox/probe/history.h`), so a
//! call that ended between stamps waits here for them. They are matched by time: a call belongs to the
//! innermost stamps with the same number that enclose it. The program can write to the stamps until they are
//! sent: stamps from before the recording, or later than their arrival, are refused and counted.

use std::collections::{HashMap, VecDeque};

use anyhow::Result;

use crate::history::{Call, UserLevel};
use crate::tables::types;

/// The most waiting rows of one thread: a call may be interrupted and restarted often, with calls of the
/// handlers in between. Lost stamps never arrive.
const MAX_WAITING: usize = 1024;

/// The most threads with waiting rows.
const MAX_THREADS: usize = 1 << 15;

/// How far the program's clock may be from the kernel's. It follows it within some tens of nanoseconds, but
/// less closely while this process gets no CPU.
const SLACK_NS: u64 = 50_000;

/// No task switch takes less, so a thread did not lose the CPU in a shorter time.
const SWITCH_NS: u64 = 1_000;

/// Waiting rows, by thread.
#[derive(Default)]
pub(super) struct Stamps {
    threads: HashMap<u32, VecDeque<Waiting>>,
    began_ns: u64,
    /// Stamps that could not be true.
    pub refused: u64,
}

struct Waiting {
    call: Call,
    /// Whether it ended between stamps that have not arrived yet.
    is_open: bool,
    /// The shim's time for the call.
    stamps_ns: u64,
}

/// The times at which the program's thread read the clock.
#[derive(Clone, Copy)]
struct Interval {
    begin: u64,
    end: u64,
}

impl Interval {
    fn holds(&self, call: &Call) -> bool {
        call.start_ns.saturating_add(SLACK_NS) >= self.begin
            && end(call) <= self.end.saturating_add(SLACK_NS)
    }
}

fn end(call: &Call) -> u64 {
    call.start_ns.saturating_add(call.wall_ns)
}

/// Whether the row is time between calls.
fn is_between(call: &Call) -> bool {
    call.number < 0
}

impl Stamps {
    /// Starts empty, for a recording that began at this time.
    pub fn since(began_ns: u64) -> Stamps {
        Stamps {
            began_ns,
            ..Stamps::default()
        }
    }

    /// Adds a row, in the order of the thread's rows. Rows that need not wait are passed on to `keep`.
    pub fn add(
        &mut self,
        call: Call,
        is_stamped: bool,
        keep: &mut dyn FnMut(Call) -> Result<()>,
    ) -> Result<()> {
        let tid = call.tid;
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&tid) {
            self.give_all(keep)?;
        }
        let waiting = self.threads.entry(tid).or_default();
        let ends_thread = call.partial && !is_between(&call) && !is_stamped;
        waiting.push_back(Waiting {
            call,
            is_open: is_stamped,
            stamps_ns: 0,
        });
        give(waiting, if ends_thread { 0 } else { MAX_WAITING }, keep)?;
        if waiting.is_empty() {
            self.threads.remove(&tid);
        }
        Ok(())
    }

    /// Takes the stamps of a call whose row has arrived; the time is `now_ns`.
    pub fn take(
        &mut self,
        stamps: &types::kept_stamps,
        now_ns: u64,
        keep: &mut dyn FnMut(Call) -> Result<()>,
    ) -> Result<()> {
        let is_late = stamps
            .begin_ns
            .checked_add(stamps.wall_ns)
            .is_none_or(|end| end > now_ns.saturating_add(SLACK_NS));
        if is_late || stamps.begin_ns.saturating_add(SLACK_NS) < self.began_ns {
            self.refused = self.refused.saturating_add(1);
            return Ok(());
        }
        let Some(waiting) = self.threads.get_mut(&stamps.tid) else {
            return Ok(());
        };
        // Of a restarted call, the last piece.
        let may_be = |waiting: &Waiting| {
            let since = waiting.call.start_ns.saturating_add(SLACK_NS);
            waiting.is_open && waiting.call.number as u32 == stamps.call && since >= stamps.begin_ns
        };
        let Some(at) = waiting.iter().rposition(may_be) else {
            return Ok(());
        };
        let wall_ns = stamps
            .wall_ns
            .saturating_add(nested(waiting, at, stamps.begin_ns));
        let interval = Interval {
            begin: stamps.begin_ns,
            end: stamps.begin_ns.saturating_add(wall_ns),
        };
        if !interval.holds(&waiting[at].call) {
            return Ok(());
        }
        let user = UserLevel {
            wall_ns,
            away_ns: away(waiting, at, interval),
            calls_ns: others(waiting, at, interval),
        };
        waiting[at].call.user = Some(user);
        waiting[at].stamps_ns = stamps.wall_ns;
        waiting[at].is_open = false;
        // No stamps will arrive for its earlier pieces either.
        for row in waiting.iter_mut().take(at) {
            let call = &row.call;
            let is_inside = call.start_ns >= interval.begin && end(call) <= interval.end;
            let is_piece = call.restarted && call.number as u32 == stamps.call;
            row.is_open &= !(is_piece && is_inside);
        }
        give(waiting, MAX_WAITING, keep)?;
        if waiting.is_empty() {
            self.threads.remove(&stamps.tid);
        }
        Ok(())
    }

    /// Passes on all rows: no more stamps will arrive.
    pub fn give_all(&mut self, keep: &mut dyn FnMut(Call) -> Result<()>) -> Result<()> {
        for (_, waiting) in std::mem::take(&mut self.threads) {
            for row in waiting {
                keep(row.call)?;
            }
        }
        Ok(())
    }
}

/// Passes on, in order, the rows that need not wait, and the oldest ones if there are more than the limit.
/// Time between calls waits with the call after it, whose stamps may enclose a part of it.
fn give(
    waiting: &mut VecDeque<Waiting>,
    most: usize,
    keep: &mut dyn FnMut(Call) -> Result<()>,
) -> Result<()> {
    while let Some(first) = waiting.front() {
        let next_is_open = waiting.get(1).is_none_or(|next| next.is_open);
        let waits = first.is_open || (is_between(&first.call) && next_is_open);
        if waits && waiting.len() <= most {
            break;
        }
        if let Some(row) = waiting.pop_front() {
            keep(row.call)?;
        }
    }
    Ok(())
}

/// The time of the calls that handlers made since `begin`, before the call at `at`: the shim leaves it out
/// of its time for the call that they interrupted.
fn nested(waiting: &VecDeque<Waiting>, at: usize, begin: u64) -> u64 {
    let mut sum = 0u64;
    let mut edge = waiting[at].call.start_ns;
    // Backwards: a call inside another one is before it in the list, and is included in its time.
    for row in waiting.iter().take(at).rev() {
        let is_inside = row.call.start_ns >= begin && end(&row.call) <= edge;
        if is_inside && row.stamps_ns > 0 {
            sum = sum.saturating_add(row.stamps_ns);
            edge = row.call.start_ns;
        }
    }
    sum
}

/// Time off the CPU between the stamps, but not in a call. Limited to the time between the stamps before and
/// after the call, since it is unknown when between two calls a thread lost the CPU.
fn away(waiting: &VecDeque<Waiting>, at: usize, interval: Interval) -> u64 {
    let call = &waiting[at].call;
    let off_cpu = |row: Option<&Waiting>| {
        let row = row.filter(|row| is_between(&row.call));
        row.map_or(0, |row| {
            let budget = &row.call.budget;
            let waits = budget.runqueue_ns.saturating_add(budget.preempted_ns);
            budget.blocked_ns.saturating_add(waits)
        })
    };
    let before = at.checked_sub(1).and_then(|before| waiting.get(before));
    let room_before = call.start_ns.saturating_sub(interval.begin);
    let room_after = interval.end.saturating_sub(end(call));
    [
        (room_before, off_cpu(before)),
        (room_after, off_cpu(waiting.get(at + 1))),
    ]
    .iter()
    .filter(|(room, _)| *room >= SWITCH_NS)
    .fold(0u64, |sum, (room, off)| sum.saturating_add(*room.min(off)))
}

/// Time in other calls between the stamps.
fn others(waiting: &VecDeque<Waiting>, at: usize, interval: Interval) -> u64 {
    let rows = waiting.iter().enumerate();
    let rows = rows.filter(|(other, row)| {
        let call = &row.call;
        *other != at
            && !is_between(call)
            && call.start_ns >= interval.begin
            && end(call) <= interval.end
    });
    rows.fold(0u64, |sum, (_, row)| sum.saturating_add(row.call.wall_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Budget;

    fn call(number: i32, start_ns: u64, wall_ns: u64) -> Call {
        Call {
            tid: 7,
            number,
            start_ns,
            wall_ns,
            ..Call::default()
        }
    }

    /// Time between calls, off the CPU for all but 1 us.
    fn between(start_ns: u64, wall_ns: u64) -> Call {
        Call {
            budget: Budget {
                cpu_ns: 1_000,
                preempted_ns: wall_ns - 1_000,
                ..Budget::default()
            },
            ..call(-1, start_ns, wall_ns)
        }
    }

    fn stamps(call: u32, begin_ns: u64, wall_ns: u64) -> types::kept_stamps {
        types::kept_stamps {
            tid: 7,
            call,
            begin_ns,
            wall_ns,
            ..types::kept_stamps::default()
        }
    }

    /// Later than everything here.
    const NOW: u64 = 1 << 40;

    enum Came {
        Call(Box<Call>, bool),
        Stamps(types::kept_stamps),
    }

    /// Number, start, and what the program measured.
    type Kept = (i32, u64, Option<(u64, u64, u64)>);

    fn row(call: Call, is_stamped: bool) -> Came {
        Came::Call(Box::new(call), is_stamped)
    }
    use Came::Stamps as Around;

    /// The rows passed on, in order.
    fn kept(came: Vec<Came>) -> Vec<Kept> {
        let mut stamps = Stamps::default();
        let mut kept = Vec::new();
        let mut keep = |call: Call| {
            let user = call.user;
            let user = user.map(|user| (user.wall_ns, user.away_ns, user.calls_ns));
            kept.push((call.number, call.start_ns, user));
            Ok(())
        };
        for one in came {
            match one {
                Came::Call(call, is_stamped) => stamps.add(*call, is_stamped, &mut keep),
                Around(around) => stamps.take(&around, NOW, &mut keep),
            }
            .expect("nothing fails");
        }
        stamps.give_all(&mut keep).expect("nothing fails");
        kept
    }

    #[test]
    fn stamps_come_to_their_call() {
        let found = kept(vec![
            row(call(0, 1_100_000, 500), true),
            Around(stamps(0, 1_099_900, 800)),
            row(call(1, 1_200_000, 500), false), // stdio's own
            row(call(0, 1_300_000, 500), true),
            Around(stamps(0, 1_299_900, 900)),
        ]);
        let expected = vec![
            (0, 1_100_000, Some((800, 0, 0))),
            (1, 1_200_000, None),
            (0, 1_300_000, Some((900, 0, 0))),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_keeps_a_thread_from_its_call_is_told() {
        // 2 ms before the call and 1 ms after it; the rest is between that and the next call.
        let found = kept(vec![
            row(between(1_000_000, 5_000_000), false),
            row(call(0, 6_000_000, 500), true),
            row(between(6_000_500, 4_000_000), false),
            Around(stamps(0, 4_000_000, 3_000_500)),
        ]);
        assert_eq!(found[1].2, Some((3_000_500, 3_000_000, 0)));
        // A thread cannot lose the CPU and get it back in less than a microsecond.
        let found = kept(vec![
            row(between(1_000_000, 5_000_000), false),
            row(call(0, 6_000_000, 500), true),
            Around(stamps(0, 5_999_800, 900)),
        ]);
        assert_eq!(found[1].2, Some((900, 0, 0)));
    }

    #[test]
    fn a_handlers_calls_and_pieces_are_other_calls() {
        // A read interrupted by a signal, a write in the handler, the handler's return, and the rest of the
        // read.
        let found = kept(vec![
            row(
                Call {
                    restarted: true,
                    ..call(0, 1_000_000, 10_000)
                },
                true,
            ),
            row(call(1, 1_020_000, 3_000), true),
            Around(stamps(1, 1_019_900, 3_300)),
            row(call(15, 1_024_000, 200), false),
            row(call(0, 1_025_000, 40_000), true),
            // 65.4 us, without the time of the write.
            Around(stamps(0, 999_900, 65_400 - 3_300)),
        ]);
        let read = found.iter().find(|row| row.1 == 1_025_000).expect("it");
        assert_eq!(read.2, Some((65_400, 0, 13_200)));
        let write = found.iter().find(|row| row.0 == 1).expect("it");
        assert_eq!(write.2, Some((3_300, 0, 0)));
        assert_eq!(found[0], (0, 1_000_000, None));
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn stamps_that_cannot_be_true_are_refused_and_counted() {
        let began = 1_000_000_000;
        let now = began + 5_000_000_000;
        let mut waiting = Stamps::since(began);
        let mut kept = Vec::new();
        let mut keep = |call: Call| {
            kept.push(call.user.is_some());
            Ok(())
        };
        let start = began + 2_000_000_000;
        let impossible = [
            (start - 100, u64::MAX),
            (start - 100, now - start + 1_000_000), // not over yet
            (began - 1_000_000, now - began),       // begun before the session
            (u64::MAX, 1),
        ];
        for (begin, wall) in impossible {
            waiting
                .add(call(0, start, 500), true, &mut keep)
                .expect("it");
            let stamps = stamps(0, begin, wall);
            waiting.take(&stamps, now, &mut keep).expect("it");
        }
        assert_eq!(waiting.refused, 4);
        waiting
            .add(call(0, start, 500), true, &mut keep)
            .expect("it");
        waiting
            .take(&stamps(0, start - 100, 900), now, &mut keep)
            .expect("it");
        assert_eq!(waiting.refused, 4);
        waiting.give_all(&mut keep).expect("it");
        assert_eq!(kept, [false, false, false, false, true]);
    }

    #[test]
    fn lost_stamps_do_not_hold_up_the_rest() {
        let rows = (0..3_000).map(|at| row(call(0, 1_000_000 * at, 500), true));
        let mut stamps = Stamps::default();
        let mut kept = 0;
        for row in rows {
            if let Came::Call(call, is_stamped) = row {
                let mut keep = |_| {
                    kept += 1;
                    Ok(())
                };
                stamps.add(*call, is_stamped, &mut keep).expect("it");
            }
        }
        assert_eq!(kept, 3_000 - MAX_WAITING);
    }

    #[test]
    fn numbers_without_sense_do_no_harm() {
        let most = u64::MAX;
        let found = kept(vec![
            row(call(0, most, most), true),
            Around(stamps(0, most, most)),
            row(call(0, 0, 0), true),
            Around(stamps(0, 0, most)),
            Around(stamps(9, 5, 5)),
        ]);
        assert_eq!(found.len(), 2);
    }
}
