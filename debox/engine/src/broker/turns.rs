//! Takes turns between users, so that one user's many connections do not delay those of others.

use std::collections::HashMap;

/// The order in which ready connections (number and user) are served: first one of each user, then the
/// second of each, up to `most` of each user.
pub fn in_turns(ready: &[(u64, u32)], most: usize) -> Vec<u64> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    let mut turns: Vec<(usize, u64)> = Vec::with_capacity(ready.len());
    for (number, user) in ready {
        let turn = counts.entry(*user).or_default();
        if *turn < most {
            turns.push((*turn, *number));
        }
        *turn += 1;
    }
    turns.sort_by_key(|(turn, _)| *turn); // stable: in order of arrival within a turn
    turns.into_iter().map(|(_, number)| number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_users_connections_do_not_keep_anothers_waiting() {
        let mut ready: Vec<(u64, u32)> = (0..100).map(|number| (number, 1)).collect();
        ready.extend([(100, 2), (101, 3), (102, 3)]);
        assert_eq!(in_turns(&ready, 3), [0, 100, 101, 1, 102, 2]);
        assert_eq!(in_turns(&[], 3), [] as [u64; 0]);
    }
}
