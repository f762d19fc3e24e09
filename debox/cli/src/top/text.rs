// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows in words: the columns that the screen and the tables of --batch have in common.

use super::facts::Facts;
use super::rows::{Row, Share};
use crate::options::{By, SortBy};
use crate::units;

/// Widths of the columns before the last two.
pub const ID_WIDTH: usize = 7;
pub const PERCENT_WIDTH: usize = 6;
pub const TIME_WIDTH: usize = 7;

/// A row's cells.
pub struct Cells {
    pub id: String,
    pub name: String,
    pub wait: String,
    pub cpu: String,
    pub longest: String,
    pub why: String,
    pub held_by: String,
}

pub fn cells(row: &Row, seconds: f64) -> Cells {
    let percent = |ns: u64| percent(ns, seconds);
    Cells {
        id: row
            .inside
            .or(row.tid)
            .or(row.pid)
            .map_or(String::new(), |id| id.to_string()),
        name: row.name.clone(),
        wait: percent(row.waiting_ns),
        cpu: percent(row.cpu_ns),
        longest: match row.longest_ns {
            0 => "-".to_string(),
            ns => units::time(ns),
        },
        why: why(row),
        held_by: row
            .held_by
            .first()
            .map_or("-".to_string(), |share| shared(share, &row.held_by)),
    }
}

/// Of one thread's time; several threads may add up to more than 100.
pub fn percent(ns: u64, seconds: f64) -> String {
    if ns == 0 || seconds <= 0.0 {
        return "-".to_string();
    }
    let percent = ns as f64 / 1e7 / seconds;
    match percent {
        p if p >= 99.95 => format!("{p:.0}%"),
        p => format!("{p:.1}%"),
    }
}

fn why(row: &Row) -> String {
    let Some(first) = row.why.first() else {
        return match row.cpu_ns {
            0 => "-".to_string(),
            _ => "computes".to_string(),
        };
    };
    let text = shared(first, &row.why);
    match (row.blocks_loop, row.cpu_ns > row.waiting_ns) {
        (true, _) => format!("in loop: {text}"),
        (false, true) => format!("computes; {text}"),
        (false, false) => text,
    }
}

/// With its share of the whole, if there are others.
fn shared(share: &Share, of: &[Share]) -> String {
    let whole: u64 = of.iter().map(|share| share.ns).sum();
    if of.len() < 2 || whole == 0 {
        return share.what.to_string();
    }
    format!(
        "{} {:.0}%",
        share.what,
        share.ns as f64 * 100.0 / whole as f64
    )
}

/// What the interval was, in one line.
pub fn summary(facts: &Facts) -> String {
    let processes: std::collections::BTreeSet<u32> =
        facts.threads.iter().map(|fact| fact.thread.pid).collect();
    format!(
        "{} of {}, {:.1} s; the look took {}",
        units::counted(facts.threads.len() as u64, "thread"),
        match processes.len() {
            1 => "1 process".to_string(),
            several => format!("{several} processes"),
        },
        facts.seconds,
        units::time(facts.took_ns),
    )
}

/// What is missing in the rows, if anything.
pub fn losses(facts: &Facts) -> Option<String> {
    let mut parts = Vec::new();
    if facts.lost_waits > 0 {
        parts.push(format!(
            "{} ({}) had no room in the tables",
            units::counted(facts.lost_waits, "wait"),
            units::time(facts.lost_ns)
        ));
    }
    if facts.lost_threads > 0 {
        parts.push(format!(
            "{} not monitored: raise --max-threads",
            units::counted(facts.lost_threads, "thread")
        ));
    }
    (!parts.is_empty()).then(|| format!("Missing: {}", parts.join("; ")))
}

pub fn by_name(by: By) -> &'static str {
    match by {
        By::Process => "process",
        By::Thread => "thread",
        By::Unit => "unit",
        By::Call => "call",
        By::Label => "label",
        By::Class => "class",
        By::Resource => "resource",
        By::Owner => "owner",
    }
}

pub fn sort_name(sort: SortBy) -> &'static str {
    match sort {
        SortBy::Wait => "wait",
        SortBy::Cpu => "cpu",
        SortBy::Longest => "longest",
        SortBy::Waits => "waits",
        SortBy::Name => "name",
    }
}

/// The text in exactly this width; `…` where it is cut.
pub fn fit(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return format!("{text}{}", " ".repeat(width - length));
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_whole() {
        let share = |what: &str, ns: u64| Share {
            what: what.into(),
            kind: "disk".into(),
            ns,
        };
        let row = Row {
            waiting_ns: 4_000_000,
            why: vec![share("page read", 3), share("inode lock", 1)],
            held_by: vec![share("a/1", 4)],
            ..Row::default()
        };
        let cells = cells(&row, 2.0);
        assert_eq!(
            (cells.why.as_str(), cells.held_by.as_str()),
            ("page read 75%", "a/1")
        );
        assert_eq!((cells.wait.as_str(), cells.cpu.as_str()), ("0.2%", "-"));
    }

    #[test]
    fn cells_have_their_width() {
        assert_eq!(fit("ab", 4), "ab  ");
        assert_eq!(fit("abcdef", 4), "abc…");
        assert_eq!(percent(2_000_000_000, 1.0), "200%");
        assert_eq!(percent(0, 0.0), "-");
    }
}
