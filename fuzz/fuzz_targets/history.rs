//! Files that are taken for histories: opened, read, and exported in every format.
//!
//! A file of bytes alone is seldom a Parquet file: if the first byte is even, the rest are changes to a
//! small one that is whole, each a place (three bytes) and what to put there.
#![no_main]

use std::io::{Seek, Write};
use std::sync::OnceLock;

use debox_export::{export, Format, Options, Weight};
use debox_history::{History, Limits, Meta, Writer, SCHEMA};
use debox_model::history::{Budget, Call, Sleep};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let content = match kind % 2 {
        0 => changed(rest),
        _ => rest.to_vec(),
    };
    let mut file = tempfile::NamedTempFile::with_suffix(".parquet").expect("a temporary file");
    file.write_all(&content).expect("room for it");
    file.rewind().expect("a file");
    let Ok(history) = History::open(&[file.path()]) else {
        return;
    };
    for format in [
        Format::Perfetto,
        Format::Pprof,
        Format::Folded,
        Format::Ndjson,
        Format::Text,
        Format::Csv,
    ] {
        let options = Options {
            format,
            weight: Weight::Blocked,
            filter: None,
            from_ns: None,
            to_ns: Some(u64::from(*kind) << 32),
        };
        let _ = export(&history, &options, &mut std::io::sink(), &mut |_| {});
    }
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
    let file = tempfile::NamedTempFile::with_suffix(".parquet").expect("a temporary file");
    let meta = Meta {
        schema: SCHEMA.to_string(),
        cpus: 1,
        realtime_offset_ns: 1_000_000,
        complete: true,
        ..Meta::default()
    };
    let limits = Limits {
        group_rows: 3,
        ..Limits::default()
    };
    let mut writer = Writer::create(file.path(), meta, limits).expect("a writer");
    for tid in 1..6 {
        writer.append(&call(tid)).expect("a row");
    }
    writer.finish().expect("a file");
    std::fs::read(file.path()).expect("a file")
}

fn call(tid: u32) -> Call {
    let start_ns = 1000 * u64::from(tid);
    let sleep = Sleep {
        begin_ns: start_ns + 10,
        blocked_ns: 100,
        runqueue_ns: 5,
        label: "pipe empty".into(),
        class: "pipe".into(),
        site: "pipe_read".into(),
        stack: Some("vfs_read;pipe_read".into()),
        resource_kind: Some("pipe".into()),
        waker_kind: "task".into(),
        waker_tid: Some(tid + 1),
        waker_comm: Some("writer".into()),
        ..Sleep::default()
    };
    Call {
        pid: 1,
        tid,
        comm: "reader".into(),
        name: "read".into(),
        ordinal: 1,
        start_ns,
        wall_ns: 200,
        budget: Budget {
            cpu_ns: 95,
            blocked_ns: 100,
            runqueue_ns: 5,
            preempted_ns: 0,
            irq_ns: None,
        },
        ret: -11,
        args: [3, 4, 5],
        stack: Some("main (a.c:3);read_it+0x1f (program)".into()),
        sleeps: vec![sleep],
        ..Call::default()
    }
}
