//! The columns. `debox/docs/history.md` documents each one; a test compares the two.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

/// The type of text with few distinct values.
pub(crate) fn text() -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8))
}

pub(crate) fn time() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

fn needed(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, false)
}

fn perhaps(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}

/// Columns that older files lack; their values are read as false or null.
pub(crate) const LATER: &[&str] = &[
    "in_flight",
    "user_ns",
    "user_away_ns",
    "user_calls_ns",
    "throttled_ns",
    "cpu_owner",
    "cpu_owner_pid",
    "cpu_owner_kind",
    "cpu_owner_ns",
];

/// One row is one call.
pub fn schema() -> SchemaRef {
    use DataType::{Boolean, Int32, Int64, UInt32, UInt64};
    let sleep = Field::new("item", DataType::Struct(sleep_fields()), false);
    Arc::new(Schema::new(vec![
        needed("time", time()),
        needed("pid", UInt32),
        needed("tid", UInt32),
        needed("comm", text()),
        needed("call", text()),
        needed("number", Int32),
        needed("ia32", Boolean),
        needed("ordinal", UInt64),
        perhaps("ret", Int64),
        perhaps("error", text()),
        needed("arg0", UInt64),
        needed("arg1", UInt64),
        needed("arg2", UInt64),
        needed("wall_ns", UInt64),
        needed("cpu_ns", UInt64),
        needed("blocked_ns", UInt64),
        needed("runqueue_ns", UInt64),
        needed("preempted_ns", UInt64),
        perhaps("irq_ns", UInt64),
        needed("spin_ns", UInt64),
        needed("faults_minor", UInt32),
        needed("faults_major", UInt32),
        perhaps("read_bytes", UInt64),
        perhaps("write_bytes", UInt64),
        needed("restarted", Boolean),
        needed("partial", Boolean),
        perhaps("caller", text()),
        perhaps("stack", text()),
        needed("sleeps", DataType::List(Arc::new(sleep))),
        needed("sleeps_left_out", UInt32),
        needed("in_flight", Boolean),
        perhaps("user_ns", UInt64),
        perhaps("user_away_ns", UInt64),
        perhaps("user_calls_ns", UInt64),
        perhaps("throttled_ns", UInt64),
        perhaps("cpu_owner", text()),
        perhaps("cpu_owner_pid", UInt32),
        perhaps("cpu_owner_kind", text()),
        perhaps("cpu_owner_ns", UInt64),
    ]))
}

/// The fields of each entry of the column `sleeps`.
pub fn sleep_fields() -> Fields {
    use DataType::{UInt32, UInt64};
    Fields::from(vec![
        needed("begin_ns", UInt64),
        needed("blocked_ns", UInt64),
        needed("runqueue_ns", UInt64),
        needed("label", text()),
        needed("class", text()),
        needed("site", text()),
        perhaps("stack", text()),
        perhaps("resource_kind", text()),
        perhaps("resource", text()),
        needed("waker_kind", text()),
        perhaps("waker_tid", UInt32),
        perhaps("waker_comm", text()),
        perhaps("owner_certainty", text()),
        perhaps("owner_tid", UInt32),
        perhaps("owner_comm", text()),
        perhaps("owner_doing", text()),
        perhaps("waiters_entry", UInt32),
        perhaps("waiters_exit", UInt32),
    ])
}
