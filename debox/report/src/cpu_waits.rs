//! Who had the CPU that threads waited for. Each record has the time that a quota took, and the largest
//! owner of the rest.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use debox_model::report::{CpuWait, CpuWaitKind, Headline};
use rustc_hash::FxHashMap;

use crate::names::{Name, Names, NONE, TOO_MANY};
use crate::report::{CpuOwner, CpuWaits, Thread};

/// Owners that are kept separately, at most.
const OWNERS_MAX: usize = 20_000;
/// Owners in a report, at most.
const OWNERS: usize = 40;

/// Kinds of owners as they are named in records; kinds that are processes come first.
const KINDS: [&str; 8] = [
    "task", OWN, "kernel", "idle", "hidden", "stolen", MANY, UNKNOWN,
];
const PROCESSES: usize = 3;
const OWN: &str = "own";
const MANY: &str = "many";
const UNKNOWN: &str = "unknown";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerKey {
    pub kind: Name,
    pub comm: Name,
    /// 0 if the owner is no process.
    pub pid: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    calls: u64,
    ns: u64,
    longest_ns: u64,
}

impl Sum {
    fn merge(&mut self, other: &Sum) {
        self.calls += other.calls;
        self.ns = self.ns.saturating_add(other.ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    fn of(ns: u64) -> Sum {
        Sum {
            calls: 1,
            ns,
            longest_ns: ns,
        }
    }
}

/// Sums over the rows that have CPU owners.
#[derive(Debug, Clone, Default)]
pub struct CpuSums {
    rows: u64,
    waited_ns: u64,
    throttled: Sum,
    owners: FxHashMap<OwnerKey, Sum>,
}

impl CpuSums {
    /// Adds a row. A damaged file may give an owner more time than there was.
    pub fn add(&mut self, waited_ns: u64, throttled_ns: u64, owner: Option<(OwnerKey, u64)>) {
        self.rows += 1;
        self.waited_ns = self.waited_ns.saturating_add(waited_ns);
        let throttled_ns = throttled_ns.min(waited_ns);
        if throttled_ns > 0 {
            self.throttled.merge(&Sum::of(throttled_ns));
        }
        if let Some((key, ns)) = owner {
            self.add_owner(key, &Sum::of(ns.min(waited_ns - throttled_ns)));
        }
    }

    fn add_owner(&mut self, key: OwnerKey, add: &Sum) {
        let is_full = self.owners.len() >= OWNERS_MAX && !self.owners.contains_key(&key);
        let key = match is_full {
            true => OwnerKey {
                kind: TOO_MANY,
                comm: NONE,
                pid: 0,
            },
            false => key,
        };
        self.owners.entry(key).or_default().merge(add);
    }

    pub fn merge(&mut self, other: &CpuSums) {
        self.rows += other.rows;
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        self.throttled.merge(&other.throttled);
        let mut owners: Vec<_> = other.owners.iter().collect();
        owners.sort_unstable_by_key(|(key, _)| **key);
        for (key, sum) in owners {
            self.add_owner(*key, sum);
        }
    }

    /// `None` if CPU owners were not measured.
    pub fn report(&self, names: &Names) -> Option<CpuWaits> {
        if self.rows == 0 {
            return None;
        }
        let owner = |(key, sum): (&OwnerKey, &Sum)| {
            let kind = match key.kind {
                TOO_MANY => MANY.into(),
                kind => names.get(kind),
            };
            let known = KINDS.iter().position(|known| *known == &*kind);
            let is_process = known.is_some_and(|at| at < PROCESSES);
            CpuOwner {
                comm: names
                    .text(key.comm)
                    .filter(|_| is_process)
                    .map(|comm| comm.to_string()),
                pid: is_process.then_some(key.pid),
                kind: known.map_or(UNKNOWN, |at| KINDS[at]).to_string(),
                calls: sum.calls,
                ns: sum.ns,
                longest_ns: sum.longest_ns,
            }
        };
        let mut owners: Vec<CpuOwner> = self.owners.iter().map(owner).collect();
        owners.sort_by_key(|owner| {
            let who = (owner.kind.clone(), owner.comm.clone(), owner.pid);
            (Reverse(owner.ns), who)
        });
        owners.truncate(OWNERS);
        let told_ns = owners
            .iter()
            .fold(self.throttled.ns, |sum, owner| sum.saturating_add(owner.ns));
        Some(CpuWaits {
            waited_ns: self.waited_ns,
            throttled_ns: self.throttled.ns,
            throttled_calls: self.throttled.calls,
            throttled_longest_ns: self.throttled.longest_ns,
            group: None,
            owners,
            others_ns: self.waited_ns.saturating_sub(told_ns),
        })
    }
}

impl CpuWaits {
    /// Sets the control group of the quota. The records do not have it; the recorder's headline does.
    pub(crate) fn name_group(&mut self, headline: Option<&Headline>) {
        let shares = headline.into_iter().flat_map(|headline| &headline.shares);
        let quotas = shares.filter(|share| share.cause == "CPU quota");
        let groups: BTreeSet<&String> = quotas
            .filter_map(|share| share.resource.as_ref()?.name.as_ref())
            .collect();
        // With several groups, it is not known which time belongs to which.
        if let (1, Some(group)) = (groups.len(), groups.first()) {
            self.group = Some(group.to_string());
        }
    }

    /// The same as rows of a `debox run` report, as far as they are known here: neither by call nor by
    /// part of the budget.
    pub fn rows(&self, threads: &[Thread]) -> Vec<CpuWait> {
        let own: BTreeSet<u32> = threads.iter().map(|thread| thread.pid).collect();
        let quota = CpuWait {
            kind: CpuWaitKind::Quota,
            group: self.group.clone(),
            turns: self.throttled_calls,
            ns: self.throttled_ns,
            max_ns: self.throttled_longest_ns,
            ..CpuWait::default()
        };
        let owners = self.owners.iter().map(|owner| CpuWait {
            kind: match owner.kind.as_str() {
                OWN => CpuWaitKind::Task,
                kind => CpuWaitKind::of(kind).unwrap_or_default(),
            },
            comm: owner.comm.clone(),
            pid: owner.pid,
            is_own: owner.pid.is_some_and(|pid| own.contains(&pid)),
            turns: owner.calls,
            ns: owner.ns,
            max_ns: owner.longest_ns,
            ..CpuWait::default()
        });
        let others = CpuWait {
            kind: CpuWaitKind::Many,
            ns: self.others_ns,
            ..CpuWait::default()
        };
        let all = [quota].into_iter().chain(owners).chain([others]);
        all.filter(|wait| wait.ns > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use debox_model::report::{Resource, Share};
    use proptest::prelude::*;

    use super::*;
    use crate::sentences::cpu_owner_sentence;

    fn key(names: &Names, kind: &str, comm: &str, pid: u32) -> OwnerKey {
        let comm = if comm.is_empty() {
            NONE
        } else {
            names.of(comm)
        };
        OwnerKey {
            kind: names.of(kind),
            comm,
            pid,
        }
    }

    #[test]
    fn owners_are_added_up_and_the_quota_stands_apart() {
        let names = Names::default();
        let hog = key(&names, "task", "hog", 7);
        let mut sums = CpuSums::default();
        assert!(sums.report(&names).is_none());
        sums.add(100, 60, Some((hog, 30)));
        let mut other = CpuSums::default();
        other.add(50, 0, Some((hog, 50)));
        other.add(40, 40, None);
        other.add(20, 0, Some((key(&names, "idle", "", 0), 20)));
        sums.merge(&other);
        let mut waits = sums.report(&names).expect("measured");
        assert_eq!((waits.waited_ns, waits.throttled_ns), (210, 100));
        assert_eq!((waits.throttled_calls, waits.throttled_longest_ns), (2, 60));
        let owners: Vec<_> = waits.owners.iter().collect();
        assert_eq!(
            (owners[0].ns, owners[0].calls, owners[0].pid),
            (80, 2, Some(7))
        );
        assert_eq!(
            (&*owners[1].kind, owners[1].ns, owners[1].pid),
            ("idle", 20, None)
        );
        assert_eq!(waits.others_ns, 10);
        let headline = Headline {
            shares: vec![Share {
                cause: "CPU quota".to_string(),
                resource: Some(Resource {
                    kind: "cgroup".to_string(),
                    name: Some("limited".to_string()),
                }),
                ..Share::default()
            }],
            ..Headline::default()
        };
        waits.name_group(Some(&headline));
        let text = cpu_owner_sentence(&waits);
        assert_eq!(
            text,
            " For 100 ns of that the control group limited had used up its CPU quota. hog (7) had \
             the CPU for 80 ns."
        );
        let rows = waits.rows(&[]);
        assert_eq!(rows.iter().map(|row| row.ns).sum::<u64>(), 210);
        assert_eq!(rows[0].group.as_deref(), Some("limited"));
    }

    proptest! {
        /// A damaged file may say anything.
        #[test]
        fn parts_add_up_whatever_the_rows_say(
            rows in prop::collection::vec(
                (0u64..1 << 40, any::<u64>(), 0usize..9, any::<u32>(), any::<u64>()), 0..60
            )
        ) {
            let names = Names::default();
            let kinds = ["task", "own", "kernel", "idle", "hidden", "many", "unknown", "(other)", "x"];
            let mut sums = CpuSums::default();
            for (waited, throttled, kind, pid, ns) in &rows {
                let owner = key(&names, kinds[*kind], "hog", *pid);
                sums.add(*waited, *throttled, (*pid != 0).then_some((owner, *ns)));
            }
            let Some(waits) = sums.report(&names) else {
                prop_assert!(rows.is_empty());
                return Ok(());
            };
            let owners: u64 = waits.owners.iter().map(|owner| owner.ns).sum();
            prop_assert_eq!(waits.waited_ns, rows.iter().map(|row| row.0).sum::<u64>());
            prop_assert_eq!(waits.throttled_ns + owners + waits.others_ns, waits.waited_ns);
            for owner in &waits.owners {
                prop_assert!(KINDS.contains(&&*owner.kind));
                prop_assert_eq!(owner.comm.is_some(), owner.pid.is_some());
            }
        }
    }
}
