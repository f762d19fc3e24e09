//! A batch's columns as the sums need them. Columns that the file marks as blank are not read.

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, TimestampNanosecondType, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, StructArray};
use debox_history::Group;

use crate::cpu_waits::OwnerKey;
use crate::names::{Column, Name, Names, Translator, NONE};
use crate::parts::Parts;

const COLUMNS: &[&str] = &[
    "time",
    "pid",
    "tid",
    "comm",
    "call",
    "arg0",
    "wall_ns",
    "cpu_ns",
    "blocked_ns",
    "runqueue_ns",
    "caller",
    "stack",
];

/// Columns that are skipped for groups in which they are blank.
const OFTEN_BLANK: &[&str] = &[
    "error",
    "preempted_ns",
    "irq_ns",
    "spin_ns",
    "faults_minor",
    "faults_major",
    "restarted",
    "partial",
    "sleeps_left_out",
    "in_flight",
];

/// Columns that are skipped for groups in which the program measured nothing.
const OF_USER_LEVEL: &[&str] = &["user_ns", "user_away_ns", "user_calls_ns"];

/// Columns that are skipped for groups in which no call waited for a CPU.
const OF_CPU_OWNERS: &[&str] = &[
    "cpu_owner",
    "cpu_owner_pid",
    "cpu_owner_kind",
    "cpu_owner_ns",
];

/// Columns that are skipped for groups without sleeps.
const OF_SLEEPS: &[&str] = &[
    "sleeps.begin_ns",
    "sleeps.blocked_ns",
    "sleeps.label",
    "sleeps.class",
    "sleeps.site",
    "sleeps.stack",
    "sleeps.waker_kind",
];
const OF_SLEEPS_OFTEN_BLANK: &[&str] = &[
    "sleeps.resource",
    "sleeps.waker_comm",
    "sleeps.waker_tid",
    "sleeps.owner_certainty",
    "sleeps.owner_tid",
    "sleeps.owner_comm",
    "sleeps.owner_doing",
];

/// The columns to read from a group.
pub fn wanted(group: &Group<'_>) -> Vec<&'static str> {
    let often = |columns: &'static [&'static str]| {
        let columns = columns.iter().copied();
        columns.filter(|column| !group.is_blank(column))
    };
    let mut wanted = COLUMNS.to_vec();
    wanted.extend(often(OFTEN_BLANK));
    if !group.is_blank("sleeps.begin_ns") {
        wanted.extend(OF_SLEEPS);
        wanted.extend(often(OF_SLEEPS_OFTEN_BLANK));
    }
    if !group.is_blank("throttled_ns") {
        wanted.push("throttled_ns");
    }
    if !group.is_blank("cpu_owner_kind") {
        wanted.extend(OF_CPU_OWNERS);
    }
    if !group.is_blank("user_ns") {
        wanted.extend(OF_USER_LEVEL);
    }
    wanted
}

/// Rows that are decoded at once.
pub const BATCH_ROWS: usize = 32_768;

/// Values of a column that was not read.
static ZEROS: [u64; BATCH_ROWS] = [0; BATCH_ROWS];
static SHORT_ZEROS: [u32; BATCH_ROWS] = [0; BATCH_ROWS];

#[derive(Default)]
pub struct Translators {
    comm: Translator,
    call: Translator,
    error: Translator,
    caller: Translator,
    stack: Translator,
    cpu_owner: Translator,
    cpu_owner_kind: Translator,
    sleeps: SleepTranslators,
}

#[derive(Default)]
struct SleepTranslators {
    label: Translator,
    class: Translator,
    site: Translator,
    stack: Translator,
    resource: Translator,
    waker_kind: Translator,
    waker_comm: Translator,
    certainty: Translator,
    owner: Translator,
    doing: Translator,
}

pub struct Columns<'a> {
    pub time: &'a [i64],
    pub pid: &'a [u32],
    pub tid: &'a [u32],
    pub comm: Column<'a>,
    pub call: Column<'a>,
    pub arg0: &'a [u64],
    pub error: Column<'a>,
    pub caller: Column<'a>,
    pub stack: Column<'a>,
    wall: &'a [u64],
    cpu: &'a [u64],
    blocked: &'a [u64],
    runqueue: &'a [u64],
    preempted: &'a [u64],
    irq: Option<&'a PrimitiveArray<UInt64Type>>,
    pub has_irq: bool,
    pub spin: &'a [u64],
    pub minor: &'a [u32],
    pub major: &'a [u32],
    pub restarted: Option<&'a BooleanArray>,
    pub partial: Option<&'a BooleanArray>,
    pub left_out: &'a [u32],
    pub in_flight: Option<&'a BooleanArray>,
    user_level: Option<[&'a PrimitiveArray<UInt64Type>; 3]>,
    throttled: Option<&'a PrimitiveArray<UInt64Type>>,
    cpu_owner: Column<'a>,
    cpu_owner_kind: Column<'a>,
    cpu_owner_pid: Option<&'a PrimitiveArray<UInt32Type>>,
    cpu_owner_ns: Option<&'a PrimitiveArray<UInt64Type>>,
    pub sleeps: Option<Sleeps<'a>>,
}

