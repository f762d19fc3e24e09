//! What the iterator over the tasks prints.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    debox::outside::in_flight(bytes);
});
