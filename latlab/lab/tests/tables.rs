//! Checks the table in latlab/docs/latlab-finding.md of the thesis' tables and figures: its commands and their
//! options exist in this latlab.

mod support;

use support::latlab;

const PAGE: &str = include_str!("../../docs/latlab-finding.md");

/// Cells of the table below a heading, without the table's head.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let section = PAGE.split(heading).nth(1).expect("the section");
    let section = section.split("\n## ").next().expect("its text");
    let lines = section.lines().filter(|line| line.starts_with("| "));
    let cells = lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect());
    cells.skip(2).collect()
}

#[test]
fn what_the_thesis_has_is_made_by_commands_that_are_there() {
    let rows = rows("## Table by table");
    assert!(rows.len() > 15, "{rows:#?}");
    for row in &rows {
        assert!(
            row.len() == 4 && row.iter().all(|cell| !cell.is_empty()),
            "{row:?}"
        );
        let command = row[1].split('`').nth(1).expect("a command");
        let words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(words[0], "latlab", "{command}");
        let subcommand = match words[1] {
            "fileset" => &words[1..3],
            _ => &words[1..2],
        };
        let help = latlab(&[subcommand, &["--help"]].concat());
        assert!(help.status.success(), "{command}");
        let help = String::from_utf8_lossy(&help.stdout);
        for option in words.iter().filter(|word| word.starts_with('-')) {
            let has = help
                .split(|c: char| c.is_whitespace() || c == ',')
                .any(|word| word == *option);
            assert!(has, "{option} of {command} is not in its help");
        }
    }
    // Each table and figure of chapter 3 that is about servers.
    let named: String = rows.iter().map(|row| row[0]).collect();
    for name in [
        "Figure 3.1,",
        "Figure 3.2,",
        "Figure 3.8,",
        "Table 3.2,",
        "Table 3.3,",
        "Table 3.4,",
    ] {
        assert!(named.contains(name), "{name}");
    }
}
