//! The tables for people, of any report: one that the engine makes of any bytes, or one read as JSON.
#![no_main]

/// What of the command is needed.
#[allow(dead_code)]
#[path = "../../debox/cli/src"]
mod cli {
    pub mod table;
}

use cli::table::{self, TableOptions};
use kit_units as units;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&[width, flags], rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let report = match serde_json::from_slice(rest) {
        Ok(report) => report,
        Err(_) => debox::outside::report(rest),
    };
    let options = TableOptions {
        color: flags & 1 != 0,
        width: usize::from(width),
        all: flags & 2 != 0,
    };
    let mut out = Vec::new();
    table::print(&mut out, &report, &options).expect("memory takes it");
    assert!(!out.is_empty());
});
