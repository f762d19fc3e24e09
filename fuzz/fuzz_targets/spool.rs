//! What a killed `latlab` has left: the first line is what the rows are of, the rest are rows. If the first
//! byte of all is odd, their checksums are made right, so that what is behind those is reached.
#![no_main]

use latlab::recover::{recover, Options};
use libfuzzer_sys::fuzz_target;

const ROW_BYTES: usize = 69;

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else {
        return;
    };
    let end = rest
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(rest.len());
    let (description, rows) = rest.split_at(end);
    let mut rows = rows.get(1..).unwrap_or_default().to_vec();
    if kind % 2 == 1 {
        for row in rows.chunks_exact_mut(ROW_BYTES) {
            let (content, sum) = row.split_at_mut(ROW_BYTES - 4);
            sum.copy_from_slice(&crc32fast::hash(content).to_le_bytes());
        }
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let spool = place.path().join("spool");
    std::fs::create_dir(&spool).expect("room for it");
    std::fs::write(spool.join("run.json"), description).expect("room for it");
    std::fs::write(spool.join("process-0"), &rows).expect("room for it");
    let output = place.path().join("rows.parquet");
    let options = Options {
        keep: kind & 2 == 2,
        despite_damage: kind & 4 == 4,
    };
    let Ok(recovered) = recover(&spool, &output, options) else {
        return;
    };
    assert!(recovered.rows <= (rows.len() / ROW_BYTES) as u64);
    // What was written can be read, unless no request was answered.
    let _ = latlab_analysis::read::read(&output, &Default::default());
});
