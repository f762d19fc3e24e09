//! Turns columns back into records.

use std::rc::Rc;

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Int32Type, Int64Type, TimestampNanosecondType, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, ListArray, PrimitiveArray, RecordBatch, StructArray,
};
use debox_model::history::{Budget, Call, CpuOwner, CpuWait, Sleep, Text, UserLevel};

/// All columns of a record.
pub(crate) const ALL: &[&str] = &[
    "time",
    "pid",
    "tid",
    "comm",
    "call",
    "number",
    "ia32",
    "ordinal",
    "ret",
    "arg0",
    "arg1",
    "arg2",
    "wall_ns",
    "cpu_ns",
    "blocked_ns",
    "runqueue_ns",
    "preempted_ns",
    "irq_ns",
    "spin_ns",
    "faults_minor",
    "faults_major",
    "read_bytes",
    "write_bytes",
    "restarted",
    "partial",
    "caller",
    "stack",
    "sleeps",
    "sleeps_left_out",
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

/// A column of shared texts.
struct Texts<'a> {
    keys: &'a PrimitiveArray<UInt32Type>,
    values: Vec<Text>,
}

impl<'a> Texts<'a> {
    fn of(column: &'a ArrayRef) -> Result<Texts<'a>> {
        let dictionary: &DictionaryArray<UInt32Type> =
            column.as_dictionary_opt().context("a column is not text")?;
        let values = dictionary.values().as_string_opt::<i32>();
        let values = values.context("a column is not text")?;
        Ok(Texts {
            keys: dictionary.keys(),
            values: values
                .iter()
                .map(|text| Rc::from(text.unwrap_or("")))
                .collect(),
        })
    }

    fn maybe(&self, row: usize) -> Option<Text> {
        if self.keys.is_null(row) {
            return None;
        }
        self.values.get(self.keys.value(row) as usize).cloned()
    }

    fn get(&self, row: usize) -> Text {
        self.maybe(row).unwrap_or_else(|| Rc::from(""))
    }
}

fn numbers<T: ArrowPrimitiveType>(column: &ArrayRef) -> Result<&PrimitiveArray<T>> {
    column
        .as_primitive_opt::<T>()
        .context("a column is of another type")
}

fn maybe<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>, row: usize) -> Option<T::Native> {
    column.is_valid(row).then(|| column.value(row))
}

pub(crate) fn calls(batch: &RecordBatch, realtime_offset_ns: i64) -> Result<Vec<Call>> {
    let column = |name: &str| {
        let found = batch.column_by_name(name);
        found.with_context(|| format!("the column {name} is missing"))
    };
    let times = numbers::<TimestampNanosecondType>(column("time")?)?;
    let long = |name: &str| numbers::<UInt64Type>(column(name)?);
    let short = |name: &str| numbers::<UInt32Type>(column(name)?);
    let (pid, tid) = (short("pid")?, short("tid")?);
    let comm = Texts::of(column("comm")?)?;
    let name = Texts::of(column("call")?)?;
    let number = numbers::<Int32Type>(column("number")?)?;
    let flag = |name: &str| {
        let flags = column(name)?.as_boolean_opt();
        flags.with_context(|| format!("the column {name} is of another type"))
    };
    let (ia32, restarted, partial) = (flag("ia32")?, flag("restarted")?, flag("partial")?);
    let ordinal = long("ordinal")?;
    let ret = numbers::<Int64Type>(column("ret")?)?;
    let args = [long("arg0")?, long("arg1")?, long("arg2")?];
    let (wall, cpu, blocked) = (long("wall_ns")?, long("cpu_ns")?, long("blocked_ns")?);
    let (runqueue, preempted) = (long("runqueue_ns")?, long("preempted_ns")?);
    let (irq, spin) = (long("irq_ns")?, long("spin_ns")?);
    let (minor, major) = (short("faults_minor")?, short("faults_major")?);
    let (read, write) = (long("read_bytes")?, long("write_bytes")?);
    let caller = Texts::of(column("caller")?)?;
    let stack = Texts::of(column("stack")?)?;
    let lists: &ListArray = column("sleeps")?
        .as_list_opt::<i32>()
        .context("the column sleeps is no list")?;
    let left_out = short("sleeps_left_out")?;
    let sleeps = Sleeps::of(lists)?;
    let in_flight = match batch.column_by_name("in_flight") {
        Some(_) => Some(flag("in_flight")?),
        None => None,
    };
    let user = match batch.column_by_name("user_ns") {
        Some(_) => Some([
            long("user_ns")?,
            long("user_away_ns")?,
            long("user_calls_ns")?,
        ]),
        None => None,
    };
    let cpu_waits = CpuWaits::of(batch)?;
    let user_level = |row: usize| {
        let [wall, away, calls] = user?;
        Some(UserLevel {
            wall_ns: maybe(wall, row)?,
            away_ns: maybe(away, row).unwrap_or(0),
            calls_ns: maybe(calls, row).unwrap_or(0),
        })
    };

    let mut calls = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let start_ns = times.value(row).saturating_sub(realtime_offset_ns).max(0) as u64;
        let offsets = lists.value_offsets();
        let (from, to) = (offsets[row] as usize, offsets[row + 1] as usize);
        calls.push(Call {
            pid: pid.value(row),
            tid: tid.value(row),
            comm: comm.get(row),
            name: name.get(row),
            number: number.value(row),
            ia32: ia32.value(row),
            ordinal: ordinal.value(row),
            start_ns,
            wall_ns: wall.value(row),
            budget: Budget {
                cpu_ns: cpu.value(row),
                blocked_ns: blocked.value(row),
                runqueue_ns: runqueue.value(row),
                preempted_ns: preempted.value(row),
                irq_ns: maybe(irq, row),
            },
            cpu_wait: cpu_waits.as_ref().and_then(|waits| waits.get(row)),
            spin_ns: spin.value(row),
            in_flight: in_flight.is_some_and(|flags| flags.value(row)),
            ret: maybe(ret, row).unwrap_or(0),
            args: args.map(|column| column.value(row)),
            faults_minor: minor.value(row),
            faults_major: major.value(row),
            read_bytes: maybe(read, row),
            write_bytes: maybe(write, row),
            restarted: restarted.value(row),
            partial: partial.value(row),
            caller: caller.maybe(row),
            stack: stack.maybe(row),
            user: user_level(row),
            sleeps: (from..to).map(|at| sleeps.get(at, start_ns)).collect(),
            sleeps_left_out: left_out.value(row),
        });
    }
    Ok(calls)
}

