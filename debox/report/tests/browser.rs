// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page in a real browser without a network: every plot is drawn, and no error is reported.

mod common;

use std::fs;

use common::{calls, write};
use debox_history::History;
use debox_report::{analyze, page};

/// Not captured by the test harness, so `scripts/test` can list the skipped test.
fn skip(why: &str) {
    let name = std::thread::current()
        .name()
        .unwrap_or("browser")
        .to_string();
    debox_skipped::skipped(&format!("{name}: {why}"));
}

/// Acts as a reader who opens everything, and looks at each view of the plot over time.
const LOOK_AT_ALL: &str = r##"<script>
document.querySelectorAll("details.folded").forEach((one) => { one.open = true; });
setTimeout(() => {
  const choice = document.getElementById("over-time-of");
  const seen = [...choice.options].map((option) => {
    choice.value = option.value;
    choice.dispatchEvent(new Event("change"));
    const drawn = document.querySelector("#over-time canvas") ? "" : " is not drawn";
    return `${option.textContent}:${document.querySelectorAll("#over-time .legend label").length}${drawn}`;
  });
  document.documentElement.dataset.views = seen.join("|");
  choice.value = "all";
  choice.dispatchEvent(new Event("change"));
}, 100);
</script></body>"##;

/// The page of a small history, with a script that acts as its reader.
fn opened(width: u32, hash: &str, reader: &str) -> Option<debox_browser::Opened> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.parquet");
    write(&path, &calls(), 1 << 18);
    let history = History::open(&[&path]).expect("a history");
    let mut analysis = analyze(&history, 2, &|_| {}).expect("a report");
    let base = analyze(&history, 2, &|_| {}).expect("a report");
    analysis.compare(&base);
    let text = page::page(&analysis.report).expect("a page");
    let text = text.replace("</body>", reader);
    assert!(text.len() < 3 << 20, "{} bytes", text.len());
    let html = directory.path().join("t.html");
    fs::write(&html, text).expect("the page");
    debox_browser::open(&html, width, hash)
}

#[test]
fn every_plot_is_drawn_and_nothing_complains() {
    if let Some(why) = page::missing() {
        return skip(why);
    }
    for (width, hash, theme) in [(1000, "", "light"), (390, "#dark", "dark")] {
        let Some(opened) = opened(width, hash, LOOK_AT_ALL) else {
            return skip("no chromium (scripts/setup browser)");
        };
        let (head, log, dom) = (opened.head(), &opened.log, &opened.dom);
        assert!(head.contains("data-done=\"yes\""), "{head}\n{log}");
        assert!(!head.contains("data-error"), "{head}\n{log}");
        assert!(head.contains(&format!("data-theme=\"{theme}\"")), "{head}");
        // Over time, flame graph, latencies, three of the program's times, and three calls' costs.
        assert!(head.contains("data-plots=\"9/9\""), "{head}");
        let views = "all calls together:3|the calls beside each other:4|openat:2|mmap:1|\
                     epoll_wait:1|between calls:1";
        assert!(head.contains(views), "{head}");
        let complaints = opened.complaints();
        assert!(complaints.is_empty(), "{complaints:?}");
        // Names of programs stay text.
        assert!(!dom.contains("<img src"), "a name became an element");
        assert!(!dom.contains("<title>1<"), "a name was executed");
    }
}

/// Acts as a reader with a keyboard: selects, searches, folds, and writes down what the page shows then.
const READER: &str = include_str!("reader.js");

/// What the reader wrote down under a name.
fn seen(opened: &debox_browser::Opened, name: &str) -> String {
    let start = format!("data-{name}=\"");
    let (_, rest) = opened.dom.split_once(&start).unwrap_or_default();
    rest.split('"').next().unwrap_or_default().to_string()
}

#[test]
fn a_selection_filters_everything_and_keys_suffice() {
    if let Some(why) = page::missing() {
        return skip(why);
    }
    let reader = format!("<script>\"use strict\";\n{READER}</script></body>");
    let Some(opened) = opened(1200, "", &reader) else {
        return skip("no chromium (scripts/setup browser)");
    };
    let complaints = opened.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
    let saw = |name: &str, expected: &str| assert_eq!(seen(&opened, name), expected, "{name}");
    saw("finished", "yes");
    // 100 waits for the lock (20.0 ms and noise) and 20 page reads (1.80 ms): idle waits are folded away.
    saw("slept", "all: 21.8 ms, 100 %");
    saw("waits", "2");
    // The cause that is clicked filters the graph, the tables, the single calls, and the picture over time.
    saw("chip", "cause: inode lock ×");
    saw("cause-focus", "true");
    saw("slept-of-cause", "all: 20.0 ms, 100 %");
    saw("waits-of-cause", "1");
    saw("calls-of-cause", "openat");
    saw("lines-of-cause", "inode lock");
    saw("after-escape", "");
    // A call that does not sleep.
    saw("slept-of-mmap", "Nothing fits what is selected.");
    saw("row-of-mmap", "mmap");
    saw("row-focus", "true");
    saw("row-focus-after", "true");
    saw("chip-focus", "true");
    saw("bar-focus", "bar");
    // A part of the time that is selected with keys.
    saw("time-chip", "true");
    saw("slept-in-time", "less");
    saw("search", "search");
    saw("found", "true");
    saw("found-waits", "1");
    // All of the idle waits, 2000 of 40 us, come on request.
    saw("slept-idle", "all: 102 ms, 100 %");
    saw("waits-idle", "3");
    saw("section", "H2");
    saw("linked", "true");
    // A finding's row is shown although it does not fit the selection, and goes with it.
    saw("waits-of-mmap", "0");
    saw("wait-of-link", "true");
    saw("says-why", "true");
    saw("waits-after-link", "2");
    saw("trend-is-hidden", "true");
    saw("trend-of-link", "true");
    saw("keys", "true");
    saw("on-paper", "true");
    saw("after-paper", "true");
    saw("unnamed", "");
    saw("repeated", "");
    saw("landmarks", "1,1,1,1");
}

#[test]
fn the_page_asks_for_nothing_outside() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.parquet");
    write(&path, &calls(), 1 << 18);
    let history = History::open(&[&path]).expect("a history");
    let analysis = analyze(&history, 2, &|_| {}).expect("a report");
    let Ok(text) = page::page(&analysis.report) else {
        return skip(page::missing().unwrap_or("no page"));
    };
    for outside in [
        "<script src",
        "<link",
        "@import",
        "url(http",
        "sourceMappingURL",
    ] {
        assert!(!text.contains(outside), "{outside} in the page");
    }
    assert!(text.contains("default-src 'none'"));
}
