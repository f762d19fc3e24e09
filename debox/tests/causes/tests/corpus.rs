// SPDX-License-Identifier: MIT OR Apache-2.0
//! The headline names each planted cause. Each program is measured in one of the ways, and each way has every
//! third; `make causes` measures all of them in all ways.

use debox_causes::{judge, CORPUS, WAYS};
use debox_real::Programs;

/// Other work on the machine may have its turn once.
const TRIES: usize = 3;

#[test]
fn the_headline_names_each_planted_cause() {
    let programs = Programs::default();
    let mut missed = Vec::new();
    for (number, case) in CORPUS.iter().enumerate() {
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

/// Of what `make causes` is for, nothing is left out.
#[test]
fn there_are_five_languages_and_every_third_has_each_way() {
    let mut languages: Vec<&str> = CORPUS.iter().map(|case| case.language()).collect();
    languages.sort();
    languages.dedup();
    assert_eq!(languages, ["C", "Go", "JavaScript", "Python", "shell"]);
    assert!(CORPUS.len() >= 40);
}
