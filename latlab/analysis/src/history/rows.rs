//! The columns of a history that this analysis needs.

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Int64Type, TimestampNanosecondType, UInt32Type, UInt64Type,
};
use arrow_array::{Array, DictionaryArray, ListArray, PrimitiveArray, RecordBatch, StructArray};
use debox_history::History;
use rustc_hash::FxHashMap;

use super::Span;

const COLUMNS: &[&str] = &[
    "time",
    "pid",
    "tid",
    "comm",
    "call",
    "ordinal",
    "ret",
    "wall_ns",
    "cpu_ns",
    "restarted",
    "sleeps.begin_ns",
    "sleeps.blocked_ns",
    "sleeps.runqueue_ns",
    "sleeps.label",
    "sleeps.class",
    "sleeps.resource",
    "sleeps.owner_comm",
    "sleeps.owner_doing",
    "sleeps_left_out",
];

/// The number of a text.
pub type Name = u32;
/// No text.
pub const NONE: Name = u32::MAX;

#[derive(Debug, Default)]
pub struct Names {
    numbers: FxHashMap<String, Name>,
    texts: Vec<String>,
}

impl Names {
    pub fn number(&mut self, text: &str) -> Name {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as Name;
        self.texts.push(text.to_string());
        self.numbers.insert(text.to_string(), number);
        number
    }

