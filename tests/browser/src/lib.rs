// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a page in a real browser without any other network than this machine's, for the tests of every part that draws one.

use std::path::Path;
use std::process::Command;
use std::process::Stdio;

/// A page after its scripts have run.
#[derive(Debug)]
pub struct Opened {
    /// The elements after the page's scripts have run.
    pub dom: String,
    /// The browser's messages.
    pub log: String,
}

impl Opened {
    /// Errors reported by the page's scripts.
    pub fn complaints(&self) -> Vec<&str> {
        let lines = self.log.lines();
        lines.filter(|line| line.contains("CONSOLE")).collect()
    }

    /// The first elements, whose attributes state what was drawn.
    pub fn head(&self) -> String {
        self.dom.chars().take(800).collect()
    }
}

/// Opens a file in a window of the given width in pixels; `hash` is the part of the URL after the file's
/// name. `None` if there is no Chromium (`scripts/setup browser`).
pub fn open(page: &Path, width: u32, hash: &str) -> Option<Opened> {
    visit(&format!("file://{}{hash}", page.display()), width)
}

/// Opens a URL; no other host than 127.0.0.1 is reached.
pub fn visit(url: &str, width: u32) -> Option<Opened> {
    let browser = chromium()?;
    let profile = tempfile::tempdir().expect("a directory");
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--virtual-time-budget=5000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},900"))
        .arg(url)
        .stdin(Stdio::null())
        .output()
        .expect("the browser runs");
    Some(Opened {
        dom: String::from_utf8_lossy(&output.stdout).into_owned(),
        log: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

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
