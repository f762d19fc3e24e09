// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which parts of an application make the difference between two machines (`hbench.contrast/1`).

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::application::Application;
use crate::machine::Machine;
use crate::predict::{predict, OnMachine};

/// Name and version.
pub const SCHEMA: &str = "hbench.contrast/1";

const THROTTLED: &str = "waiting: a quota";

/// A part of the elapsed time. What threads do at the same time counts once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Contrasted {
    pub name: String,
    pub count: u64,
    pub a_ns: f64,
    pub b_ns: f64,
    /// Benchmarks; null if it is taken to be the same on both.
    pub scaled_by: Option<String>,
}

impl Contrasted {
    pub fn difference_ns(&self) -> f64 {
        self.b_ns - self.a_ns
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Contrast {
    pub schema: &'static str,
    pub command: Vec<String>,
    pub a_name: String,
    pub b_name: String,
    pub a_elapsed_ns: f64,
    pub b_elapsed_ns: f64,
    /// They add up to the elapsed times; the largest difference first.
    pub parts: Vec<Contrasted>,
}

/// # Errors
///
/// A vector lacks what everything depends on.
pub fn contrast(
    a: (String, Machine),
    b: (String, Machine),
    application: &Application,
    here: Option<&Machine>,
) -> Result<Contrast> {
    let on = |one: (String, Machine)| -> Result<OnMachine> {
        let found = predict(application, &[one], here)?;
        found
            .machines
            .into_iter()
            .next()
            .context("one machine has one prediction")
    };
    let (a, b) = (on(a)?, on(b)?);
    let mut parts: BTreeMap<String, Contrasted> = BTreeMap::new();
    for (machine, is_a) in [(&a, true), (&b, false)] {
        let work = machine.work.iter().map(|part| (part, machine.overlap));
        let waits = machine.waits.iter().map(|part| (part, 1.0));
        for (part, overlap) in work.chain(waits) {
            let one = parts
                .entry(part.name.clone())
                .or_insert_with(|| Contrasted {
                    name: part.name.clone(),
                    count: 0,
                    a_ns: 0.0,
                    b_ns: 0.0,
                    scaled_by: None,
                });
            let ns = part.predicted_ns / overlap;
            if is_a {
                one.a_ns += ns;
                one.count += part.count;
            } else {
                one.b_ns += ns;
            }
            one.scaled_by = one.scaled_by.take().or(part.scaled_by.clone());
        }
    }
    parts.insert(
        THROTTLED.to_string(),
        Contrasted {
            name: THROTTLED.to_string(),
            count: 0,
            a_ns: a.throttled_ns,
            b_ns: b.throttled_ns,
            scaled_by: Some("the quota".to_string()),
        },
    );
    let mut parts: Vec<Contrasted> = parts.into_values().collect();
    parts.retain(|part| part.a_ns > 0.0 || part.b_ns > 0.0);
    parts.sort_by(|one, other| {
        let size = |one: &Contrasted| one.difference_ns().abs();
        size(other).total_cmp(&size(one))
    });
    Ok(Contrast {
        schema: SCHEMA,
        command: application.command.clone(),
        a_name: a.name,
        b_name: b.name,
        a_elapsed_ns: a.elapsed_ns,
        b_elapsed_ns: b.elapsed_ns,
        parts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::machine;
    use crate::mapping::MAPPING;
    use crate::predict::tests::some_application;

    #[test]
    fn the_primitive_that_differs_is_named_first() {
        let with = |open_ns: f64| {
            let user: Vec<_> = MAPPING
                .user
                .iter()
                .map(|name| (name.as_str(), 1.0, None))
                .collect();
            let units = [("call.null", 100.0, None), ("file.open/hot", open_ns, None)];
            machine(&[&user[..], &units].concat())
        };
        let application = some_application(Some(with(1200.0)));
        let found = contrast(
            ("a".to_string(), with(1200.0)),
            ("b".to_string(), with(3200.0)),
            &application,
            None,
        );
        let found = found.expect("whole");
        let first = &found.parts[0];
        assert_eq!((first.name.as_str(), first.count), ("file.open", 1000));
        // 2 us of recorded work for each of 1,000 openings: 1 us there is three of B.
        assert!(
            (first.difference_ns() - 4_000_000.0).abs() < 20_000.0,
            "{first:?}"
        );
        let (a, b): (f64, f64) = found.parts.iter().fold((0.0, 0.0), |sum, part| {
            (sum.0 + part.a_ns, sum.1 + part.b_ns)
        });
        assert!((a - found.a_elapsed_ns).abs() < 1.0 && (b - found.b_elapsed_ns).abs() < 1.0);
    }
}
