// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vector of a machine on which the benchmarks did not run, from the times that known applications take there.
//!
//! Three factors are fitted: of user mode, of entering the kernel, and of everything else in the kernel. With more, a
//! handful of programs would not determine them.

use anyhow::{ensure, Context, Result};
use kit_stats::deviation;

use crate::application::Application;
use crate::least_squares::non_negative;
use crate::machine::{Machine, Unit};
use crate::mapping::MAPPING;
use crate::predict::predict;
use crate::relation::STANDARD;
use crate::work::{ENTRY, USER};

const FACTORS: usize = 3;
/// Below this, a program says nothing of a factor.
const SHARE_MIN: f64 = 0.05;

/// A machine as it would be if it had these times.
#[derive(Debug)]
pub struct Calibrated {
    pub machine: Machine,
    /// Of user mode, entering the kernel, and the rest of the kernel.
    pub factors: [f64; FACTORS],
    /// Of each application: what the factors make of it, less what it took, as a part of the latter.
    pub errors: Vec<f64>,
}

/// `runs`: applications, and how long each takes on the machine, in ns. `here`: the machine on which they were
/// recorded.
///
/// # Errors
///
/// The applications are too few, or too alike.
pub fn calibrate(here: &Machine, runs: &[(Application, f64)]) -> Result<Calibrated> {
    ensure!(
        runs.len() >= FACTORS,
        "{FACTORS} factors need at least as many applications, and {} is named: user mode, entering the kernel, and the \
         rest of the kernel",
        runs.len()
    );
    let (mut rows, mut wanted) = (Vec::new(), Vec::new());
    for (application, took_ns) in runs {
        ensure!(
            took_ns.is_finite() && *took_ns > 0.0,
            "an application took {took_ns} ns"
        );
        let own = predict(
            application,
            &[("here".to_string(), here.clone())],
            Some(here),
        )?;
        let one = own
            .machines
            .first()
            .context("one machine has one prediction")?;
        let mut row = [0.0; FACTORS];
        for part in &one.work {
            let column = match part.name.as_str() {
                USER => 0,
                ENTRY => 1,
                _ => 2,
            };
            row[column] += part.measured_ns / one.overlap;
        }
        // Each run counts the same, however long it is.
        let slept: f64 = one.waits.iter().map(|wait| wait.measured_ns).sum();
        rows.push(row.iter().map(|ns| ns / took_ns).collect::<Vec<f64>>());
        wanted.push(1.0 - slept / took_ns);
    }
    for (column, name) in ["user mode", "entering the kernel", "the rest of the kernel"]
        .iter()
        .enumerate()
    {
        let share = |(row, (_, took_ns)): (&Vec<f64>, &(Application, f64))| {
            row[column] * took_ns / (row.iter().sum::<f64>() * took_ns)
        };
        let most = rows.iter().zip(runs).map(share).fold(0.0, f64::max);
        ensure!(
            most >= SHARE_MIN,
            "no application spends {} % of its work in {name}: name one that does",
            SHARE_MIN * 100.0
        );
    }
    let found = non_negative(&rows, &wanted, FACTORS)
        .context("the applications are too alike to tell the factors: name others")?;
    let factors: [f64; FACTORS] = [found[0], found[1], found[2]];
    ensure!(
        factors.iter().all(|factor| *factor > 0.0),
        "the applications are too alike to tell the factors, of which one would be zero: name others"
    );
    let error = |(row, wanted): (&Vec<f64>, &f64)| {
        row.iter()
            .zip(&factors)
            .map(|(part, factor)| part * factor)
            .sum::<f64>()
            - wanted
    };
    let errors: Vec<f64> = rows.iter().zip(&wanted).map(error).collect();
    // As many degrees of freedom as applications beyond the factors.
    let (mean, spread) = deviation(&errors);
    let squares = (spread * spread + mean * mean) * errors.len() as f64;
    let uncertainty = (squares / (errors.len() - FACTORS).max(1) as f64)
        .sqrt()
        .max(0.01);
    Ok(Calibrated {
        machine: scaled(here, factors, uncertainty),
        factors,
        errors,
    })
}

