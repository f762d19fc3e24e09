//! A file's metadata.

use anyhow::{bail, Context, Result};
use debox_model::report::{Deadlock, Headline, Process, Report, Samples, Spin, Totals};
use parquet::file::metadata::KeyValue;
use serde::{Deserialize, Serialize};

/// Name and version of the schema. A reader accepts files with the same number; columns are only ever added.
pub const SCHEMA: &str = "debox.history/1";

/// The key of [`Meta`], as JSON, in the file's metadata.
pub(crate) const KEY: &str = "debox.history";

/// Metadata of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Meta {
    pub schema: String,
    /// The program that wrote it.
    pub writer: String,
    pub host: String,
    pub kernel: String,
    #[serde(default)]
    pub command: Vec<String>,
    pub cpus: u32,
    pub detail: Vec<String>,
    /// Which records were kept; without it, all.
    #[serde(default)]
    pub filter: Option<String>,
    /// Calls shorter than this have no stack.
    #[serde(default)]
    pub stacks_from_ns: u64,
    /// Whether the program's own times around its calls were requested.
    #[serde(default)]
    pub user_level: bool,
    /// What to add to `CLOCK_MONOTONIC` to get nanoseconds since 1970. Taken at the start of the recording:
    /// setting the clock later does not change it.
    pub realtime_offset_ns: i64,
    /// `CLOCK_MONOTONIC` at the start and the end.
    pub started_ns: u64,
    #[serde(default)]
    pub ended_ns: u64,
    /// Whether the recorder finished. False: it was killed, or is still writing.
    #[serde(default)]
    pub complete: bool,
    /// The number of this file in a recording with several, from 0.
    #[serde(default)]
    pub part: u32,
    /// Rows in the parts before this one and in this one's sealed part.
    #[serde(default)]
    pub rows_before: u64,
    /// Losses of the whole recording so far.
    #[serde(default)]
    pub lost: Lost,
    /// Records that the filter did not keep.
    #[serde(default)]
    pub filtered_out: u64,
    /// Where all threads' time went, in calls and between them. It covers the whole recording, so only the
    /// last file has it, and only if the recorder finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// The processes' names from their command lines, with an entry for each program that a process ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    /// Entries of `processes` for which there was no room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub processes_left_out: u64,
    /// Processes that should have been recorded and were not, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_recorded: Vec<String>,
    /// The times in which records could not be written, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
    /// Threads that were found to wait for each other, so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deadlocks: Vec<Deadlock>,
}

/// Sums that the probes kept beside the records. They cover all records, including those that were not kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Account {
    pub totals: Totals,
    #[serde(default)]
    pub headline: Option<Headline>,
    /// The threads with the most CPU time in user mode, the most first.
    #[serde(default)]
    pub threads: Vec<Life>,
    /// The number of other threads; the totals include them.
    #[serde(default)]
    pub threads_left_out: u64,
    /// Samples of where threads computed; null if they were not sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Samples>,
    /// Kernel locks that calls spun on, the longest first. None: an earlier version wrote the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spins: Option<Vec<Spin>>,
    /// The number of other locks, and the time that calls spun on them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spins_left_out: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spins_left_out_ns: u64,
}

/// The time of one thread.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Life {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub totals: Totals,
}

/// Limits on the metadata, which is written often and read as a whole.
const LIVES_MAX: usize = 200;
const SPINS_MAX: usize = 100;
const STACKS_BYTES_MAX: usize = 512 << 10;

impl Account {
    pub fn of(report: &Report) -> Account {
        let life = |thread: &debox_model::report::Thread| Life {
            pid: thread.pid,
            tid: thread.tid,
            comm: thread.comm.clone(),
            totals: thread.totals.clone(),
        };
        let mut threads: Vec<Life> = report.threads.iter().map(life).collect();
        threads.sort_by_key(|life| std::cmp::Reverse(life.totals.user_cpu_ns));
        let threads_left_out = threads.len().saturating_sub(LIVES_MAX) as u64;
        threads.truncate(LIVES_MAX);
        let (spins, others) = report.spins.split_at(report.spins.len().min(SPINS_MAX));
        Account {
            totals: report.totals.clone(),
            headline: report.headline.clone(),
            threads,
            threads_left_out,
            samples: report
                .samples
                .as_ref()
                .map(|samples| samples.within(STACKS_BYTES_MAX)),
            spins: Some(spins.to_vec()),
            spins_left_out: others.len() as u64,
            spins_left_out_ns: others
                .iter()
                .fold(0, |sum, spin| sum.saturating_add(spin.spin_ns)),
        }
    }
}

/// Further gaps are merged with the last one.
const GAPS_MAX: usize = 64;

/// Records that could not be written because the disk was full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    pub records: u64,
    /// Start of the first and end of the last of them (`CLOCK_MONOTONIC`).
    pub from_ns: u64,
    pub to_ns: u64,
}

impl Gap {
    /// Extends a gap by one more record.
    pub(crate) fn add(gap: &mut Option<Gap>, from_ns: u64, to_ns: u64) {
        let gap = gap.get_or_insert(Gap {
            records: 0,
            from_ns,
            to_ns,
        });
        gap.records += 1;
        gap.from_ns = gap.from_ns.min(from_ns);
        gap.to_ns = gap.to_ns.max(to_ns);
    }
}

/// What was not recorded and is therefore missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Records for which there was no room.
    pub records: u64,
    /// Missing sleeps of calls that were recorded.
    pub sleeps: u64,
    /// Stacks that could not be captured.
    pub stacks: u64,
    /// Threads that were not monitored.
    pub threads: u64,
    /// Events that the kernel did not show.
    pub probe_misses: u64,
    /// Records that could not be written: the disk was full.
    #[serde(skip_serializing_if = "is_zero")]
    pub unwritten: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Lost {
    pub fn is_none(&self) -> bool {
        *self == Lost::default()
    }
}

impl Meta {
    /// Counts records that could not be written.
    pub fn add_gap(&mut self, gap: Gap) {
        if gap.records == 0 {
            return;
        }
        self.lost.unwritten = self.lost.unwritten.saturating_add(gap.records);
        let full = self.gaps.len() >= GAPS_MAX;
        match self.gaps.last_mut() {
            Some(last) if full || last.to_ns >= gap.from_ns => {
                last.records = last.records.saturating_add(gap.records);
                last.from_ns = last.from_ns.min(gap.from_ns);
                last.to_ns = last.to_ns.max(gap.to_ns);
            }
            _ => self.gaps.push(gap),
        }
    }

    pub(crate) fn to_key_value(&self) -> Result<KeyValue> {
        let text = serde_json::to_string(self).context("cannot describe the file")?;
        Ok(KeyValue::new(KEY.to_string(), text))
    }

    pub(crate) fn from_key_values(values: Option<&Vec<KeyValue>>) -> Result<Meta> {
        let ours = values
            .into_iter()
            .flatten()
            .find(|value| value.key == KEY)
            .and_then(|value| value.value.as_deref());
        let Some(text) = ours else {
            bail!("it is a Parquet file, but not a history that `debox record` wrote");
        };
        let named: serde_json::Value =
            serde_json::from_str(text).context("its description is damaged")?;
        let schema = named.get("schema").and_then(|schema| schema.as_str());
        if schema != Some(SCHEMA) {
            bail!(
                "its schema is {}, and this debox reads {SCHEMA}: use the debox that wrote it, or a \
                 newer one",
                schema.unwrap_or("not named")
            );
        }
        serde_json::from_value(named).context("its description is damaged")
    }
}
