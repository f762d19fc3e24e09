// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chains of loads: each word has the number of the next, so no load can begin before the one before it has ended.

use crate::benchmark::{verify, Failure};
use crate::sys::Chunk;

/// Numbers in no order that a prefetcher knows; the same in every run.
#[derive(Debug)]
pub struct Disorder(u64);

impl Disorder {
    pub fn new() -> Disorder {
        Disorder(0x9e37_79b9_7f4a_7c15)
    }

    /// Below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    /// All numbers below `count`.
    pub fn order(&mut self, count: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count as u32).collect();
        self.shuffle(&mut order);
        order
    }

    pub fn shuffle<T>(&mut self, of: &mut [T]) {
        for at in (1..of.len()).rev() {
            of.swap(at, self.below(at + 1));
        }
    }
}

/// Makes the words a cycle in this order, and follows it once. The first word.
///
/// # Errors
///
/// The chain does not return to its first word after as many loads as there are words.
pub fn link(memory: &Chunk, words: impl IntoIterator<Item = usize>) -> Result<u64, Failure> {
    let mut words = words.into_iter();
    let first = words.next();
    let first = first.ok_or_else(|| Failure::Wrong("a chain without words".to_string()))?;
    let (mut last, mut length) = (first, 1);
    for word in words {
        memory.set(last, word as u64);
        last = word;
        length += 1;
    }
    memory.set(last, first as u64);
    let back = memory.follow(first as u64, length);
    verify(back == first as u64, || format!("the chain ends at {back}"))?;
    Ok(first as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Mapping;

    #[test]
    fn a_chain_returns_and_visits_each_word() {
        let memory = Mapping::filled(800).expect("memory");
        let mut order = Disorder::new().order(100);
        let first = link(&memory.all(), order.iter().map(|word| *word as usize)).expect("a cycle");
        assert_eq!(first, u64::from(order[0]));
        let mut at = first;
        for word in order.iter().skip(1) {
            at = memory.all().follow(at, 1);
            assert_eq!(at, u64::from(*word));
        }
        assert!(order.iter().zip(0..).any(|(word, at)| *word != at));
        order.sort_unstable();
        assert!(order.iter().zip(0..).all(|(word, at)| *word == at));
        // A word that is there twice makes the cycle shorter.
        assert!(link(&memory.all(), [1, 2, 3, 3]).is_err());
        assert!(link(&memory.all(), []).is_err());
    }
}
