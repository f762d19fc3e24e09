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
    /// Sizes, counts or kinds that are measured separately.
    pub variants: &'static [&'static str],
    /// Variants that are measured only if they are named, or with `--all`: they answer to rows of other suites. With
    /// neither these nor the others there is one case, without a variant.
    pub by_name: &'static [&'static str],
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
    /// Whether it is measured without being named.
    pub is_usual: bool,
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
        let variants = match self.variants.is_empty() && self.by_name.is_empty() {
            true => one,
            false => self.variants,
        };
        let of = |variants: &'static [&'static str], is_usual| {
            variants.iter().map(move |variant| Case {
                benchmark: self,
                variant,
                is_usual,
            })
        };
        of(variants, true).chain(of(self.by_name, false)).collect()
    }
}
