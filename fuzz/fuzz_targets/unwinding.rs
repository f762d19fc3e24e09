//! A user stack, and the unwinding tables of its program.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    debox::outside::unwinding(bytes);
});
