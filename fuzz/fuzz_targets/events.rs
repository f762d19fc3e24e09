//! Messages of the probes, and what becomes of the call sites in them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    debox::outside::events(bytes);
});
