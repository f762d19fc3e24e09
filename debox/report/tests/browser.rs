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

/// Acts as a reader of the plot over time: selects each call, and reports what it shows.
const LOOK_AT_EACH: &str = r##"<script>
const choice = document.getElementById("over-time-of");
const seen = [...choice.options].map((option) => {
  choice.value = option.value;
  choice.dispatchEvent(new Event("change"));
  const drawn = document.querySelector("#over-time canvas") ? "" : " is not drawn";
  return `${option.textContent}:${document.querySelectorAll("#over-time .legend label").length}${drawn}`;
});
document.documentElement.dataset.views = seen.join("|");
choice.value = 0;
choice.dispatchEvent(new Event("change"));
</script></body>"##;

/// Opens the page with all its views.
fn opened(width: u32, dark: bool) -> Option<debox_browser::Opened> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.parquet");
    write(&path, &calls(), 1 << 18);
    let history = History::open(&[&path]).expect("a history");
    let mut analysis = analyze(&history, 2, &|_| {}).expect("a report");
    let base = analyze(&history, 2, &|_| {}).expect("a report");
    analysis.compare(&base);
    let text = page::page(&analysis.report).expect("a page");
    let text = text.replace("</body>", LOOK_AT_EACH);
    assert!(text.len() < 3 << 20, "{} bytes", text.len());
    let html = directory.path().join("t.html");
    fs::write(&html, text).expect("the page");
    let hash = if dark { "#dark" } else { "" };
    debox_browser::open(&html, width, hash)
}

#[test]
fn every_plot_is_drawn_and_nothing_complains() {
    if let Some(why) = page::missing() {
        return skip(why);
    }
    for (width, dark) in [(1000, false), (390, true)] {
        let Some(opened) = opened(width, dark) else {
            return skip("no chromium (scripts/setup browser)");
        };
        let (head, log, dom) = (opened.head(), &opened.log, &opened.dom);
        assert!(head.contains("data-done=\"yes\""), "{head}\n{log}");
        assert!(!head.contains("data-error"), "{head}\n{log}");
        let theme = if dark { "dark" } else { "light" };
        assert!(head.contains(&format!("data-theme=\"{theme}\"")), "{head}");
        // Over time, flame graph, latencies, three of the program's times, and three calls' costs.
        assert!(head.contains("data-plots=\"9/9\""), "{head}");
        let views =
            "all calls together:4|the calls beside each other, without idle waits:4|openat:2|\
                     mmap:1|epoll_wait:2|between calls:1";
        assert!(head.contains(views), "{head}");
        let complaints = opened.complaints();
        assert!(complaints.is_empty(), "{complaints:?}");
        // Names of programs stay text.
        assert!(!dom.contains("<img src"), "a name became an element");
        assert!(!dom.contains("<title>1<"), "a name was executed");
    }
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
