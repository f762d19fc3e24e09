//! A predicate of a trigger or a filter that somebody typed.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    debox_model::outside::predicate(text);
});
