// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hierarchy as a picture: every benchmark in its column, with its evidence.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kit_page::Page;
use serde::Serialize;

use crate::decomposition::Decomposition;
use crate::figures::{figures, Figure};
use crate::file::Recorded;
use crate::hierarchy::{explain, nodes, Explained};
use crate::meta::{LeftOut, Meta};

pub use kit_page::missing;

/// How often the columns are sorted by their neighbours.
const SWEEPS: usize = 8;

/// One sample as the page shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Shown {
    round: u32,
    ns: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Entry {
    #[serde(flatten)]
    figure: Figure,
    samples_ns: Vec<Shown>,
    /// Null: no other benchmarks explain it here.
    explained: Option<Explained>,
    decomposition: Option<Decomposition>,
}

/// A benchmark's place in the picture. Column 0 is made of nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Place {
    benchmark: String,
    column: usize,
    /// From the top of its column.
    row: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Picture<'a> {
    meta: &'a Meta,
    left_out: &'a [LeftOut],
    entries: Vec<Entry>,
    places: Vec<Place>,
}

/// One HTML file.
///
/// # Errors
///
/// This build has no libraries for pages; [`missing`] says so beforehand.
pub fn page(recorded: &Recorded, decompositions: &[Decomposition]) -> Result<String> {
    let page = Page {
        title: "hbench",
        command: "hbench explain",
        script: include_str!("../page/sections.js"),
        style: include_str!("../page/style.css"),
    };
    page.compose(&picture(recorded, decompositions))
}

fn picture<'a>(recorded: &'a Recorded, decompositions: &[Decomposition]) -> Picture<'a> {
    let figures = figures(recorded);
    let page_bytes = recorded.meta.environment.page_bytes;
    let explained = explain(&figures, page_bytes).nodes;
    let places = places(&figures);
    let entry = |figure: Figure| Entry {
        samples_ns: samples(recorded, &figure.benchmark),
        explained: explained
            .iter()
            .find(|one| one.benchmark == figure.benchmark)
            .cloned(),
        decomposition: decompositions
            .iter()
            .find(|one| one.benchmark == figure.benchmark)
            .cloned(),
        figure,
    };
    Picture {
        meta: &recorded.meta,
        left_out: &recorded.meta.left_out,
        entries: figures.into_iter().map(entry).collect(),
        places,
    }
}

fn samples(recorded: &Recorded, benchmark: &str) -> Vec<Shown> {
    let of = recorded.samples.iter();
    of.filter(|sample| sample.benchmark == benchmark)
        .map(|sample| Shown {
            round: sample.round,
            ns: sample.operation_ns,
        })
        .collect()
}

/// The measured benchmarks that are a node or a part of one.
fn places(figures: &[Figure]) -> Vec<Place> {
    let measured: BTreeSet<&str> = figures.iter().map(|one| one.benchmark.as_str()).collect();
    let declared = nodes();
    let mut parts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in &declared {
        let has_all = |part: &crate::hierarchy::Part| measured.contains(part.benchmark.as_str());
        if measured.contains(node.benchmark.as_str()) && node.parts.iter().all(has_all) {
            let own = node.parts.iter().map(|part| part.benchmark.as_str());
            parts.entry(&node.benchmark).or_default().extend(own);
        }
    }
    let names: BTreeSet<&str> = parts.iter().fold(BTreeSet::new(), |mut names, (node, of)| {
        names.insert(node);
        names.extend(of);
        names
    });
    let mut columns: Vec<Vec<&str>> = Vec::new();
    for figure in figures {
        if let Some(name) = names.get(figure.benchmark.as_str()) {
            let column = depth(name, &parts, names.len());
            columns.resize(columns.len().max(column + 1), Vec::new());
            columns[column].push(name);
        }
    }
    sort(&mut columns, &parts);
    let place = |column: usize, row: usize, name: &str| Place {
        benchmark: name.to_string(),
        column,
        row,
    };
    let rows = columns.iter().enumerate().flat_map(|(column, of)| {
        let names = of.iter().enumerate();
        names.map(move |(row, name)| place(column, row, name))
    });
    rows.collect()
}

/// The longest way to a benchmark without parts. `limit` ends a circle, which the test of the data excludes.
fn depth(name: &str, parts: &BTreeMap<&str, BTreeSet<&str>>, limit: usize) -> usize {
    let Some(own) = parts.get(name).filter(|_| limit > 0) else {
        return 0;
    };
    let below = own.iter().map(|part| depth(part, parts, limit - 1));
    1 + below.max().unwrap_or(0)
}

