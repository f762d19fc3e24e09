//! The bytes of a file. Each byte follows from the file's key and its offset, so a client can check
//! any part of a reply without having the file.

/// Finalizer of SplitMix64 (Steele, Lea, Flood 2014): every input bit changes half of the output.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Identifies the content of one file of one file set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    pub fn new(seed: u64, file: u64) -> Key {
        Key(mix(mix(seed) ^ file.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn word(self, index: u64) -> [u8; 8] {
        mix(self
            .0
            .wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .to_le_bytes()
    }

    /// The bytes of the file from `offset` on.
    pub fn fill(self, offset: u64, bytes: &mut [u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let word = self.word(at / 8);
            let skip = (at % 8) as usize;
            let length = rest.len().min(8 - skip);
            let (now, later) = rest.split_at_mut(length);
            now.copy_from_slice(&word[skip..skip + length]);
            at += length as u64;
            rest = later;
        }
    }

    /// Whether these are the bytes from `offset` on.
    pub fn matches(self, offset: u64, bytes: &[u8]) -> bool {
        let mut right = [0; 4096];
        let mut at = offset;
        bytes.chunks(right.len()).all(|piece| {
            let right = &mut right[..piece.len()];
            self.fill(at, right);
            at += piece.len() as u64;
            piece == right
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_part_is_the_part_of_the_whole(seed: u64, from in 0usize..500, length in 0usize..500) {
            let key = Key::new(seed, 7);
            let mut whole = vec![0; 1000];
            key.fill(0, &mut whole);
            let mut part = vec![0; length];
            key.fill(from as u64, &mut part);
            prop_assert_eq!(&part[..], &whole[from..from + length]);
            prop_assert!(key.matches(from as u64, &part));
            if let Some(last) = part.last_mut() {
                *last ^= 1;
                prop_assert!(!key.matches(from as u64, &part));
            }
        }
    }

    #[test]
    fn files_differ() {
        let first_words = |seed, file| Key::new(seed, file).word(0);
        assert_ne!(first_words(1, 1), first_words(1, 2));
        assert_ne!(first_words(1, 1), first_words(2, 1));
    }
}