    pub fn text(&self, name: Name) -> &str {
        self.texts.get(name as usize).map_or("", String::as_str)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// `CLOCK_MONOTONIC`.
    pub begin: i64,
    pub end: i64,
    pub tid: u32,
    pub comm: Name,
    pub call: Name,
    /// Whether it is time between calls.
    pub is_user: bool,
    /// The number of the thread's call; for time between calls, that of the next call.
    pub ordinal: u64,
    pub cpu: i64,
    pub ret: i64,
    /// Whether it is a part of a restarted call that continues.
    pub restarted: bool,
    pub sleeps_left_out: u32,
    /// Whether the call waits for several descriptors, and returns how many of them are ready.
    pub waits_for_events: bool,
    /// Whether it is the wait of an event loop: `poll` is also how a thread waits for one socket.
    pub is_loop: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Sleep {
    pub begin: i64,
    pub blocked: i64,
    pub runqueue: i64,
    pub label: Name,
    pub class: Name,
    pub is_idle: bool,
    /// A sleep for a time that the program chose. Its class is idle, but it may delay a request.
    pub is_timer: bool,
    pub resource: Name,
    pub owner: Name,
    pub doing: Name,
}

/// The first [`LOOP_CALLS`] of them are waits of event loops.
const EVENT_CALLS: &[&str] = &[
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "select",
    "_newselect",
    "pselect6",
    "pselect6_time32",
    "pselect6_time64",
    "poll",
    "ppoll",
    "ppoll_time32",
    "ppoll_time64",
];
const LOOP_CALLS: usize = 8;

fn numbers<T: ArrowPrimitiveType>(
    column: Option<&arrow_array::ArrayRef>,
) -> Result<&PrimitiveArray<T>> {
    let column = column.context("a column is missing")?;
    column
        .as_primitive_opt::<T>()
        .context("a column is of another type")
}

/// A column of texts: the number of each row's text.
struct Texts<'a> {
    keys: &'a PrimitiveArray<UInt32Type>,
    names: Vec<Name>,
}

impl<'a> Texts<'a> {
    fn of(column: Option<&'a arrow_array::ArrayRef>, names: &mut Names) -> Result<Texts<'a>> {
        let column = column.context("a column is missing")?;
        let dictionary: &DictionaryArray<UInt32Type> =
            column.as_dictionary_opt().context("a column is not text")?;
        let values = dictionary
            .values()
            .as_string_opt::<i32>()
            .context("a column is not text")?;
        Ok(Texts {
            keys: dictionary.keys(),
            names: values
                .iter()
                .map(|text| text.map_or(NONE, |text| names.number(text)))
                .collect(),
        })
    }

    fn get(&self, row: usize) -> Name {
        if self.keys.is_null(row) {
            return NONE;
        }
        self.names
            .get(self.keys.value(row) as usize)
            .copied()
            .unwrap_or(NONE)
    }
}

/// From the first beginning to the last end in a recording.
pub fn span(history: &History) -> Result<Option<Span>> {
    let mut span: Option<Span> = None;
    for batch in history.batches(&["time", "wall_ns"]) {
        let (file, batch) = batch?;
        let times = numbers::<TimestampNanosecondType>(batch.column_by_name("time"))?;
        let walls = numbers::<UInt64Type>(batch.column_by_name("wall_ns"))?;
        for row in 0..batch.num_rows() {
            let begin = times
                .value(row)
                .saturating_sub(file.meta.realtime_offset_ns);
            let end = begin.saturating_add(signed(walls.value(row)));
            let whole = span.get_or_insert(Span { begin, end });
            whole.begin = whole.begin.min(begin);
            whole.end = whole.end.max(end);
        }
    }
    Ok(span)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Calls back for every row with its sleeps.
pub fn walk(
    history: &History,
    names: &mut Names,
    see: &mut dyn FnMut(&Row, &[Sleep]),
) -> Result<()> {
    let idle = (names.number("idle"), names.number("timer"));
    let user = names.number("(user)");
    let events: Vec<Name> = EVENT_CALLS.iter().map(|call| names.number(call)).collect();
    for batch in history.batches(COLUMNS) {
        let (file, batch) = batch?;
        one(
            &batch,
            file.meta.realtime_offset_ns,
            names,
            (idle, user, &events),
            see,
        )
        .with_context(|| format!("cannot read {}", file.path.display()))?;
    }
    Ok(())
}

fn one(
    batch: &RecordBatch,
    offset: i64,
    names: &mut Names,
    ((idle, timer), user, events): ((Name, Name), Name, &[Name]),
    see: &mut dyn FnMut(&Row, &[Sleep]),
) -> Result<()> {
    let column = |name: &str| batch.column_by_name(name);
    let times = numbers::<TimestampNanosecondType>(column("time"))?;
    let walls = numbers::<UInt64Type>(column("wall_ns"))?;
    let tids = numbers::<UInt32Type>(column("tid"))?;
    let rets = numbers::<Int64Type>(column("ret"))?;
    let ordinals = numbers::<UInt64Type>(column("ordinal"))?;
    let cpus = numbers::<UInt64Type>(column("cpu_ns"))?;
    let left_out = numbers::<UInt32Type>(column("sleeps_left_out"))?;
    let restarted = column("restarted").and_then(|column| column.as_boolean_opt());
    let restarted = restarted.context("the column restarted is of another type")?;
    let comms = Texts::of(column("comm"), names)?;
    let calls = Texts::of(column("call"), names)?;
    let lists: Option<&ListArray> = column("sleeps").and_then(|column| column.as_list_opt());
    let lists = lists.context("the column sleeps is no list")?;
    let entries: Option<&StructArray> = lists.values().as_struct_opt();
    let entries = entries.context("the column sleeps has no fields")?;
    let field = |name: &str| entries.column_by_name(name);
    let begins = numbers::<UInt64Type>(field("begin_ns"))?;
    let blocked = numbers::<UInt64Type>(field("blocked_ns"))?;
    let runqueue = numbers::<UInt64Type>(field("runqueue_ns"))?;
    let labels = Texts::of(field("label"), names)?;
    let classes = Texts::of(field("class"), names)?;
    let resources = Texts::of(field("resource"), names)?;
    let owners = Texts::of(field("owner_comm"), names)?;
    let doings = Texts::of(field("owner_doing"), names)?;
    let offsets = lists.value_offsets();
    let mut sleeps = Vec::new();
    for row in 0..batch.num_rows() {
        let begin = times.value(row).saturating_sub(offset);
        sleeps.clear();
        for at in offsets[row] as usize..offsets[row + 1] as usize {
            let class = classes.get(at);
            sleeps.push(Sleep {
                begin: begin.saturating_add(signed(begins.value(at))),
                blocked: signed(blocked.value(at)),
                runqueue: signed(runqueue.value(at)),
                label: labels.get(at),
                class,
                is_idle: class == idle,
                is_timer: class == idle && labels.get(at) == timer,
                resource: resources.get(at),
                owner: owners.get(at),
                doing: doings.get(at),
            });
        }
        let call = calls.get(row);
        let row = Row {
            begin,
            end: begin.saturating_add(signed(walls.value(row))),
            tid: tids.value(row),
            comm: comms.get(row),
            call,
            is_user: call == user,
            ordinal: ordinals.value(row),
            cpu: signed(cpus.value(row)),
            ret: rets.value(row),
            restarted: restarted.value(row),
            sleeps_left_out: left_out.value(row),
            // A call that has not returned has not returned events.
            waits_for_events: events.contains(&call) && rets.is_valid(row),
            is_loop: events[..LOOP_CALLS].contains(&call),
        };
        see(&row, &sleeps);
    }
    Ok(())
}