/// Moves each benchmark towards the middle of those that it is joined to, so that lines cross less.
fn sort(columns: &mut [Vec<&str>], parts: &BTreeMap<&str, BTreeSet<&str>>) {
    for _ in 0..SWEEPS {
        let mut heights: BTreeMap<&str, f64> = BTreeMap::new();
        for of in &*columns {
            for (row, name) in of.iter().enumerate() {
                heights.insert(name, (row as f64 + 0.5) / of.len() as f64);
            }
        }
        let middle = |name: &str| {
            let joined = parts.iter().filter_map(|(node, own)| match own {
                _ if *node == name => Some(own.iter().filter_map(|part| heights.get(part)).sum()),
                own if own.contains(name) => heights.get(node).copied(),
                _ => None,
            });
            let (mut sum, mut count) = (0.0, 0.0);
            for height in joined {
                sum += height;
                count += 1.0;
            }
            if let Some(own) = parts.get(name) {
                // The sum over its parts was one entry.
                count += own.len() as f64 - 1.0;
            }
            sum / f64::max(count, 1.0)
        };
        let moved: BTreeMap<&str, f64> = heights.keys().map(|name| (*name, middle(name))).collect();
        for of in &mut *columns {
            of.sort_by(|a, b| moved[a].total_cmp(&moved[b]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::recorded;

    #[test]
    fn parts_stand_in_lower_columns_than_what_they_make() {
        let result = recorded(&[
            ("call.null", &[100.0, 101.0]),
            ("unix.send-receive/1", &[400.0]),
            ("tcp.send-receive/1", &[2000.0]),
            ("memory.copy-library/256K", &[10.0]),
            ("tcp.send-receive/64K", &[9000.0]),
            // It has no part here, and is none.
            ("futex.wake/one-cpu", &[1.0]),
        ]);
        let found = picture(&result, &[]);
        let column = |name: &str| {
            let mut places = found.places.iter();
            places
                .find(|one| one.benchmark == name)
                .map(|one| one.column)
        };
        assert_eq!(column("call.null"), Some(0));
        assert_eq!(column("memory.copy-library/256K"), Some(0));
        assert_eq!(column("unix.send-receive/1"), Some(1));
        assert_eq!(column("tcp.send-receive/1"), Some(2));
        assert_eq!(column("tcp.send-receive/64K"), Some(3));
        assert_eq!(column("futex.wake/one-cpu"), None);
        assert_eq!(found.entries.len(), 6);
        assert_eq!(found.entries[0].samples_ns.len(), 2);
        let places: BTreeSet<_> = found
            .places
            .iter()
            .map(|one| (one.column, one.row))
            .collect();
        assert_eq!(places.len(), found.places.len(), "each has its own place");
    }

    /// Acts as a reader: selects every benchmark, and counts what its evidence has.
    const LOOK_AT_EACH: &str = r##"<script>
const named = [...document.getElementById("chosen").options].filter((option) => !option.value.startsWith("<"));
const seen = named.map((option) => {
  choose(option.value);
  const of = document.getElementById("of-chosen");
  return `${option.value}:${of.querySelectorAll("table").length}:${document.querySelectorAll("#samples canvas").length}`;
});
document.documentElement.dataset.seen = seen.join("|");
document.querySelectorAll(".picture a")[0].dispatchEvent(new MouseEvent("click"));
document.documentElement.dataset.clicked = document.querySelector("#of-chosen h3").textContent;
</script></body>"##;

    #[test]
    fn every_benchmark_shows_its_evidence_and_nothing_complains() {
        let skip = |why: &str| debox_skipped::skipped(&format!("hbench's page: {why}"));
        if let Some(why) = missing() {
            return skip(why);
        }
        let evil = "<img src=x onerror=document.title=1>";
        let result = recorded(&[
            ("call.null", &[100.0, 101.0, 99.0]),
            ("unix.send-receive/1", &[400.0, 401.0, 402.0]),
            ("tcp.send-receive/1", &[300.0]),
            (evil, &[1.0]),
        ]);
        let decomposition = crate::decomposition::tests::with_tree("tcp.send-receive/1", evil);
        let text = page(&result, &[decomposition]).expect("a page");
        for outside in ["<script src", "<link", "@import", "url(http"] {
            assert!(!text.contains(outside), "{outside} in the page");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let html = directory.path().join("page.html");
        std::fs::write(&html, text.replace("</body>", LOOK_AT_EACH)).expect("the page");
        for (width, hash) in [(1200, ""), (390, "#dark")] {
            let Some(opened) = debox_browser::open(&html, width, hash) else {
                return skip("no chromium (scripts/setup browser)");
            };
            let (head, log) = (
                opened.dom.chars().take(1200).collect::<String>(),
                &opened.log,
            );
            assert!(
                head.contains("data-done=\"yes\"") && !head.contains("data-error"),
                "{head}\n{log}"
            );
            assert!(head.contains("data-plots=\"2/2\""), "{head}");
            // Its parts; and with a decomposition the budget, the calls, the places and the residuals.
            assert!(
                head.contains("call.null:0:1|unix.send-receive/1:1:1|tcp.send-receive/1:5:1"),
                "{head}"
            );
            assert!(head.contains("data-clicked=\"call.null\""), "{head}");
            assert!(opened.complaints().is_empty(), "{:?}", opened.complaints());
            assert!(!opened.dom.contains("<img src"), "a name became an element");
        }
    }

    #[test]
    fn the_declared_hierarchy_has_no_circle() {
        let declared = nodes();
        let parts: BTreeMap<&str, BTreeSet<&str>> = declared
            .iter()
            .map(|node| {
                let own = node.parts.iter().map(|part| part.benchmark.as_str());
                (node.benchmark.as_str(), own.collect())
            })
            .collect();
        assert_eq!(parts.len(), declared.len(), "a node is declared twice");
        for node in parts.keys() {
            let mut below: BTreeSet<&str> = parts[node].clone();
            let mut open: Vec<&str> = below.iter().copied().collect();
            while let Some(name) = open.pop() {
                let own = parts.get(name).into_iter().flatten();
                open.extend(own.copied().filter(|part| below.insert(part)));
            }
            assert!(!below.contains(node), "{node}");
        }
    }
}
