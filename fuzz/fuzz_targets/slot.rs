//! The ring of records that a process can write to.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    debox::outside::slot(bytes);
});
