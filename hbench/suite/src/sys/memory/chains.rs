// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chains of loads: each word has the address of the next, so no load can begin before the one before it has ended.
//!
//! Nothing but the load is between two loads. A number of a word instead of its address, or a test whether it lies within the
//! memory, would be a part of each load's time: three of seven cycles where a load takes four.

use std::marker::PhantomData;
use std::ptr;

use super::Mapping;

/// Memory in which each word that was linked has the address of another such word.
#[derive(Debug)]
pub struct Chains {
    // Only `link` writes to it: this structure owns the mapping and does not hand it out.
    memory: Mapping,
}

/// A word of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link<'a> {
    /// Linked, in memory that lives as long as `'a`.
    word: *const Word,
    memory: PhantomData<&'a Chains>,
}

struct Word {
    next: *const Word,
}

impl Chains {
    pub fn new(memory: Mapping) -> Chains {
        Chains { memory }
    }

    /// Makes these words a cycle, in this order. Returns the first; `None`: there is none.
    ///
    /// # Panics
    ///
    /// A word does not lie within the memory.
    pub fn link(&self, words: &[usize]) -> Option<Link<'_>> {
        let count = self.memory.bytes() / size_of::<Word>();
        // Before the first is written: a chain that is half made would lead anywhere.
        assert!(words.iter().all(|word| *word < count));
        let begin = self.memory.address().cast::<Word>();
        let next = words.iter().cycle().skip(1);
        for (word, next) in words.iter().zip(next) {
            // SAFETY: both words lie within the memory.
            unsafe {
                let next = begin.add(*next).cast_const();
                ptr::write_volatile(&raw mut (*begin.add(*word)).next, next);
            }
        }
        let first = words.first()?;
        Some(Link {
            // SAFETY: as above.
            word: unsafe { begin.add(*first) },
            memory: PhantomData,
        })
    }
}

impl Link<'_> {
    /// The link so many steps further.
    #[inline(never)]
    pub fn follow(self, steps: u64) -> Self {
        let mut word = self.word;
        for _ in 0..steps {
            // SAFETY: it is linked, so it has the address of a linked word.
            word = unsafe { ptr::read_volatile(&raw const (*word).next) };
        }
        Link { word, ..self }
    }

    /// The same with several chains at the same time; `steps` of each.
    #[inline(never)]
    pub fn follow_together<const CHAINS: usize>(
        from: [Self; CHAINS],
        steps: u64,
    ) -> [Self; CHAINS] {
        let mut at = from;
        for _ in 0..steps {
            for link in &mut at {
                // SAFETY: as above.
                link.word = unsafe { ptr::read_volatile(&raw const (*link.word).next) };
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chains() -> Chains {
        Chains::new(Mapping::filled(4096).expect("memory"))
    }

    #[test]
    fn a_chain_goes_through_its_words_in_their_order() {
        let chains = chains();
        let begin = chains.memory.address().cast_const().cast::<Word>();
        let words = [7, 511, 0, 42];
        let first = chains.link(&words).expect("four words");
        for (steps, word) in words.iter().cycle().take(9).enumerate() {
            let at = first.follow(steps as u64);
            assert_eq!(at.word, begin.wrapping_add(*word));
        }
        let [one, other] = Link::follow_together([first, first.follow(3)], 2);
        assert_eq!((one, other), (first.follow(2), first.follow(1)));
    }

    #[test]
    fn words_outside_are_refused_before_one_is_written() {
        let chains = chains();
        let first = chains.link(&[1, 2]).expect("two words");
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            chains.link(&[1, 512]).is_some()
        }));
        assert!(refused.is_err());
        assert_eq!(first.follow(2), first);
        assert_eq!(chains.link(&[]), None);
    }
}
