// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a benchmark is. Each is one file of `benchmarks/`, with a declaration and a function.

use hbench_results::meta::Declared;

pub use crate::failure::{verify, Available, Failure};
use crate::sampler::{Measured, Sampler};

/// The declaration of a benchmark.
#[derive(Debug)]
pub struct Benchmark {
    pub name: &'static str,
    /// The heading under which it is shown.
    pub group: &'static str,
    /// What one operation is. Times are of one operation.
    pub operation: &'static str,
    /// Sizes, counts or kinds that are measured separately; empty if there is only one.
    pub variants: &'static [&'static str],
    /// Benchmarks, or parts of the machine, that determine its time.
    pub depends_on: &'static [&'static str],
    /// The rows of other suites that it answers to.
    pub answers_to: &'static [&'static str],
    /// How the function knows that the operation took place.
    pub verified_by: &'static str,
    /// Takes one sample of the variant; `""` if there are no variants.
    pub measure: fn(&mut Sampler, &str) -> Result<Measured, Failure>,
}

/// A benchmark with one of its variants.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub benchmark: &'static Benchmark,
    /// `""`: it has none.
    pub variant: &'static str,
}

impl Case {
    pub fn name(&self) -> String {
        match self.variant {
            "" => self.benchmark.name.to_string(),
            variant => format!("{}/{variant}", self.benchmark.name),
        }
    }

    pub fn declared(&self) -> Declared {
        let owned = |of: &[&str]| of.iter().map(ToString::to_string).collect();
        Declared {
            name: self.name(),
            group: self.benchmark.group.to_string(),
            operation: self.benchmark.operation.to_string(),
            depends_on: owned(self.benchmark.depends_on),
            answers_to: owned(self.benchmark.answers_to),
        }
    }
}

impl Benchmark {
    pub fn cases(&'static self) -> Vec<Case> {
        let one: &'static [&'static str] = &[""];
        let variants = match self.variants.is_empty() {
            true => one,
            false => self.variants,
        };
        let case = |variant: &&'static str| Case {
            benchmark: self,
            variant,
        };
        variants.iter().map(case).collect()
    }
}
