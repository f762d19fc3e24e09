// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows as JSON: `debox.top/1` (debox/schema/top-1.json).

use serde::Serialize;

use super::facts::Facts;
use super::rows::{Row, Share};
use super::text::by_name;
use crate::options::By;

#[derive(Serialize)]
pub struct TopJson<'a> {
    schema: &'static str,
    /// Seconds since 1970.
    at: i64,
    interval_ns: u64,
    by: &'static str,
    filter: Option<String>,
    within: Vec<Within<'a>>,
    threads: usize,
    lost_waits: u64,
    lost_waits_ns: u64,
    lost_threads: u64,
    rows: Vec<RowJson<'a>>,
}

#[derive(Serialize)]
struct Within<'a> {
    by: &'static str,
    key: &'a str,
}

#[derive(Serialize)]
struct RowJson<'a> {
    name: &'a str,
    pid: Option<u32>,
    tid: Option<u32>,
    inside: Option<u32>,
    waits: u64,
    open_waits: u64,
    waiting_ns: u64,
    held_up_ns: u64,
    cpu_ns: u64,
    longest_ns: u64,
    blocks_loop: bool,
    why: Vec<ShareJson<'a>>,
    held_by: Vec<ShareJson<'a>>,
}

#[derive(Serialize)]
struct ShareJson<'a> {
    what: &'a str,
    kind: &'a str,
    ns: u64,
}

/// The rows of one interval.
pub fn of<'a>(
    facts: &Facts,
    rows: &'a [Row],
    by: By,
    filter: Option<String>,
    within: &'a [(By, std::rc::Rc<str>)],
) -> TopJson<'a> {
    TopJson {
        schema: "debox.top/1",
        at: jiff::Timestamp::now().as_second(),
        interval_ns: (facts.seconds * 1e9) as u64,
        by: by_name(by),
        filter,
        within: within
            .iter()
            .map(|(by, key)| Within {
                by: by_name(*by),
                key,
            })
            .collect(),
        threads: facts.threads.len(),
        lost_waits: facts.lost_waits,
        lost_waits_ns: facts.lost_ns,
        lost_threads: facts.lost_threads,
        rows: rows.iter().map(row).collect(),
    }
}

fn row(row: &Row) -> RowJson<'_> {
    RowJson {
        name: &row.name,
        pid: row.pid,
        tid: row.tid,
        inside: row.inside,
        waits: row.waits,
        open_waits: row.open,
        waiting_ns: row.waiting_ns,
        held_up_ns: row.harm_ns,
        cpu_ns: row.cpu_ns,
        longest_ns: row.longest_ns,
        blocks_loop: row.blocks_loop,
        why: row.why.iter().map(share).collect(),
        held_by: row.held_by.iter().map(share).collect(),
    }
}

fn share(share: &Share) -> ShareJson<'_> {
    ShareJson {
        what: &share.what,
        kind: &share.kind,
        ns: share.ns,
    }
}
