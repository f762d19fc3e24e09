//! The kernel's list of its symbols, and an address in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((address, list)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let list = String::from_utf8_lossy(list);
    debox::outside::kernel_symbols(&list, u64::from_le_bytes(*address));
});
