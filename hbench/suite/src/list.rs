// SPDX-License-Identifier: MIT OR Apache-2.0
//! `hbench list`.

use std::io::Write;

use anyhow::Result;
use hbench::benchmark::Benchmark;
use hbench::benchmarks::cases;
use kit_console::Allowed;

use crate::measure::select;

pub fn list(names: &[String]) -> Result<()> {
    let cases = match names {
        [] => cases(),
        names => select(names)?,
    };
    kit_console::print(Allowed::Text, |out| {
        let mut last: Option<&Benchmark> = None;
        for case in &cases {
            let own = case.benchmark;
            if last.is_some_and(|last| last.name == own.name) {
                continue;
            }
            if last.is_none_or(|last| last.group != own.group) {
                writeln!(
                    out,
                    "{}{}",
                    if last.is_some() { "\n" } else { "" },
                    own.group
                )?;
            }
            last = Some(own);
            let variants = |is_usual: bool| -> Vec<&str> {
                let of = cases
                    .iter()
                    .filter(|other| other.benchmark.name == own.name && other.is_usual == is_usual);
                let named = of.map(|other| other.variant);
                named.filter(|variant| !variant.is_empty()).collect()
            };
            writeln!(out, "  {}: {}", own.name, own.operation)?;
            for (what, values) in [
                ("variants", variants(true).as_slice()),
                ("by name", variants(false).as_slice()),
                ("depends on", own.depends_on),
                ("answers to", own.answers_to),
                ("verified by", &[own.verified_by]),
            ] {
                if !values.is_empty() {
                    writeln!(out, "      {what:<11} {}", values.join(", "))?;
                }
            }
        }
        Ok(())
    })?;
    Ok(())
}
