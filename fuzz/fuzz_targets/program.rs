//! A program or library: its first two words are offsets of code to look up.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((offsets, program)) = bytes.split_at_checked(16) else {
        return;
    };
    let word = |at: usize| u64::from_le_bytes(offsets[at..at + 8].try_into().expect("eight bytes"));
    debox::outside::program(program, &[word(0), word(8)]);
});