struct CpuWaits<'a> {
    throttled: &'a PrimitiveArray<UInt64Type>,
    comm: Texts<'a>,
    pid: &'a PrimitiveArray<UInt32Type>,
    kind: Texts<'a>,
    ns: &'a PrimitiveArray<UInt64Type>,
}

impl<'a> CpuWaits<'a> {
    /// `None` for an older file.
    fn of(batch: &'a RecordBatch) -> Result<Option<CpuWaits<'a>>> {
        let Some(throttled) = batch.column_by_name("throttled_ns") else {
            return Ok(None);
        };
        let column = |name: &str| {
            let found = batch.column_by_name(name);
            found.with_context(|| format!("the column {name} is missing"))
        };
        Ok(Some(CpuWaits {
            throttled: numbers(throttled)?,
            comm: Texts::of(column("cpu_owner")?)?,
            pid: numbers(column("cpu_owner_pid")?)?,
            kind: Texts::of(column("cpu_owner_kind")?)?,
            ns: numbers(column("cpu_owner_ns")?)?,
        }))
    }

    fn get(&self, row: usize) -> Option<CpuWait> {
        let owner = self.kind.maybe(row).map(|kind| CpuOwner {
            kind,
            pid: maybe(self.pid, row),
            comm: self.comm.maybe(row),
            ns: maybe(self.ns, row).unwrap_or(0),
        });
        Some(CpuWait {
            throttled_ns: maybe(self.throttled, row)?,
            owner,
        })
    }
}

struct Sleeps<'a> {
    begin: &'a PrimitiveArray<UInt64Type>,
    blocked: &'a PrimitiveArray<UInt64Type>,
    runqueue: &'a PrimitiveArray<UInt64Type>,
    label: Texts<'a>,
    class: Texts<'a>,
    site: Texts<'a>,
    stack: Texts<'a>,
    resource_kind: Texts<'a>,
    resource: Texts<'a>,
    waker_kind: Texts<'a>,
    waker_tid: &'a PrimitiveArray<UInt32Type>,
    waker_comm: Texts<'a>,
    owner_certainty: Texts<'a>,
    owner_tid: &'a PrimitiveArray<UInt32Type>,
    owner_comm: Texts<'a>,
    owner_doing: Texts<'a>,
    waiters_entry: &'a PrimitiveArray<UInt32Type>,
    waiters_exit: &'a PrimitiveArray<UInt32Type>,
}

impl<'a> Sleeps<'a> {
    fn of(lists: &'a ListArray) -> Result<Sleeps<'a>> {
        let entries: &StructArray = lists
            .values()
            .as_struct_opt()
            .context("the column sleeps has no fields")?;
        let field = |name: &str| {
            let found = entries.column_by_name(name);
            found.with_context(|| format!("the field sleeps.{name} is missing"))
        };
        let text = |name: &str| Texts::of(field(name)?);
        let long = |name: &str| numbers::<UInt64Type>(field(name)?);
        let short = |name: &str| numbers::<UInt32Type>(field(name)?);
        Ok(Sleeps {
            begin: long("begin_ns")?,
            blocked: long("blocked_ns")?,
            runqueue: long("runqueue_ns")?,
            label: text("label")?,
            class: text("class")?,
            site: text("site")?,
            stack: text("stack")?,
            resource_kind: text("resource_kind")?,
            resource: text("resource")?,
            waker_kind: text("waker_kind")?,
            waker_tid: short("waker_tid")?,
            waker_comm: text("waker_comm")?,
            owner_certainty: text("owner_certainty")?,
            owner_tid: short("owner_tid")?,
            owner_comm: text("owner_comm")?,
            owner_doing: text("owner_doing")?,
            waiters_entry: short("waiters_entry")?,
            waiters_exit: short("waiters_exit")?,
        })
    }

    fn get(&self, at: usize, call_start_ns: u64) -> Sleep {
        Sleep {
            begin_ns: call_start_ns.saturating_add(self.begin.value(at)),
            blocked_ns: self.blocked.value(at),
            runqueue_ns: self.runqueue.value(at),
            label: self.label.get(at),
            class: self.class.get(at),
            site: self.site.get(at),
            stack: self.stack.maybe(at),
            resource_kind: self.resource_kind.maybe(at),
            resource: self.resource.maybe(at),
            waker_kind: self.waker_kind.get(at),
            waker_tid: maybe(self.waker_tid, at),
            waker_comm: self.waker_comm.maybe(at),
            owner_certainty: self.owner_certainty.maybe(at),
            owner_tid: maybe(self.owner_tid, at),
            owner_comm: self.owner_comm.maybe(at),
            owner_doing: self.owner_doing.maybe(at),
            waiters_entry: maybe(self.waiters_entry, at),
            waiters_exit: maybe(self.waiters_exit, at),
        }
    }
}
