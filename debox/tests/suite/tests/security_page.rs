// SPDX-License-Identifier: MIT OR Apache-2.0
//! SECURITY.md promises nothing without naming what proves it.

use std::collections::BTreeSet;
use std::path::Path;

/// The names of all functions in the Rust files below a directory.
fn functions(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).expect("the sources") {
        let path = entry.expect("the sources").path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let lines = text.lines().map(str::trim_start);
            let names = lines.filter_map(|line| line.strip_prefix("fn ")?.split_once('('));
            found.extend(names.map(|(name, _)| name.to_string()));
        }
    }
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn each_threat_names_tests_that_exist() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut known = BTreeSet::new();
    for part in ["kit", "debox", "latlab", "tests"] {
        functions(&checkout.join(part), &mut known);
    }
    let page = std::fs::read_to_string(checkout.join("SECURITY.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let cells = rows.map(|row| row.trim_matches('|').split(" | ").collect::<Vec<_>>());
    let mut threats = 0;
    let mut wrong = Vec::new();
    let mut is_threats = false;
    for cells in cells {
        match cells[..] {
            [threat, _, _] if threat.trim() == "threat" => is_threats = true,
            [who, _, _] if who.trim() == "who" => is_threats = false,
            [first, ..] if !is_threats || first.starts_with(" ---") => {}
            [threat, .., tests] => {
                threats += 1;
                let is_file = |name: &str| checkout.join(name).exists() || name.ends_with(".rs");
                let named: Vec<&str> = quoted(tests).collect();
                let missing = named.iter().filter(|name| {
                    !is_file(name) && !name.starts_with("scripts/") && !known.contains(**name)
                });
                wrong.extend(missing.map(|name| format!("{threat}: there is no test {name}")));
                if named.is_empty() {
                    wrong.push(format!("{threat}: it names no test"));
                }
            }
            _ => {}
        }
    }
    assert!(threats > 20, "only {threats} threats were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
