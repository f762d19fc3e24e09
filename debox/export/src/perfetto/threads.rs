//! The threads and processes of a history, read before the records so that a waker is known before its
//! first record.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampNanosecondType, UInt32Type};
use arrow_array::{Array, PrimitiveArray, RecordBatch};
use debox_history::{History, ProcessNames};
use debox_model::report::Process;

const COLUMNS: &[&str] = &["time", "pid", "tid", "comm"];

pub struct Thread {
    pub pid: u32,
    pub tid: u32,
    /// Its last name.
    pub name: String,
    /// The start of its first call, since 1970.
    from_ns: i64,
    /// Whether its track was described.
    pub is_described: bool,
    /// When its last slice ended.
    pub end_ns: u64,
}

#[derive(Default)]
pub struct Threads {
    pub all: Vec<Thread>,
    by_ids: HashMap<(u32, u32), usize>,
    /// By thread id, which may be reused by a thread of another process.
    by_tid: HashMap<u32, Vec<usize>>,
    described: HashSet<u32>,
    /// The last program of each process.
    processes: HashMap<u32, Process>,
    /// Names shared by several processes with different command lines.
    ambiguous: HashSet<String>,
}

impl Threads {
    pub fn of(history: &History) -> Result<Threads> {
        let mut threads = Threads::default();
        let names = ProcessNames::of(history);
        let processes = names
            .last()
            .map(|(_, process)| (process.pid, process.clone()));
        threads.processes = processes.collect();
        for batch in history.batches(COLUMNS) {
            let (file, batch) = batch?;
            threads
                .take_in(&batch)
                .with_context(|| format!("cannot read {}", file.path.display()))?;
        }
        threads.find_ambiguous();
        Ok(threads)
    }

    fn take_in(&mut self, batch: &RecordBatch) -> Result<()> {
        let column = |name: &str| {
            let found = batch.column_by_name(name);
            found.with_context(|| format!("the column {name} is missing"))
        };
        let wrong = "a column is of another type";
        let ids = |name: &str| -> Result<&PrimitiveArray<UInt32Type>> {
            column(name)?.as_primitive_opt().context(wrong)
        };
        let times: &PrimitiveArray<TimestampNanosecondType> =
            column("time")?.as_primitive_opt().context(wrong)?;
        let names = column("comm")?
            .as_dictionary_opt::<UInt32Type>()
            .context(wrong)?;
        let texts = names.values().as_string_opt::<i32>().context(wrong)?;
        let (pids, tids) = (ids("pid")?, ids("tid")?);
        let mut last = None;
        for row in 0..batch.num_rows() {
            let who = (pids.value(row), tids.value(row));
            let from_ns = times.value(row);
            let index = match last {
                Some((same, index)) if same == who => index,
                _ => self.index(who, from_ns),
            };
            last = Some((who, index));
            let thread = &mut self.all[index];
            thread.from_ns = thread.from_ns.min(from_ns);
            let name = match names.key(row) {
                Some(key) if key < texts.len() => texts.value(key),
                _ => "",
            };
            if thread.name != name {
                thread.name = name.to_string();
            }
        }
        Ok(())
    }

    /// Returns the thread's index, and adds the thread if it is new.
    pub fn index(&mut self, (pid, tid): (u32, u32), from_ns: i64) -> usize {
        *self.by_ids.entry((pid, tid)).or_insert_with(|| {
            self.by_tid.entry(tid).or_default().push(self.all.len());
            self.all.push(Thread {
                pid,
                tid,
                name: String::new(),
                from_ns,
                is_described: false,
                end_ns: 0,
            });
            self.all.len() - 1
        })
    }

    /// The thread that had this id at that time; between two threads that had it, the earlier one.
    pub fn with_tid(&self, tid: u32, at_ns: i64) -> Option<usize> {
        let found = self.by_tid.get(&tid)?;
        let before = found
            .iter()
            .filter(|index| self.all[**index].from_ns <= at_ns);
        before
            .max_by_key(|index| self.all[**index].from_ns)
            .or_else(|| found.iter().min_by_key(|index| self.all[**index].from_ns))
            .copied()
    }

    /// Whether no thread of the process was described before.
    pub fn is_first_of(&mut self, pid: u32) -> bool {
        self.described.insert(pid)
    }

    fn main_thread(&self, pid: u32, otherwise: usize) -> &Thread {
        let main = self.by_ids.get(&(pid, pid)).copied();
        &self.all[main.unwrap_or(otherwise)]
    }

    /// The name of its main thread, if known; if several processes share that name, the title or command
    /// line.
    pub fn process_name(&self, pid: u32, otherwise: usize) -> String {
        let name = &self.main_thread(pid, otherwise).name;
        let process = self.processes.get(&pid);
        match process.filter(|_| self.ambiguous.contains(name)) {
            Some(process) => process.name(),
            None => name.clone(),
        }
    }

    /// The words of the process's command line, or its title as a single word.
    pub fn command_line(&self, pid: u32) -> Vec<String> {
        let process = self.processes.get(&pid);
        process.map_or(Vec::new(), |process| match &process.title {
            Some(title) => vec![title.clone()],
            None => process.command.clone(),
        })
    }

    fn find_ambiguous(&mut self) {
        let mut lines: HashMap<&str, &Process> = HashMap::new();
        for (pid, process) in &self.processes {
            let Some(main) = self.by_ids.get(&(*pid, *pid)) else {
                continue;
            };
            let name = self.all[*main].name.as_str();
            let other = lines.entry(name).or_insert(process);
            if other.name() != process.name() {
                self.ambiguous.insert(name.to_string());
            }
        }
    }
}
