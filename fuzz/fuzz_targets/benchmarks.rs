// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that are taken for results of hbench: read, summed up, compared, explained, printed.
//!
//! If the first byte is even, the rest are changes to a file that is whole, each a place (three bytes) and what to
//! put there.
#![no_main]

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use hbench_results::compare::compare;
use hbench_results::environment::{Environment, Noise};
use hbench_results::file::{read, write, Recorded};
use hbench_results::meta::{Clock, Declared, Meta, Sample, State, SCHEMA};
use hbench_results::{figures, hierarchy, text};

/// More would take the time of the summary's resampling, not of the reader.
const SAMPLES: usize = 200;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let content = match kind % 2 {
        0 => changed(rest),
        _ => rest.to_vec(),
    };
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&content).expect("room for it");
    let Ok(mut recorded) = read(file.path()) else {
        return;
    };
    recorded.samples.truncate(SAMPLES);
    let mut printed = Vec::new();
    let summary = figures::summary(&recorded);
    text::summary(&mut printed, &summary, 80).expect("memory takes it");
    let found = compare(&recorded, &recorded, kind & 2 == 2);
    text::comparison(&mut printed, &found, true, 80).expect("memory takes it");
    let explained = hierarchy::explain(&summary.figures, recorded.meta.environment.page_bytes);
    text::explanation(&mut printed, &explained.nodes, 80).expect("memory takes it");
    let printed = String::from_utf8(printed).expect("text");
    let is_harmless = |c: char| c == '\n' || kit_console::is_printable(c);
    assert!(printed.chars().all(is_harmless), "{printed:?}");
});

fn changed(changes: &[u8]) -> Vec<u8> {
    static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
    let mut bytes = WHOLE.get_or_init(whole).clone();
    for change in changes.chunks_exact(4) {
        let place = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize;
        let length = bytes.len();
        bytes[place % length] = change[3];
    }
    bytes
}

fn whole() -> Vec<u8> {
    let names = ["memory.copy/16K", "memory.read/16K", "memory.write/16K"];
    let declared = |name: &&str| Declared {
        name: name.to_string(),
        group: "memory".to_string(),
        operation: "an operation".to_string(),
        depends_on: Vec::new(),
        answers_to: Vec::new(),
    };
    let sample = |at: u32| Sample {
        benchmark: names[at as usize % 3].to_string(),
        round: at / 3,
        instance: 0,
        cpu: Some(0),
        start_ns: u64::from(at),
        iterations: 10,
        elapsed_ns: 1000.0 + f64::from(at),
        overhead_ns: 10.0,
        baseline_ns: None,
        operation_ns: 99.0,
        bytes: Some(1 << 14),
        runqueue_ns: Some(0),
    };
    let recorded = Recorded {
        meta: Meta {
            schema: SCHEMA.to_string(),
            version: "0".to_string(),
            started: "2026-01-01T00:00:00Z".to_string(),
            duration_ns: 1,
            state: State::Complete,
            rounds: 4,
            rounds_done: 4,
            sample_ns: 1,
            instances: 1,
            samples_dropped: 0,
            under: None,
            clock: Clock::MonotonicRaw { overhead_ns: 1.0 },
            environment: Environment::default(),
            noise: Noise::default(),
            benchmarks: names.iter().map(declared).collect(),
            left_out: Vec::new(),
        },
        samples: (0..12).map(sample).collect(),
    };
    let directory = tempfile::tempdir().expect("a directory");
    let path: &Path = &directory.path().join("whole");
    write(path, &recorded).expect("room for it");
    std::fs::read(path).expect("it is there")
}
