//! Tables of a session, of which a report is made.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let report = debox::outside::report(bytes);
    serde_json::to_string(&report).expect("a report serializes");
});
