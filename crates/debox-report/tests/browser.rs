//! The page in a real browser without a network: every plot is drawn, nothing complains.

mod common;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use common::{calls, write};
use debox_history::History;
use debox_report::{analyze, page};

fn chromium() -> Option<&'static str> {
    let runs = |name: &&str| {
        let version = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        version.is_ok_and(|status| status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| runs(name))
}

/// Not captured by the test harness, so that `scripts/test` can name it.
fn skip(why: &str) {
    let name = std::thread::current()
        .name()
        .unwrap_or("browser")
        .to_string();
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {why}");
}

/// What a reader does with the plot over time: looks at each call, and says what was there.
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

/// The page's elements after its scripts have run, and what the browser logged.
fn opened(browser: &str, width: u32, dark: bool) -> (String, String) {
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
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
        ])
        .args([
            "--disable-dev-shm-usage",
            "--host-resolver-rules=MAP * ~NOTFOUND",
        ])
        .arg(format!(
            "--user-data-dir={}",
            directory.path().join("profile").display()
        ))
        .arg(format!("--window-size={width},900"))
        .args(["--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("file://{}{hash}", html.display()))
        .stdin(Stdio::null())
        .output()
        .expect("the browser runs");
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn every_plot_is_drawn_and_nothing_complains() {
    if let Some(why) = page::missing() {
        return skip(why);
    }
    let Some(browser) = chromium() else {
        return skip("no chromium (scripts/setup browser)");
    };
    for (width, dark) in [(1000, false), (390, true)] {
        let (dom, log) = opened(browser, width, dark);
        let head = &dom[..dom.len().min(800)];
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
        let complaints: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("CONSOLE"))
            .collect();
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
