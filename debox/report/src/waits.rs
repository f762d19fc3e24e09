// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of waits: who waited for what, from where, and who held it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use debox_model::runtimes::Purpose;

use crate::aggregate::{Aggregate, WaitSums};
use crate::held_up::HeldUp;
use crate::names::{Name, Names, NONE, TOO_MANY};
use crate::report::Wait;
use crate::rest::{self, Rests};
use crate::slow_calls::waker_words;
use crate::wait_key::WaitKey;

/// Rows, at most: a page has to stay small.
const WAITS: usize = 60;

/// A thread that reads a thousand files waits for a thousand resources, each for a short time. Resources below
/// this part of all waits of the same call from the same place share one row.
const OWN_ROW: f64 = 0.1;

/// Stands for owners with different names.
pub const SEVERAL_OWNERS: &str = "several threads";

/// A row before it has words: waits that rest and waits that do not are never in the same row.
struct Row {
    key: WaitKey,
    is_rest: bool,
    sums: WaitSums,
    /// The number of resources or owners that were folded into it; 0: none.
    folded: u64,
    held_up: HeldUp,
}

/// What is known of who holds what a wait is for. Rows with different knowledge are not folded into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Free,
    ByUnknown,
    ByKnown,
}

fn held(key: &WaitKey) -> Held {
    match (key.owner != NONE, key.certainty != NONE) {
        (true, _) => Held::ByKnown,
        (false, true) => Held::ByUnknown,
        (false, false) => Held::Free,
    }
}

/// The longest waits, and how many rows were left out. Waits for work come after the others, and those whose label is
/// idle come last.
pub fn waits(sums: &Aggregate, rests: &Rests, begin: i64, names: &Names) -> (Vec<Wait>, u64) {
    let mut rows = fold(sums, rests);
    let idle = names.of("idle");
    let is_idle = |key: &WaitKey| {
        let class = sums.classes.get(&key.label);
        class.is_some_and(|(class, _)| *class == idle)
    };
    rows.sort_by_cached_key(|row| {
        let rank = match (is_idle(&row.key), row.is_rest) {
            (true, _) => 2,
            (false, is_rest) => u8::from(is_rest),
        };
        (rank, Reverse(row.sums.blocked), row.key)
    });
    let left_out = rows.len().saturating_sub(WAITS) as u64;
    rows.truncate(WAITS);
    add_held_up(&mut rows, sums, rests);
    let shown = rows.iter();
    let shown = shown.map(|row| wait(row, sums, begin, names)).collect();
    (shown, left_out)
}

/// Adds to each row what is known of who held its waits up.
fn add_held_up(rows: &mut [Row], sums: &Aggregate, rests: &Rests) {
    let index = |is_folded: bool| {
        let rows = rows.iter().enumerate();
        let rows = rows.filter(move |(_, row)| (row.folded > 0) == is_folded);
        rows.map(move |(at, row)| match is_folded {
            true => ((place(&row.key), held(&row.key), row.is_rest), at),
            false => ((row.key, held(&row.key), row.is_rest), at),
        })
        .collect::<BTreeMap<_, _>>()
    };
    let (own, folded) = (index(false), index(true));
    for (woken, parts) in sums.woken.parts() {
        let is_rest = rest::is_rest(rests, &woken.key);
        let key = WaitKey {
            thread: None,
            ..woken.key
        };
        let held = held(&key);
        let row = own.get(&(key, held, is_rest));
        let row = row.or_else(|| folded.get(&(place(&key), held, is_rest)));
        if let Some(at) = row {
            rows[*at].held_up.add(&parts);
        }
    }
}

/// Where waits are, whatever they are for.
fn place(key: &WaitKey) -> WaitKey {
    WaitKey {
        resource: NONE,
        certainty: NONE,
        owner: NONE,
        doing: NONE,
        ..*key
    }
}

fn fold(sums: &Aggregate, rests: &Rests) -> Vec<Row> {
    // Threads of one name share their rows.
    let mut of_names: BTreeMap<(WaitKey, Held, bool), BTreeMap<WaitKey, WaitSums>> =
        BTreeMap::new();
    for (key, wait) in &sums.waits {
        let is_rest = rest::is_rest(rests, key);
        let key = WaitKey {
            thread: None,
            ..*key
        };
        let rows = of_names.entry((place(&key), held(&key), is_rest));
        let rows = rows.or_default();
        rows.entry(key)
            .and_modify(|known| known.merge(wait))
            .or_insert(*wait);
    }
    let mut rows = Vec::new();
    for ((place, held, is_rest), waits) in of_names {
        let blocked = waits.values().map(|wait| wait.blocked);
        let all = blocked.fold(0u64, u64::saturating_add);
        let is_own = |wait: &WaitSums| wait.blocked as f64 >= all as f64 * OWN_ROW;
        let mut small: Option<Row> = None;
        for (key, sums) in waits {
            match &mut small {
                _ if is_own(&sums) => rows.push(Row {
                    key,
                    is_rest,
                    sums,
                    folded: 0,
                    held_up: HeldUp::default(),
                }),
                None => {
                    small = Some(Row {
                        key,
                        is_rest,
                        sums,
                        folded: 0,
                        held_up: HeldUp::default(),
                    })
                }
                Some(row) => {
                    row.key = folded(place, held, row.key, key);
                    row.sums.merge(&sums);
                    row.folded = row.folded.max(1) + 1;
                }
            }
        }
        rows.extend(small);
    }
    rows
}

