// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that are taken for characterization vectors: read, predicted from, printed.
//!
//! If the first byte is even, the rest are changes to a vector that is whole, each a place (two bytes) and what to put
//! there.
#![no_main]

use std::sync::OnceLock;

use hbench_results::application::Application;
use hbench_results::machine::Machine;
use hbench_results::vectors::{decode, encode, Found};
use hbench_results::{contrast, predict, prediction_text, vector_text};

const MACHINE: &str = include_str!("../../hbench/schema/examples/machine.vec");
const APPLICATION: &str = include_str!("../../hbench/schema/examples/application.vec");

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let content = match kind % 4 {
        0 => changed(MACHINE, rest),
        2 => changed(APPLICATION, rest),
        _ => rest.to_vec(),
    };
    let Ok(found) = decode(&content) else {
        return;
    };
    let (machine, application) = match found {
        Found::Machine(machine) => (*machine, whole().1.clone()),
        Found::Application(application) => (whole().0.clone(), *application),
        Found::Parquet => return,
    };
    let mut printed = Vec::new();
    vector_text::machine(&mut printed, &machine).expect("memory takes it");
    vector_text::application(&mut printed, &application, true, 80).expect("memory takes it");
    let named = || ("a".to_string(), machine.clone());
    if let Ok(found) = predict::predict(&application, &[named()], Some(&whole().0)) {
        for one in &found.machines {
            let (low, high) = one.elapsed_interval_ns;
            assert!(
                0.0 <= low && low <= one.elapsed_ns && one.elapsed_ns <= high,
                "{one:?}"
            );
        }
        prediction_text::prediction(&mut printed, &found, true, 80).expect("memory takes it");
        encode(&found.machines[0].work).expect("numbers");
    }
    let other = ("b".to_string(), whole().0.clone());
    if let Ok(found) = contrast::contrast(named(), other, &application, Some(&whole().0)) {
        prediction_text::contrast(&mut printed, &found, true, 80).expect("memory takes it");
    }
    let printed = String::from_utf8(printed).expect("text");
    let is_harmless = |c: char| c == '\n' || kit_console::is_printable(c);
    assert!(printed.chars().all(is_harmless), "{printed:?}");
});

fn whole() -> &'static (Machine, Application) {
    static WHOLE: OnceLock<(Machine, Application)> = OnceLock::new();
    WHOLE.get_or_init(
        || match (decode(MACHINE.as_bytes()), decode(APPLICATION.as_bytes())) {
            (Ok(Found::Machine(machine)), Ok(Found::Application(application))) => {
                (*machine, *application)
            }
            _ => panic!("the examples are vectors"),
        },
    )
}

fn changed(whole: &str, changes: &[u8]) -> Vec<u8> {
    let mut bytes = whole.as_bytes().to_vec();
    for change in changes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]]));
        let length = bytes.len();
        bytes[place % length] = change[2];
    }
    bytes
}
