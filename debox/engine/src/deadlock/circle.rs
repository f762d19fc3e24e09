//! Finds circles among threads of which each waits for at most one other.

use std::collections::BTreeMap;

/// The circles, each starting with its smallest id. `waits`: who waits for whom.
pub(super) fn find(waits: &BTreeMap<u32, u32>) -> Vec<Vec<u32>> {
    // The walk in which each thread was reached.
    let mut walked: BTreeMap<u32, u32> = BTreeMap::new();
    let mut circles = Vec::new();
    for start in waits.keys() {
        let mut way = Vec::new();
        let mut at = *start;
        loop {
            match walked.get(&at) {
                None => {}
                Some(walk) if walk == start => {
                    let begin = way.iter().position(|tid| *tid == at).unwrap_or(0);
                    circles.push(from_smallest(&way[begin..]));
                    break;
                }
                Some(_) => break, // an earlier walk continued from here
            }
            walked.insert(at, *start);
            way.push(at);
            match waits.get(&at) {
                Some(next) => at = *next,
                None => break,
            }
        }
    }
    circles
}

fn from_smallest(circle: &[u32]) -> Vec<u32> {
    let smallest = (0..circle.len()).min_by_key(|index| circle[*index]);
    let (before, from) = circle.split_at(smallest.unwrap_or(0));
    [from, before].concat()
}

/// How many threads wait for one in the circle, directly or indirectly.
pub(super) fn behind(waits: &BTreeMap<u32, u32>, circle: &[u32]) -> usize {
    let leads_there = |start: &&u32| {
        let mut at = **start;
        for _ in 0..waits.len() {
            if circle.contains(&at) {
                return true;
            }
            match waits.get(&at) {
                Some(next) => at = *next,
                None => return false,
            }
        }
        false
    };
    let others = waits.keys().filter(|tid| !circle.contains(tid));
    others.filter(leads_there).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_circle_is_found_once() {
        let waits = BTreeMap::from([(5, 3), (3, 4), (4, 5), (9, 5), (8, 9), (1, 1), (7, 6)]);
        assert_eq!(find(&waits), [vec![1], vec![3, 4, 5]]);
        assert_eq!(behind(&waits, &[3, 4, 5]), 2);
        assert_eq!(behind(&waits, &[1]), 0);
        assert!(find(&BTreeMap::from([(1, 2), (2, 3)])).is_empty());
    }

    proptest! {
        #[test]
        fn circles_are_circles(waits in prop::collection::btree_map(0u32..20, 0u32..20, 0..20)) {
            let circles = find(&waits);
            for circle in &circles {
                for (tid, next) in circle.iter().zip(circle.iter().cycle().skip(1)) {
                    prop_assert_eq!(waits.get(tid), Some(next));
                }
            }
            // A thread is in a circle if the walk from it returns to it.
            for start in waits.keys() {
                let mut at = *start;
                let returns = (0..waits.len()).any(|_| {
                    at = waits.get(&at).copied().unwrap_or(u32::MAX);
                    at == *start
                });
                let found = circles.iter().filter(|circle| circle.contains(start)).count();
                prop_assert_eq!(found, usize::from(returns));
            }
        }
    }
}
