//! The call tree inside the kernel.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    debox::outside::tree(bytes);
});
