//! Rows that processes under the user tap wrote.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    debox::outside::rows(bytes);
});