/// Each cost, with its entries and the rest of it scaled by their own factors.
fn scaled(here: &Machine, [user, entry, rest]: [f64; FACTORS], uncertainty: f64) -> Machine {
    let entry_ns = here.units.get(&MAPPING.entry).map_or(0.0, |unit| unit.ns);
    let mut machine = here.clone();
    machine.under = Some("not measured: calibrated from the times of applications".to_string());
    for (name, unit) in &mut machine.units {
        let entries = MAPPING
            .entries(name)
            .min((unit.ns / entry_ns.max(1e-9)) as u32);
        let of_entries = f64::from(entries) * entry_ns;
        let ns = match name {
            name if MAPPING.user.contains(name) => unit.ns * user,
            name if [&MAPPING.entry, &MAPPING.after_work].contains(&name) => unit.ns * entry,
            _ => of_entries * entry + (unit.ns - of_entries).max(0.0) * rest,
        };
        let reach = (STANDARD * uncertainty).min(3.0).exp();
        *unit = Unit {
            ns,
            interval_ns: Some((ns / reach, ns * reach)),
            bytes: unit.bytes,
        };
    }
    machine.units.retain(|_, unit| unit.ns > 0.0);
    machine
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::machine;
    use crate::predict::tests::some_application;

    fn here() -> Machine {
        let user: Vec<_> = MAPPING
            .user
            .iter()
            .map(|name| (name.as_str(), 1.0, None))
            .collect();
        let units = [
            ("call.null", 100.0, None),
            ("file.open/hot", 1200.0, None),
            ("file.reread/4K", 400.0, Some(4096)),
        ];
        machine(&[&user[..], &units].concat())
    }

    /// With so many times as much in user mode, as many calls, and what each takes in the kernel.
    fn application(user: u64, calls: u64, each: u64) -> Application {
        let mut made = some_application(None);
        made.waits.clear();
        let tap = made.tap.expect("it has one");
        for one in &mut made.components {
            one.cpu_ns = one.calls * calls * (tap.inside_ns as u64 + each);
            one.calls *= calls;
            one.bytes *= calls;
        }
        let total: u64 = made.components.iter().map(|one| one.calls).sum();
        made.recording.calls = total;
        made.recording.user_cpu_ns = user * 1_000_000 + total * 300;
        let work = user * 1_000_000 + total * 100 + total * each;
        for run in &mut made.runs {
            (run.cpu_ns, run.elapsed_ns) = (work, work);
        }
        made
    }

    #[test]
    fn the_factors_of_a_machine_are_found_again() {
        let shapes = [
            (20u64, 1u64, 100u64),
            (1, 20, 50),
            (2, 2, 5000),
            (10, 10, 1000),
        ];
        let runs: Vec<(Application, f64)> = shapes
            .iter()
            .map(|(user, calls, each)| {
                let made = application(*user, *calls, *each);
                let total = made.recording.calls as f64;
                let took =
                    2.0 * *user as f64 * 1e6 + 30.0 * total * 100.0 + 1.5 * total * *each as f64;
                (made, took)
            })
            .collect();
        let found = calibrate(&here(), &runs).expect("they differ");
        for (factor, wanted) in found.factors.iter().zip([2.0, 30.0, 1.5]) {
            assert!((factor / wanted - 1.0).abs() < 1e-6, "{:?}", found.factors);
        }
        assert!(found.errors.iter().all(|error| error.abs() < 1e-6));
        let machine = found.machine;
        machine.check().expect("it is a machine");
        assert!((machine.units["call.null"].ns - 3000.0).abs() < 1e-3);
        assert!((machine.units["file.open/hot"].ns - (6000.0 + 1500.0)).abs() < 1e-3);
    }

    #[test]
    fn what_determines_nothing_is_refused() {
        let run = |user| (application(user, 1, 100), 1e7);
        let error = calibrate(&here(), &[run(1)])
            .expect_err("too few")
            .to_string();
        assert!(error.contains("at least"), "{error}");
        let error = calibrate(&here(), &[run(1), run(1), run(1)]).expect_err("all the same");
        assert!(error.to_string().contains("too alike"), "{error}");
    }
}