pub struct Sleeps<'a> {
    offsets: &'a [i32],
    pub begin: &'a [u64],
    pub blocked: &'a [u64],
    owner_tids: Option<&'a PrimitiveArray<UInt32Type>>,
    waker_tids: Option<&'a PrimitiveArray<UInt32Type>>,
    pub label: Column<'a>,
    pub class: Column<'a>,
    pub site: Column<'a>,
    pub stack: Column<'a>,
    pub resource: Column<'a>,
    pub waker_kind: Column<'a>,
    pub waker_comm: Column<'a>,
    pub certainty: Column<'a>,
    pub owner: Column<'a>,
    pub doing: Column<'a>,
}

pub fn numbers<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a PrimitiveArray<T>> {
    perhaps(batch, name)?.with_context(|| format!("the column {name} is missing"))
}

fn typed<'a, T: ArrowPrimitiveType>(
    column: &'a ArrayRef,
    name: &str,
) -> Result<&'a PrimitiveArray<T>> {
    let column = column.as_primitive_opt::<T>();
    column.with_context(|| format!("the column {name} is of another type"))
}

fn perhaps<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<Option<&'a PrimitiveArray<T>>> {
    let column = batch.column_by_name(name);
    column.map(|column| typed(column, name)).transpose()
}

fn flags<'a>(batch: &'a RecordBatch, name: &str) -> Result<Option<&'a BooleanArray>> {
    let Some(column) = batch.column_by_name(name) else {
        return Ok(None);
    };
    let flags = column.as_boolean_opt();
    let flags = flags.with_context(|| format!("the column {name} is of another type"))?;
    // If no flag is set, none need be checked.
    Ok((flags.true_count() > 0).then_some(flags))
}

