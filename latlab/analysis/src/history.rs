//! What a history of the server shows about a run: burstiness and causes, computed in one pass over its
//! rows.

mod burst;
mod causes;
mod rows;
mod span;

use anyhow::{bail, Result};
use debox_history::History;
use serde::Serialize;

pub use burst::{Burstiness, Ready, Runnable};
pub use causes::{Cause, Causes};
pub use span::Span;

use crate::history::burst::BurstCollector;
use crate::history::causes::CauseCollector;
use crate::request::{Run, Unit};

/// If the clock offsets of two recordings differ by more, the clock was set in between.
const CLOCKS_APART_NS: u64 = 1_000_000;

/// Results from the server's history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerHistory {
    /// Length of the time that run and history have in common, on which the figures are based. `None`:
    /// they have none, and the figures cover the whole history.
    pub common_seconds: Option<f64>,
    pub burstiness: Burstiness,
    pub causes: Option<Causes>,
    /// Why there are no causes.
    pub no_causes: Option<String>,
    pub caveats: Vec<String>,
}

/// Joins the requests of `run` with `history`. `percent`: requests slower than this percentile are
/// analyzed.
pub fn join(run: &Run, history: &History, percent: f64) -> Result<ServerHistory> {
    let mut caveats = Vec::new();
    check_host(run, history, &mut caveats)?;
    let recorded = rows::span(history)?;
    // The recorder's offset converts a request's realtime to CLOCK_MONOTONIC.
    let offset = history
        .files
        .first()
        .map_or(0, |file| file.meta.realtime_offset_ns);
    let apart = history
        .files
        .iter()
        .map(|file| file.meta.realtime_offset_ns.abs_diff(offset))
        .max();
    if apart.unwrap_or(0) > CLOCKS_APART_NS {
        caveats.push(
            "The machine's clock was set between the recordings of the history: causes may be of another time."
                .to_string(),
        );
    }
    let started = run
        .started_realtime_ns
        .filter(|_| run.has_times && run.unit == Unit::Nanoseconds)
        .and_then(|started| started.checked_sub(offset));
    let window = started.and_then(|started| window(run, started));
    let common = match (window, recorded) {
        (Some(window), Some(recorded)) => match window.common(recorded) {
            Some(common) => Some(common),
            None => bail!(
                "the history and the requests have no time in common: it is {} after the requests",
                apart_in_words(window, recorded)
            ),
        },
        (None, recorded) => recorded,
        (_, None) => None,
    };
    let whole = Span {
        begin: i64::MIN / 2,
        end: i64::MAX / 2,
    };
    let mut burst = BurstCollector::new(common.unwrap_or(whole));
    let mut causes = match (started, common) {
        (Some(started), Some(common)) => CauseCollector::new(run, started, common, percent),
        _ => None,
    };
    let mut names = rows::Names::default();
    rows::walk(history, &mut names, &mut |row, sleeps| {
        burst.add(row, sleeps);
        if let Some(causes) = &mut causes {
            causes.add(row, sleeps);
        }
    })?;
    add_missing_caveats(history, &mut caveats);
    let no_causes = match &causes {
        Some(_) => None,
        None if started.is_none() => Some(
            "the requests do not say when they were sent by the clock of the machine".to_string(),
        ),
        None => Some("no request lies in the time that was recorded".to_string()),
    };
    let is_whole = history.files.iter().all(|file| file.meta.filter.is_none());
    Ok(ServerHistory {
        common_seconds: window
            .and(common)
            .map(|common| common.length() as f64 / 1e9),
        burstiness: burst.finish(&names, is_whole),
        causes: causes.map(|causes| causes.finish(&names)),
        no_causes,
        caveats,
    })
}

fn apart_in_words(window: Span, recorded: Span) -> String {
    let apart = if recorded.begin >= window.end {
        recorded.begin.saturating_sub(window.end) as f64
    } else {
        -(window.begin.saturating_sub(recorded.end) as f64)
    };
    format!("{:.1} s", apart / 1e9)
}

fn window(run: &Run, started: i64) -> Option<Span> {
    let scored = || run.requests.iter().filter(|request| !request.is_warm_up);
    let begin = scored().map(|request| request.sent_ns).min()?;
    let end = scored().map(|request| request.end_ns()).max()?;
    Some(Span {
        begin: started.checked_add(begin)?,
        end: started.checked_add(end)?,
    })
}

/// The clocks of two machines differ by more than a request takes.
fn check_host(run: &Run, history: &History, caveats: &mut Vec<String>) -> Result<()> {
    let sender = run.meta.as_ref().map_or("", |meta| meta.host.as_str());
    for file in &history.files {
        let server = file.meta.host.as_str();
        if sender.is_empty() || server.is_empty() {
            caveats.push(
                "That requests and history are of the same machine, and so of the same clock, is taken for granted."
                    .to_string(),
            );
            return Ok(());
        }
        if sender != server {
            bail!(
                "{} is of {server}, and the requests were sent from {sender}: the clocks of two machines are \
                 not the same, so that causes cannot be told",
                file.path.display()
            );
        }
    }
    Ok(())
}

fn add_missing_caveats(history: &History, caveats: &mut Vec<String>) {
    let Some(last) = history.files.last() else {
        return;
    };
    let lost = last.meta.lost;
    if lost.records + lost.unwritten + lost.sleeps + lost.threads + lost.probe_misses > 0 {
        caveats.push(format!(
            "The history is not whole: {} records, {} sleeps and {} threads were lost.",
            lost.records + lost.unwritten,
            lost.sleeps,
            lost.threads
        ));
    }
    if let Some(filter) = history
        .files
        .iter()
        .find_map(|file| file.meta.filter.as_ref())
    {
        caveats.push(format!("The history has only calls that `{filter}` keeps."));
    }
    if history.files.iter().any(|file| file.cut_off > 0) {
        caveats.push("A file of the history is cut at its end.".to_string());
    }
}
