// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guard tells loops that block from those that do not, every third one once; `make loops` does it with all of them,
//! ten times.

use debox_loops::{Case, Runtime, CORPUS};
use debox_real::Programs;

#[test]
fn loops_that_block_are_told_from_those_that_do_not() {
    let programs = Programs::default();
    let wrong: Vec<String> = CORPUS
        .iter()
        .step_by(3)
        .filter_map(|case| {
            let judge = || {
                let guarded = case.guard(&programs)?;
                case.judge(&guarded)
            };
            // Other work on the machine may have its turn once: a helper that is pushed off its CPU while it has
            // the interpreter's lock keeps the loop waiting.
            let first = judge().err()?;
            let again = judge().err()?;
            Some(format!("{}: {first}\nand again: {again}", case.name()))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn there_are_thirty_of_each_on_six_runtimes() {
    let mut runtimes: Vec<Runtime> = CORPUS.iter().map(|case| case.runtime).collect();
    runtimes.sort();
    runtimes.dedup();
    assert_eq!(runtimes.len(), 6);
    for runtime in runtimes {
        for honest in [true, false] {
            let cases = CORPUS.iter().filter(|case| case.runtime == runtime);
            let count = cases.filter(|case| case.is_honest() == honest).count();
            assert!(count >= 5, "{runtime:?}: {count}");
        }
    }
    // What is tried here has both kinds of each runtime, too.
    let tried: Vec<_> = CORPUS.iter().step_by(3).collect();
    for runtime in CORPUS.iter().map(|case| case.runtime) {
        for honest in [true, false] {
            let is_one = |case: &&Case| case.runtime == runtime && case.is_honest() == honest;
            assert!(
                tried.iter().copied().any(|case| is_one(&case)),
                "{runtime:?}"
            );
        }
    }
    let honest = CORPUS.iter().filter(|case| case.is_honest()).count();
    assert!(honest >= 30 && CORPUS.len() - honest >= 30);
}
