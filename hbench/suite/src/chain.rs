// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chains of loads in an order that a prefetcher does not know.

use crate::benchmark::{verify, Failure};
use crate::sys::{Chains, Link};

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
pub fn link(chains: &Chains, words: impl IntoIterator<Item = usize>) -> Result<Link<'_>, Failure> {
    let words: Vec<usize> = words.into_iter().collect();
    let first = chains.link(&words);
    let first = first.ok_or_else(|| Failure::Wrong("a chain without words".to_string()))?;
    let back = first.follow(words.len() as u64);
    verify(back == first, || {
        "the chain does not return to its first word".to_string()
    })?;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Mapping;

    #[test]
    fn all_numbers_are_there_in_no_order() {
        let mut order = Disorder::new().order(100);
        assert!(order.iter().zip(0..).any(|(word, at)| *word != at));
        order.sort_unstable();
        assert!(order.iter().zip(0..).all(|(word, at)| *word == at));
    }

    #[test]
    fn a_chain_that_is_shorter_than_its_words_is_refused() {
        let chains = Chains::new(Mapping::filled(800).expect("memory"));
        let order = Disorder::new().order(100);
        assert!(link(&chains, order.iter().map(|word| *word as usize)).is_ok());
        // A word that is there twice makes the cycle shorter.
        assert!(link(&chains, [1, 2, 3, 3]).is_err());
        assert!(link(&chains, []).is_err());
    }
}
