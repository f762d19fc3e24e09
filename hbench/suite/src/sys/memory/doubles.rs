// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arithmetic on memory as numbers of double precision, one by one.

use super::{Chunk, UNROLLED};

impl Chunk<'_> {
    /// Each number from the one at the same place of another chunk.
    ///
    /// # Panics
    ///
    /// The other chunk has another size.
    #[inline(always)]
    pub fn transform(&self, from: &Chunk<'_>, operate: impl Fn(f64) -> f64) {
        assert_eq!(self.words, from.words);
        self.every_number(|word| {
            // SAFETY: both words lie within their chunks, which are equally long.
            unsafe {
                let number = from.begin.add(word).cast::<f64>().read_volatile();
                let to = self.begin.add(word).cast::<f64>();
                to.write_volatile(operate(number));
            }
        });
    }

    /// Each number from those at the same place of two other chunks, one of which may be this one.
    ///
    /// # Panics
    ///
    /// Another chunk has another size.
    #[inline(always)]
    pub fn combine(&self, a: &Chunk<'_>, b: &Chunk<'_>, operate: impl Fn(f64, f64) -> f64) {
        assert!(self.words == a.words && self.words == b.words);
        self.every_number(|word| {
            // SAFETY: all three words lie within their chunks, which are equally long.
            unsafe {
                let first = a.begin.add(word).cast::<f64>().read_volatile();
                let second = b.begin.add(word).cast::<f64>().read_volatile();
                let to = self.begin.add(word).cast::<f64>();
                to.write_volatile(operate(first, second));
            }
        });
    }

    #[inline(never)]
    pub fn sum_numbers(&self) -> f64 {
        let mut sums = [0.0; 4];
        self.every_number(|word| sums[word % 4] += self.number(word));
        sums.iter().sum()
    }

    /// # Panics
    ///
    /// The chunk has no such word.
    #[inline(always)]
    pub fn number(&self, word: usize) -> f64 {
        assert!(word < self.words);
        // SAFETY: the word lies within the chunk, and every pattern of bits is a number.
        unsafe { self.begin.add(word).cast::<f64>().read_volatile() }
    }

    #[inline(always)]
    fn every_number(&self, mut visit: impl FnMut(usize)) {
        let mut at = 0;
        while at + UNROLLED <= self.words {
            for offset in 0..UNROLLED {
                visit(at + offset);
            }
            at += UNROLLED;
        }
        while at < self.words {
            visit(at);
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mapping;

    #[test]
    fn every_number_is_computed() {
        let memory = Mapping::anonymous(3 * 8 * 19).expect("memory");
        let part = |at: usize| memory.chunk(at * 8 * 19, 8 * 19);
        let (a, b, c) = (part(0), part(1), part(2));
        a.write(2.0f64.to_bits());
        b.transform(&a, |number| number + 1.0);
        c.combine(&a, &b, |first, second| first * second);
        assert_eq!((b.sum_numbers(), c.sum_numbers()), (57.0, 114.0));
        c.combine(&c, &a, |own, other| own + other);
        assert_eq!(c.number(18), 8.0);
    }
}
