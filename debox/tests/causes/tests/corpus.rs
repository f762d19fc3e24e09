// SPDX-License-Identifier: MIT OR Apache-2.0
//! The headline names planted causes: of every third program, each in one of the ways. `make causes` measures all of them in
//! all ways.

use debox_causes::{judge, CORPUS, WAYS};
use debox_real::Programs;

/// Other work on the machine may have its turn once.
const TRIES: usize = 3;
/// One of so many programs is measured.
const EVERY: usize = 3;

#[test]
fn the_headline_names_planted_causes() {
    let programs = Programs::default();
    let mut missed = Vec::new();
    for (number, case) in CORPUS.iter().step_by(EVERY).enumerate() {
        let way = WAYS[number % WAYS.len()];
        let mut tries = (0..TRIES).map(|_| {
            let it = case.measure(way, &programs)?;
            judge(case, &it)
        });
        let first = tries.next().expect("one");
        let Err(what) = first else { continue };
        if !tries.any(|result: Result<(), String>| result.is_ok()) {
            missed.push(format!("{} ({way:?}): {what}", case.program));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Of what `make causes` is for, nothing is left out, and of what is measured here no language.
#[test]
fn there_are_five_languages() {
    for every in [1, EVERY] {
        let cases = CORPUS.iter().step_by(every);
        let mut languages: Vec<&str> = cases.map(|case| case.language()).collect();
        languages.sort();
        languages.dedup();
        assert_eq!(languages, ["C", "Go", "JavaScript", "Python", "shell"]);
    }
    assert!(CORPUS.len() >= 40);
}
