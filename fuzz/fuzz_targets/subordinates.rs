//! The file that says whose the subordinate user ids are, and the file of users.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| debox::outside::subordinates(bytes));
