//! Label rules that somebody wrote.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    debox_model::outside::labels(text);
});
