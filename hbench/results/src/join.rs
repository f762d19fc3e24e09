// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several results of one machine as one: between them other machines were measured, or time has passed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{ensure, Context, Result};

use crate::environment::{differences, Environment};
use crate::file::Recorded;

/// # Errors
///
/// There is none, or they are of different machines.
pub fn join(results: Vec<Recorded>) -> Result<Recorded> {
    let mut results = results.into_iter();
    let mut joined = results.next().context("there is no result")?;
    let mut declared: BTreeSet<String> = names(&joined);
    for one in results {
        let differ = differences(
            &identity(&joined.meta.environment),
            &identity(&one.meta.environment),
        );
        if let Some((name, a, b)) = differ.first() {
            anyhow::bail!("the results are of different machines: {name} is {a}, and {b}");
        }
        ensure!(
            joined.meta.instances == one.meta.instances && joined.meta.under == one.meta.under,
            "the results were measured in different ways: by {} and {} processes at the same time, or under another \
             command",
            joined.meta.instances,
            one.meta.instances
        );
        let sizes: BTreeMap<&str, Option<u64>> = joined
            .samples
            .iter()
            .map(|sample| (sample.benchmark.as_str(), sample.bytes))
            .collect();
        let other = one.samples.iter().find(|sample| {
            let own = sizes.get(sample.benchmark.as_str());
            own.is_some_and(|own| *own != sample.bytes)
        });
        if let Some(other) = other {
            anyhow::bail!(
                "the results were measured in different ways: an operation of {} transfers another number of bytes, as \
                 with another memory limit",
                other.benchmark
            );
        }
        let before = joined.meta.rounds;
        joined.meta.rounds += one.meta.rounds;
        joined.meta.rounds_done += one.meta.rounds_done;
        joined.meta.duration_ns += one.meta.duration_ns;
        joined.meta.samples_dropped += one.meta.samples_dropped;
        let new = names(&one);
        joined.meta.benchmarks.extend(
            one.meta
                .benchmarks
                .into_iter()
                .filter(|benchmark| !declared.contains(&benchmark.name)),
        );
        declared.extend(new);
        joined.meta.left_out.extend(one.meta.left_out);
        joined
            .samples
            .extend(one.samples.into_iter().map(|mut sample| {
                sample.round += before;
                sample
            }));
    }
    // What one of them has is not left out.
    let measured: BTreeSet<&str> = joined
        .samples
        .iter()
        .map(|one| one.benchmark.as_str())
        .collect();
    let mut seen = BTreeSet::new();
    joined.meta.left_out.retain(|one| {
        let is_first = seen.insert(one.benchmark.clone());
        is_first && !measured.contains(one.benchmark.as_str())
    });
    Ok(joined)
}

fn names(recorded: &Recorded) -> BTreeSet<String> {
    let benchmarks = recorded.meta.benchmarks.iter();
    benchmarks.map(|one| one.name.clone()).collect()
}

/// What makes a machine this one.
fn identity(of: &Environment) -> Environment {
    Environment {
        memory_bytes: None,
        memory_limit_bytes: None,
        ..of.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::recorded;
    use crate::machine::Machine;

    #[test]
    fn rounds_of_several_results_follow_each_other() {
        let first = recorded(&[("call.null", &[100.0, 104.0]), ("file.fstat", &[7.0, 9.0])]);
        let second = recorded(&[("call.null", &[102.0, 106.0])]);
        let joined = join(vec![first.clone(), second]).expect("one machine");
        let rounds: Vec<u32> = joined.samples.iter().map(|one| one.round).collect();
        let before = first.meta.rounds;
        assert_eq!(rounds.iter().max(), Some(&(before + 1)), "{rounds:?}");
        let machine = Machine::of(&joined);
        assert_eq!(machine.units["call.null"].ns, 103.0);
        assert_eq!(machine.units["file.fstat"].ns, 8.0);
    }

    #[test]
    fn results_of_different_machines_are_refused() {
        let first = recorded(&[("call.null", &[100.0])]);
        let mut other = first.clone();
        other.meta.environment.kernel = "another".to_string();
        let error = join(vec![first.clone(), other]).expect_err("two machines");
        assert!(error.to_string().contains("kernel"), "{error}");
        let mut parallel = first.clone();
        parallel.meta.instances += 1;
        assert!(join(vec![first.clone(), parallel]).is_err());
        let mut larger = first.clone();
        larger.samples[0].bytes = Some(77);
        let error = join(vec![first, larger]).expect_err("another buffer");
        assert!(error.to_string().contains("call.null"), "{error}");
        assert!(join(Vec::new()).is_err());
    }
}
