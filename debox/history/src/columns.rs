//! Turns records into columns.

use std::sync::Arc;

use anyhow::{Context, Result};
use arrow_array::builder::{
    BooleanBuilder, Int32Builder, Int64Builder, PrimitiveBuilder, StringDictionaryBuilder,
    UInt32Builder, UInt64Builder,
};
use arrow_array::types::{ArrowPrimitiveType, UInt32Type};
use arrow_array::{Array, ArrayRef, ListArray, RecordBatch, StructArray, TimestampNanosecondArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::DataType;
use debox_model::history::{Call, Sleep, Text};

use crate::schema::{schema, sleep_fields};

type Texts = StringDictionaryBuilder<UInt32Type>;

/// Rows that are not in a file yet. `build` keeps them, `clear` removes them.
#[derive(Default)]
pub(crate) struct Columns {
    time: Vec<i64>,
    pid: UInt32Builder,
    tid: UInt32Builder,
    comm: Texts,
    call: Texts,
    number: Int32Builder,
    ia32: BooleanBuilder,
    ordinal: UInt64Builder,
    ret: Int64Builder,
    error: Texts,
    args: [UInt64Builder; 3],
    wall: UInt64Builder,
    cpu: UInt64Builder,
    blocked: UInt64Builder,
    runqueue: UInt64Builder,
    preempted: UInt64Builder,
    irq: UInt64Builder,
    spin: UInt64Builder,
    faults_minor: UInt32Builder,
    faults_major: UInt32Builder,
    read_bytes: UInt64Builder,
    write_bytes: UInt64Builder,
    restarted: BooleanBuilder,
    partial: BooleanBuilder,
    caller: Texts,
    stack: Texts,
    /// Where each row's sleeps end.
    sleeps_end: Vec<i32>,
    sleeps: Sleeps,
    sleeps_left_out: UInt32Builder,
    in_flight: BooleanBuilder,
    /// In the order of the columns.
    user: [UInt64Builder; 3],
    throttled: UInt64Builder,
    cpu_owner: Texts,
    cpu_owner_pid: UInt32Builder,
    cpu_owner_kind: Texts,
    cpu_owner_ns: UInt64Builder,
}

#[derive(Default)]
struct Sleeps {
    begin: UInt64Builder,
    blocked: UInt64Builder,
    runqueue: UInt64Builder,
    label: Texts,
    class: Texts,
    site: Texts,
    stack: Texts,
    resource_kind: Texts,
    resource: Texts,
    waker_kind: Texts,
    waker_tid: UInt32Builder,
    waker_comm: Texts,
    owner_certainty: Texts,
    owner_tid: UInt32Builder,
    owner_comm: Texts,
    owner_doing: Texts,
    waiters_entry: UInt32Builder,
    waiters_exit: UInt32Builder,
}

impl Columns {
    pub fn len(&self) -> usize {
        self.time.len()
    }

    /// The number of sleeps in all rows.
    pub fn sleeps(&self) -> usize {
        self.sleeps_end.last().map_or(0, |end| *end as usize)
    }

    /// `realtime_offset_ns`: the difference from the record's clock to the time of day.
    pub fn append(&mut self, call: &Call, realtime_offset_ns: i64) {
        self.time
            .push((call.start_ns as i64).saturating_add(realtime_offset_ns));
        self.pid.append_value(call.pid);
        self.tid.append_value(call.tid);
        self.comm.append_value(&call.comm);
        self.call.append_value(&call.name);
        self.number.append_value(call.number);
        self.ia32.append_value(call.ia32);
        self.ordinal.append_value(call.ordinal);
        self.ret
            .append_option((!call.in_flight).then_some(call.ret));
        self.error.append_option(call.error().as_deref());
        for (column, value) in self.args.iter_mut().zip(call.args) {
            column.append_value(value);
        }
        self.wall.append_value(call.wall_ns);
        self.cpu.append_value(call.budget.cpu_ns);
        self.blocked.append_value(call.budget.blocked_ns);
        self.runqueue.append_value(call.budget.runqueue_ns);
        self.preempted.append_value(call.budget.preempted_ns);
        self.irq.append_option(call.budget.irq_ns);
        self.spin.append_value(call.spin_ns);
        self.faults_minor.append_value(call.faults_minor);
        self.faults_major.append_value(call.faults_major);
        self.read_bytes.append_option(call.read_bytes);
        self.write_bytes.append_option(call.write_bytes);
        self.restarted.append_value(call.restarted);
        self.partial.append_value(call.partial);
        append_text(&mut self.caller, call.caller.as_ref());
        append_text(&mut self.stack, call.stack.as_ref());
        for sleep in &call.sleeps {
            self.sleeps.append(sleep, call.start_ns);
        }
        let end = self.sleeps() + call.sleeps.len();
        self.sleeps_end.push(end as i32);
        self.sleeps_left_out.append_value(call.sleeps_left_out);
        self.in_flight.append_value(call.in_flight);
        let user = call.user.as_ref();
        let user = [
            user.map(|user| user.wall_ns),
            user.map(|user| user.away_ns),
            user.map(|user| user.calls_ns),
        ];
        for (column, value) in self.user.iter_mut().zip(user) {
            column.append_option(value);
        }
        let wait = call.cpu_wait.as_ref();
        let owner = wait.and_then(|wait| wait.owner.as_ref());
        self.throttled
            .append_option(wait.map(|wait| wait.throttled_ns));
        append_text(
            &mut self.cpu_owner,
            owner.and_then(|owner| owner.comm.as_ref()),
        );
        self.cpu_owner_pid
            .append_option(owner.and_then(|owner| owner.pid));
        append_text(&mut self.cpu_owner_kind, owner.map(|owner| &owner.kind));
        self.cpu_owner_ns.append_option(owner.map(|owner| owner.ns));
    }

    /// All rows so far.
    pub fn build(&self) -> Result<RecordBatch> {
        let offsets = std::iter::once(0).chain(self.sleeps_end.iter().copied());
        let DataType::List(item) = schema().field_with_name("sleeps")?.data_type().clone() else {
            unreachable!("the schema is ours");
        };
        let sleeps = ListArray::try_new(
            item,
            OffsetBuffer::new(offsets.collect::<Vec<i32>>().into()),
            Arc::new(self.sleeps.build()?),
            None,
        )?;
        let time = TimestampNanosecondArray::from(self.time.clone()).with_timezone("UTC");
        let columns: Vec<ArrayRef> = vec![
            Arc::new(time),
            built(&self.pid),
            built(&self.tid),
            texts(&self.comm),
            texts(&self.call),
            built(&self.number),
            Arc::new(self.ia32.finish_cloned()),
            built(&self.ordinal),
            built(&self.ret),
            texts(&self.error),
            built(&self.args[0]),
            built(&self.args[1]),
            built(&self.args[2]),
            built(&self.wall),
            built(&self.cpu),
            built(&self.blocked),
            built(&self.runqueue),
            built(&self.preempted),
            built(&self.irq),
            built(&self.spin),
            built(&self.faults_minor),
            built(&self.faults_major),
            built(&self.read_bytes),
            built(&self.write_bytes),
            Arc::new(self.restarted.finish_cloned()),
            Arc::new(self.partial.finish_cloned()),
            texts(&self.caller),
            texts(&self.stack),
            Arc::new(sleeps),
            built(&self.sleeps_left_out),
            Arc::new(self.in_flight.finish_cloned()),
            built(&self.user[0]),
            built(&self.user[1]),
            built(&self.user[2]),
            built(&self.throttled),
            texts(&self.cpu_owner),
            built(&self.cpu_owner_pid),
            texts(&self.cpu_owner_kind),
            built(&self.cpu_owner_ns),
        ];
        RecordBatch::try_new(schema(), columns).context("cannot put the columns together")
    }

    pub fn clear(&mut self) {
        *self = Columns::default();
    }
}

impl Sleeps {
    fn append(&mut self, sleep: &Sleep, call_start_ns: u64) {
        self.begin
            .append_value(sleep.begin_ns.saturating_sub(call_start_ns));
        self.blocked.append_value(sleep.blocked_ns);
        self.runqueue.append_value(sleep.runqueue_ns);
        self.label.append_value(&sleep.label);
        self.class.append_value(&sleep.class);
        self.site.append_value(&sleep.site);
        append_text(&mut self.stack, sleep.stack.as_ref());
        append_text(&mut self.resource_kind, sleep.resource_kind.as_ref());
        append_text(&mut self.resource, sleep.resource.as_ref());
        self.waker_kind.append_value(&sleep.waker_kind);
        self.waker_tid.append_option(sleep.waker_tid);
        append_text(&mut self.waker_comm, sleep.waker_comm.as_ref());
        append_text(&mut self.owner_certainty, sleep.owner_certainty.as_ref());
        self.owner_tid.append_option(sleep.owner_tid);
        append_text(&mut self.owner_comm, sleep.owner_comm.as_ref());
        append_text(&mut self.owner_doing, sleep.owner_doing.as_ref());
        self.waiters_entry.append_option(sleep.waiters_entry);
        self.waiters_exit.append_option(sleep.waiters_exit);
    }

    fn build(&self) -> Result<StructArray> {
        let columns: Vec<ArrayRef> = vec![
            built(&self.begin),
            built(&self.blocked),
            built(&self.runqueue),
            texts(&self.label),
            texts(&self.class),
            texts(&self.site),
            texts(&self.stack),
            texts(&self.resource_kind),
            texts(&self.resource),
            texts(&self.waker_kind),
            built(&self.waker_tid),
            texts(&self.waker_comm),
            texts(&self.owner_certainty),
            built(&self.owner_tid),
            texts(&self.owner_comm),
            texts(&self.owner_doing),
            built(&self.waiters_entry),
            built(&self.waiters_exit),
        ];
        Ok(StructArray::try_new(sleep_fields(), columns, None)?)
    }
}

fn built<T: ArrowPrimitiveType>(column: &PrimitiveBuilder<T>) -> ArrayRef {
    Arc::new(column.finish_cloned())
}

fn texts(column: &Texts) -> ArrayRef {
    Arc::new(column.finish_cloned()) as Arc<dyn Array>
}

fn append_text(column: &mut Texts, text: Option<&Text>) {
    column.append_option(text.map(|text| &**text));
}