impl<'a> Columns<'a> {
    pub fn of(
        batch: &'a RecordBatch,
        texts: &'a mut Translators,
        names: &Names,
    ) -> Result<Columns<'a>> {
        let rows = batch.num_rows();
        let (zeros, short_zeros) = ZEROS
            .get(..rows)
            .zip(SHORT_ZEROS.get(..rows))
            .context("more rows at once than were asked for")?;
        let text = |name: &str| batch.column_by_name(name);
        let long = |name: &str| -> Result<&'a [u64]> {
            let column = perhaps::<UInt64Type>(batch, name)?;
            Ok(column.map_or(zeros, |column| column.values()))
        };
        let short = |name: &str| -> Result<&'a [u32]> {
            let column = perhaps::<UInt32Type>(batch, name)?;
            Ok(column.map_or(short_zeros, |column| column.values()))
        };
        let irq = perhaps::<UInt64Type>(batch, "irq_ns")?;
        let irq = irq.filter(|irq| irq.null_count() < rows);
        let user_level = match perhaps::<UInt64Type>(batch, "user_ns")? {
            None => None,
            Some(user) => Some([
                user,
                numbers(batch, "user_away_ns")?,
                numbers(batch, "user_calls_ns")?,
            ]),
        };
        let sleeps = match batch.column_by_name("sleeps") {
            None => None,
            Some(column) => {
                let lists = column.as_list_opt::<i32>();
                let lists = lists.context("the column sleeps is no list")?;
                let entries = lists.values().as_struct_opt();
                let entries = entries.context("the column sleeps has no fields")?;
                let offsets = lists.value_offsets();
                Some(Sleeps::of(entries, offsets, &mut texts.sleeps, names)?)
            }
        };
        Ok(Columns {
            time: numbers::<TimestampNanosecondType>(batch, "time")?.values(),
            pid: short("pid")?,
            tid: short("tid")?,
            comm: texts.comm.column(text("comm"), names)?,
            call: texts.call.column(text("call"), names)?,
            arg0: long("arg0")?,
            error: texts.error.column(text("error"), names)?,
            caller: texts.caller.column(text("caller"), names)?,
            stack: texts.stack.column(text("stack"), names)?,
            wall: long("wall_ns")?,
            cpu: long("cpu_ns")?,
            blocked: long("blocked_ns")?,
            runqueue: long("runqueue_ns")?,
            preempted: long("preempted_ns")?,
            has_irq: irq.is_some(),
            irq,
            spin: long("spin_ns")?,
            minor: short("faults_minor")?,
            major: short("faults_major")?,
            restarted: flags(batch, "restarted")?,
            partial: flags(batch, "partial")?,
            left_out: short("sleeps_left_out")?,
            in_flight: flags(batch, "in_flight")?,
            user_level,
            throttled: perhaps(batch, "throttled_ns")?,
            cpu_owner: texts.cpu_owner.column(text("cpu_owner"), names)?,
            cpu_owner_kind: texts.cpu_owner_kind.column(text("cpu_owner_kind"), names)?,
            cpu_owner_pid: perhaps(batch, "cpu_owner_pid")?,
            cpu_owner_ns: perhaps(batch, "cpu_owner_ns")?,
            sleeps,
        })
    }

    #[inline]
    pub fn parts(&self, row: usize) -> Parts {
        let irq = self.irq.filter(|irq| irq.is_valid(row));
        Parts {
            wall: self.wall[row],
            cpu: self.cpu[row],
            blocked: self.blocked[row],
            runqueue: self.runqueue[row],
            preempted: self.preempted[row],
            irq: irq.map_or(0, |irq| irq.value(row)),
        }
    }

    /// What the program measured: total time, time off the CPU outside the call, time in other calls.
    #[inline]
    pub fn user_level(&self, row: usize) -> Option<[u64; 3]> {
        let [user, away, calls] = self.user_level?;
        let value = |column: &PrimitiveArray<UInt64Type>| {
            let there = column.is_valid(row);
            there.then(|| column.value(row))
        };
        Some([
            value(user)?,
            value(away).unwrap_or(0),
            value(calls).unwrap_or(0),
        ])
    }

    /// Waits for a CPU: the part that a quota caused, and who had the CPU for most of the rest. `None`:
    /// not measured.
    #[inline]
    pub fn cpu_wait(&self, row: usize) -> Option<(u64, Option<(OwnerKey, u64)>)> {
        let throttled = self.throttled.filter(|column| column.is_valid(row))?;
        let kind = self.cpu_owner_kind.get(row);
        let pid = self.cpu_owner_pid.filter(|column| column.is_valid(row));
        let ns = self.cpu_owner_ns.filter(|column| column.is_valid(row));
        let owner = ns.filter(|_| kind != NONE).map(|ns| {
            let key = OwnerKey {
                kind,
                comm: self.cpu_owner.get(row),
                pid: pid.map_or(0, |pid| pid.value(row)),
            };
            (key, ns.value(row))
        });
        Some((throttled.value(row), owner))
    }

    /// The range of the row's sleeps among those of the batch.
    #[inline]
    pub fn sleeps_of(&self, row: usize) -> std::ops::Range<usize> {
        match &self.sleeps {
            Some(sleeps) => sleeps.offsets[row] as usize..sleeps.offsets[row + 1] as usize,
            None => 0..0,
        }
    }

    /// The program's stack; without a stack, the caller.
    #[inline]
    pub fn called_from(&self, row: usize) -> Name {
        match self.stack.get(row) {
            NONE => self.caller.get(row),
            stack => stack,
        }
    }
}

impl<'a> Sleeps<'a> {
    fn of(
        entries: &'a StructArray,
        offsets: &'a [i32],
        texts: &'a mut SleepTranslators,
        names: &Names,
    ) -> Result<Sleeps<'a>> {
        let field = |name: &str| entries.column_by_name(name);
        let long = |name: &str| -> Result<&'a [u64]> {
            let column = field(name).with_context(|| format!("sleeps.{name} is missing"))?;
            Ok(typed::<UInt64Type>(column, name)?.values())
        };
        let tids = |name: &str| -> Result<Option<&'a PrimitiveArray<UInt32Type>>> {
            field(name).map(|tids| typed(tids, name)).transpose()
        };
        Ok(Sleeps {
            offsets,
            begin: long("begin_ns")?,
            blocked: long("blocked_ns")?,
            owner_tids: tids("owner_tid")?,
            waker_tids: tids("waker_tid")?,
            label: texts.label.column(field("label"), names)?,
            class: texts.class.column(field("class"), names)?,
            site: texts.site.column(field("site"), names)?,
            stack: texts.stack.column(field("stack"), names)?,
            resource: texts.resource.column(field("resource"), names)?,
            waker_kind: texts.waker_kind.column(field("waker_kind"), names)?,
            waker_comm: texts.waker_comm.column(field("waker_comm"), names)?,
            certainty: texts.certainty.column(field("owner_certainty"), names)?,
            owner: texts.owner.column(field("owner_comm"), names)?,
            doing: texts.doing.column(field("owner_doing"), names)?,
        })
    }

    pub fn owner_tid(&self, at: usize) -> Option<u32> {
        let tids = self.owner_tids?;
        tids.is_valid(at).then(|| tids.value(at))
    }

    pub fn waker_tid(&self, at: usize) -> Option<u32> {
        let tids = self.waker_tids?;
        tids.is_valid(at).then(|| tids.value(at))
    }
}
