//! Tests with random bytes that take seconds; `fuzz/` searches further with coverage
//! instrumentation.

use std::process::Command;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// A failing input is shown in the message; nothing is written beside the source.
fn cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        cases: count,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Bytes with long runs of zeros, as tables have, so that counts and flags vary too.
fn any_bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    let run = prop_oneof![
        3 => vec(any::<u8>(), 0..64),
        2 => (1usize..600).prop_map(|length| vec![0; length]),
        1 => (1usize..64).prop_map(|length| vec![0xff; length]),
    ];
    vec(run, 0..80).prop_map(move |runs| {
        let mut bytes = runs.concat();
        bytes.truncate(most);
        bytes
    })
}

/// A small program with everything that is read: symbols, unwinding tables, debug information.
static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let directory = std::env::temp_dir().join(format!("debox-outside-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a writable directory");
    let (source, program) = (directory.join("small.c"), directory.join("small"));
    let text = "static int twice(int n) { return 2 * n; }\n\
                int main(int count, char **words) { return twice(count) + words[0][0]; }\n";
    std::fs::write(&source, text).expect("a writable directory");
    let compiled = Command::new("cc")
        .args(["-g", "-O1", "-o"])
        .args([&program, &source])
        .status();
    assert!(compiled.expect("the C compiler").success());
    let bytes = std::fs::read(&program).expect("a program");
    let _ = std::fs::remove_dir_all(&directory);
    bytes
});

static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let text = include_str!("../../../schema/report-1.json");
    let schema = serde_json::from_str(text).expect("the schema is JSON");
    jsonschema::draft202012::new(&schema).expect("the schema is a JSON Schema")
});

#[test]
fn a_program_as_it_is_has_names() {
    let code = PROGRAM.clone();
    program(&code, &[0, 0x1000, u64::MAX]);
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn any_tables_make_a_report_of_the_schema(bytes in any_bytes(20_000)) {
        let report = serde_json::to_value(report(&bytes)).expect("a report serializes");
        let errors: Vec<String> = SCHEMA.iter_errors(&report).map(|e| e.to_string()).collect();
        prop_assert!(errors.is_empty(), "{:?}", errors);
    }

    #[test]
    fn any_messages_are_taken_or_left(bytes in any_bytes(8_000)) {
        events(&bytes);
        in_flight(&bytes);
    }

    #[test]
    fn any_report_over_the_wire_is_taken_or_left(bytes in any_bytes(2_000)) {
        broker_report(&bytes);
        broker_look(&bytes);
    }

    #[test]
    fn any_nodes_make_a_tree(bytes in any_bytes(4_000)) {
        tree(&bytes);
    }

    #[test]
    fn any_answer_is_a_session_or_none(
        packet in prop_oneof![
            vec(any::<u8>(), 0..20),
            Just([&[1, 0, 0, 0, 4, 0, 0, 0][..], &[0; 8]].concat()),
        ],
        descriptors in 0usize..6,
    ) {
        welcome(&packet, descriptors);
    }

    #[test]
    fn any_text_is_a_sessions_address_or_none(
        text in prop_oneof![any::<String>(), "[0-9+]{0,11}:[0-9a-fA-F+]{15,17}:/?[a-z:/]{0,20}"],
    ) {
        tap_address(&text);
    }

    #[test]
    fn any_symbols_are_functions_or_left(
        lines in vec("[0-9a-f]{1,17} [tTwWd] \\PC{0,8}( \\[x\\])?", 0..8),
        address: u64,
    ) {
        kernel_symbols(&lines.join("\n"), address);
    }

    #[test]
    fn any_slot_can_be_read(bytes in any_bytes(16_500)) {
        slot(&bytes);
    }

    #[test]
    fn any_rows_are_added_up(bytes in any_bytes(4_000)) {
        rows(&bytes);
    }

    #[test]
    fn any_mappings_are_read_or_left(
        lines in vec("[0-9a-f]{1,16}-[0-9a-f]{1,16} r-[x-]p [0-9a-f]{1,16} 00:01 [0-9]{1,20}( \\PC{0,12})?", 0..6),
        bytes in vec(any::<u8>(), 0..80),
    ) {
        let mut text = lines.join("\n").into_bytes();
        mappings(&text);
        text.extend(bytes);
        mappings(&text);
    }
}

proptest! {
    #![proptest_config(cases(60))]

    /// Bytes changed anywhere, mostly in the headers, and the end cut off.
    #[test]
    fn broken_programs_have_no_names_or_some(
        changes in vec((any::<Index>(), any::<bool>(), any::<u8>()), 0..12),
        length in prop_oneof![3 => Just(None), 1 => any::<Index>().prop_map(Some)],
        offsets in vec(any::<u64>(), 0..2),
    ) {
        let mut broken = PROGRAM.clone();
        for (at, is_header, byte) in changes {
            let most = if is_header { 0x400 } else { broken.len() };
            broken[at.index(most)] = byte;
        }
        if let Some(length) = length {
            let length = length.index(broken.len());
            broken.truncate(length);
        }
        let offsets: Vec<u64> = offsets.into_iter().chain([0x1040, 0x1139]).collect();
        program(&broken, &offsets);
        let mut stack: Vec<u8> = offsets.iter().flat_map(|word| word.to_le_bytes()).collect();
        stack = stack.repeat((ASK + STACK) / stack.len() + 1);
        stack.truncate(ASK + STACK);
        unwinding(&[stack, broken].concat());
    }
}

/// A reader beside a writer that follows no rules neither hangs nor trusts a count.
#[test]
fn a_slot_that_is_scribbled_on_can_be_read() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    let words = std::mem::size_of::<Slot>() / 8;
    let memory: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seed = 1u64;
            while !is_over.load(Ordering::Relaxed) {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                memory[seed as usize >> 8 & (words - 1)].store(seed, Ordering::Relaxed);
            }
        });
        for _ in 0..2_000 {
            let mut records = [Record::default(); 3];
            let copied = inband::copy_history(memory.as_ptr().cast(), &mut records, 7);
            assert!(copied <= 3);
            for record in &records[..copied] {
                assert!(record.sleeps().len() <= 8 && !format!("{record:?}").is_empty());
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// A process that has the rows cannot truncate them under their readers.
#[test]
fn the_file_of_rows_keeps_its_length() {
    let rows = TapRows::create(2).expect("a memory file");
    assert!(rows.file.set_len(4096).is_err());
    assert!(rows.file.set_len(1 << 30).is_err());
}

proptest! {
    // The kernel's symbols are read for each.
    #![proptest_config(cases(8))]

    #[test]
    fn any_address_has_a_name(bytes in any_bytes(200)) {
        prop_assert!(names(&bytes).values().all(|name| !name.is_empty()));
    }
}
