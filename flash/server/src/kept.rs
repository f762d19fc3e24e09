// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was used last is kept for a while, in a bounded number: names, and descriptors of files.

use std::collections::HashMap;
use std::hash::Hash;

/// At most so many values, or so much weight of values. Two generations: when the younger one is full or old enough, it
/// becomes the older one, and what was in that is dropped. What is used is in the younger one again.
pub struct Kept<K, V> {
    most: usize,
    /// With the weight of each.
    younger: HashMap<K, (V, usize)>,
    older: HashMap<K, (V, usize)>,
    /// Of the younger ones.
    weight: usize,
}

impl<K: Eq + Hash + Clone, V> Kept<K, V> {
    pub fn new(most: usize) -> Kept<K, V> {
        Kept {
            most,
            younger: HashMap::new(),
            older: HashMap::new(),
            weight: 0,
        }
    }

    pub fn keep(&mut self, key: K, value: V) {
        self.keep_heavy(key, value, 1);
    }

    /// Keeps a value that takes as much as so many others. What is heavier than one generation is not kept.
    pub fn keep_heavy(&mut self, key: K, value: V, weight: usize) {
        self.remove(&key);
        if weight > self.most / 2 {
            return;
        }
        if self.weight + weight > self.most / 2 {
            self.turn();
        }
        self.weight += weight;
        self.younger.insert(key, (value, weight));
    }

    /// Uses a value.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        if let Some((value, weight)) = self.older.remove(key) {
            self.keep_heavy(key.clone(), value, weight);
        }
        self.younger.get_mut(key).map(|(value, _)| value)
    }

    pub fn remove(&mut self, key: &K) {
        if let Some((_, weight)) = self.younger.remove(key) {
            self.weight -= weight;
        }
        self.older.remove(key);
    }

    /// Call it at regular intervals: nothing is kept for longer than two of them without having been used.
    pub fn turn(&mut self) {
        self.older = std::mem::take(&mut self.younger);
        self.weight = 0;
    }

    pub fn clear(&mut self) {
        self.turn();
        self.older.clear();
    }

    pub fn len(&self) -> usize {
        self.younger.len() + self.older.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_kept_than_may_be_and_no_longer() {
        let mut kept = Kept::new(10);
        for number in 0..100u8 {
            kept.keep((0, vec![number]), number);
            assert!(kept.len() <= 10);
        }
        kept.keep((0, vec![99]), 99);
        assert!(kept.len() >= 5, "the last ones are there");
        kept.turn();
        assert!(kept.len() > 0);
        kept.turn();
        assert_eq!(kept.len(), 0);
        kept.keep((0, vec![1]), 1);
        kept.clear();
        assert_eq!(kept.len(), 0);
        let mut none = Kept::new(0);
        none.keep((0, vec![1]), 1);
        assert_eq!(none.len(), 0);
    }

    #[test]
    fn no_more_weight_is_kept_than_may_be() {
        let mut kept = Kept::new(100);
        let weight = |number: usize| number % 60;
        for number in 0..1000 {
            kept.keep_heavy(number % 7, number, weight(number));
            kept.get(&(number * 3 % 7));
            let all = kept.younger.values().chain(kept.older.values());
            assert!(all.map(|(_, weight)| weight).sum::<usize>() <= 100);
            let younger: usize = kept.younger.values().map(|(_, weight)| weight).sum();
            assert_eq!(younger, kept.weight);
            let is_kept = kept.get(&(number % 7)) == Some(&mut number.clone());
            assert_eq!(is_kept, weight(number) <= 50, "{number}");
        }
    }

    #[test]
    fn what_is_used_stays() {
        let mut kept = Kept::new(8);
        kept.keep(0, 'a');
        for number in 1..100 {
            kept.keep(number, 'b');
            assert_eq!(kept.get(&0), Some(&mut 'a'));
            assert!(kept.len() <= 8);
        }
        kept.remove(&0);
        assert_eq!(kept.get(&0), None);
        assert_eq!(kept.get(&1), None, "it was not used");
    }
}