/// The key of a row for both. What they have in common of the owner stays.
fn folded(place: WaitKey, held: Held, one: WaitKey, other: WaitKey) -> WaitKey {
    let common = |one: Name, other: Name, different: Name| match one == other {
        true => one,
        false => different,
    };
    match held {
        Held::Free => place,
        _ => WaitKey {
            certainty: common(one.certainty, other.certainty, one.certainty),
            owner: common(one.owner, other.owner, TOO_MANY),
            ..place
        },
    }
}

fn wait(row: &Row, sums: &Aggregate, begin: i64, names: &Names) -> Wait {
    let Row {
        key, sums: wait, ..
    } = row;
    let maybe = |name: Name| names.text(name).map(|text| text.to_string());
    let waker = wait.waker.map_or_else(String::new, |(kind, comm)| {
        let kind = names.get(kind);
        waker_words(&kind, wait.waker_tid, names.text(comm).as_deref())
    });
    let since = |at: i64| at.saturating_sub(begin).max(0) as u64;
    Wait {
        comm: names.get(key.comm).to_string(),
        is_main: key.is_main,
        tid: wait.tid,
        many_threads: wait.many_tids,
        call: names.get(key.call).to_string(),
        label: names.get(key.label).to_string(),
        class: sums.class_of(key.label, names),
        resource: match key.resource {
            TOO_MANY => Some("many others".to_string()),
            name => maybe(name),
        },
        resources: row.folded,
        caller: maybe(key.caller),
        count: wait.count,
        in_flight: wait.open,
        blocked_ns: wait.blocked,
        longest_ns: wait.longest,
        first_ns: since(wait.first),
        last_ns: since(wait.last),
        is_rest: row.is_rest,
        is_lock: key.purpose.is_lock(),
        is_at_work: key.purpose == Purpose::Request,
        owner_certainty: maybe(key.certainty),
        owner_comm: match key.owner {
            TOO_MANY => Some(SEVERAL_OWNERS.to_string()),
            name => maybe(name),
        },
        owner_tid: wait.owner_tid,
        many_owners: wait.many_owners,
        owner_doing: maybe(key.doing),
        waker,
        held_up_by: row.held_up.most(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held_up::Woken;
    use crate::report::Rest;

    const MS: u64 = 1_000_000;

    /// Many waits of one kind of thread at one place, all shorter than a tenth of their sum: at words of their own,
    /// half of them held; two of the threads rest.
    #[test]
    fn held_waits_and_free_ones_and_those_at_rest_are_in_rows_of_their_own() {
        let names = Names::default();
        let mut sums = Aggregate::new(0);
        let futex = names.of("futex");
        sums.classes.insert(futex, (names.of("lock"), 0));
        for at in 0..120u32 {
            let tid = 2 + at % 4;
            let is_held = at >= 60;
            let key = WaitKey {
                comm: names.of("worker"),
                is_main: false,
                call: futex,
                label: futex,
                resource: names.of(&format!("futex {at}")),
                caller: NONE,
                certainty: if is_held { names.of("exact") } else { NONE },
                owner: match is_held {
                    true => names.of(["a", "b"][at as usize % 2]),
                    false => NONE,
                },
                doing: NONE,
                purpose: Purpose::Unknown,
                thread: Some((1, tid)),
            };
            let wait = WaitSums {
                count: 1,
                blocked: MS,
                longest: MS,
                tid,
                owner_tid: is_held.then_some(9),
                ..WaitSums::default()
            };
            sums.add_wait(key, &wait);
            sums.woken.offer(Woken {
                key,
                line: NONE,
                tid,
                begin: 0,
                ns: MS,
                waker: (names.of("server"), 99),
            });
        }
        let rests = Rests::from_iter([((1, 2), Rest::AtRest), ((1, 3), Rest::CannotTell)]);
        let (rows, left_out) = waits(&sums, &rests, 0, &names);
        let shown: Vec<_> = rows
            .iter()
            .map(|row| {
                let owner = row.owner_comm.as_deref();
                (
                    owner,
                    row.is_rest,
                    row.count,
                    row.blocked_ns / MS,
                    row.resources,
                )
            })
            .collect();
        for row in &rows {
            let [by] = &row.held_up_by[..] else {
                panic!("{row:?}")
            };
            let seen = (&by.comm[..], by.tid, by.ns, by.waits);
            assert_eq!(seen, ("server", 99, row.blocked_ns, row.count));
        }
        assert_eq!(left_out, 0);
        assert_eq!(
            shown,
            [
                (Some(SEVERAL_OWNERS), false, 60, 60, 60),
                (None, false, 30, 30, 30),
                (None, true, 30, 30, 30),
            ]
        );
    }
}
