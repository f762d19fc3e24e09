// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to one word of two: half as many instructions for each cache line as in access to all words.

use super::Chunk;

const STRIDE: usize = 2;
/// Accesses that a loop makes without a test between them.
const UNROLLED: usize = 16;

impl Chunk<'_> {
    /// Calls `visit` for every second word, with its number.
    #[inline(always)]
    fn every_second(&self, mut visit: impl FnMut(usize)) {
        let mut at = 0;
        while at + UNROLLED * STRIDE <= self.words {
            for access in 0..UNROLLED {
                visit(at + access * STRIDE);
            }
            at += UNROLLED * STRIDE;
        }
        while at < self.words {
            visit(at);
            at += STRIDE;
        }
    }

    /// The sum of every second word.
    #[inline(never)]
    pub fn read_half(&self) -> u64 {
        let mut sums = [0u64; 4];
        self.every_second(|word| {
            // SAFETY: the word lies within the chunk.
            let value = unsafe { self.begin.add(word).read_volatile() };
            let sum = &mut sums[word / STRIDE % 4];
            *sum = sum.wrapping_add(value);
        });
        sums.iter().fold(0, |sum, part| sum.wrapping_add(*part))
    }

    #[inline(never)]
    pub fn write_half(&self, value: u64) {
        self.every_second(|word| {
            // SAFETY: the word lies within the chunk.
            unsafe { self.begin.add(word).write_volatile(value) };
        });
    }

    /// Replaces the first four bytes of every second word; the sum of what was there. Each addition waits for the one before
    /// it.
    #[inline(never)]
    pub fn replace_quarter(&self, value: u32) -> u32 {
        let mut sum = 0u32;
        self.every_second(|word| {
            // SAFETY: the word lies within the chunk.
            let four = unsafe { self.begin.add(word) }.cast::<u32>();
            // SAFETY: as above.
            sum = sum.wrapping_add(unsafe { four.read_volatile() });
            // SAFETY: as above.
            unsafe { four.write_volatile(value) };
        });
        sum
    }

    /// Copies every second word.
    ///
    /// # Panics
    ///
    /// The other chunk has another size.
    #[inline(never)]
    pub fn copy_half_from(&self, other: &Chunk<'_>) {
        assert_eq!(self.words, other.words);
        self.every_second(|word| {
            // SAFETY: both words lie within their chunks, which are equally long.
            unsafe {
                let value = other.begin.add(word).read_volatile();
                self.begin.add(word).write_volatile(value);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mapping;

    #[test]
    fn every_second_word_is_accessed() {
        // More than the unrolled loop takes, and an odd number of words.
        let bytes = 8 * (32 + 7);
        let memory = Mapping::filled(bytes).expect("memory");
        assert_eq!(memory.all().read_half(), 20);
        memory.all().write_half(3);
        assert_eq!((memory.all().read_half(), memory.all().read()), (60, 79));
        assert_eq!(memory.all().replace_quarter(5), 60);
        let other = Mapping::filled(bytes).expect("memory");
        other.all().copy_half_from(&memory.all());
        assert_eq!(other.all().read(), 100 + 19);
    }
}
