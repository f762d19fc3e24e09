//! A file that is given to `debox report`: an error, or a report and its page.
#![no_main]

use std::io::Write;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::Builder::new()
        .suffix(".parquet")
        .tempfile_in("/dev/shm")
        .expect("memory");
    file.write_all(bytes).expect("memory");
    let Ok(history) = debox_history::History::open(&[file.path()]) else {
        return;
    };
    if let Ok(analysis) = debox_report::analyze(&history, 1, &|_| {}) {
        let _ = debox_report::page::page(&analysis.report);
    }
});
