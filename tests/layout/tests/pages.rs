// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every page of documentation is in the site (`make docs`), and links between files lead to files. `make docs` also checks
//! what follows a link's `#`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files that git has, but for the site's own.
fn pages() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "*.md"])
        .current_dir(root())
        .output()
        .expect("git runs");
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    let pages: Vec<String> = listed
        .lines()
        .filter(|page| !page.starts_with("docs/site/"))
        .map(String::from)
        .collect();
    assert!(pages.len() > 30, "only {} pages", pages.len());
    pages
}

/// The files that a page links to; not what is in code.
fn links(page: &str) -> Vec<String> {
    let mut links = Vec::new();
    for (number, block) in page.split("```").enumerate() {
        if number % 2 == 1 {
            continue;
        }
        let text: String = block.split('`').step_by(2).collect();
        for rest in text.split("](").skip(1) {
            let link = rest.split([')', '#']).next().unwrap_or_default();
            if !link.is_empty() && !link.starts_with("http") {
                links.push(link.to_string());
            }
        }
    }
    links
}

#[test]
fn every_page_is_in_the_site() {
    let read = |file: &str| fs::read_to_string(root().join(file)).expect("it can be read");
    let (summary, decisions) = (
        read("docs/site/SUMMARY.md"),
        read("docs/decisions/README.md"),
    );
    let is_missing = |page: &&String| {
        let decision = page.strip_prefix("docs/decisions/").unwrap_or("none");
        !summary.contains(&format!("({page})")) && !decisions.contains(&format!("]({decision})."))
    };
    let missing: Vec<String> = pages().iter().filter(is_missing).cloned().collect();
    assert!(
        missing.is_empty(),
        "add them to docs/site/SUMMARY.md: {missing:?}"
    );
}

#[test]
fn links_lead_to_files() {
    let mut wrong = Vec::new();
    let mut found = 0;
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).expect("it can be read");
        let folder = Path::new(&page).parent().expect("a folder");
        for link in links(&text) {
            found += 1;
            if !root().join(folder).join(&link).exists() {
                wrong.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(found > 100, "only {found} links");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
