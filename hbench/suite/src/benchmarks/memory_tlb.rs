// SPDX-License-Identifier: MIT OR Apache-2.0
//! What translating addresses takes: loads of which each is from another page, without what as many loads from few
//! pages take.

use crate::benchmark::{Available, Benchmark, Failure};
use crate::chain::{link, Disorder};
use crate::sampler::{Measured, Sampler};
use crate::sys::{Chains, Mapping};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "memory.translation",
    group: "memory",
    operation: "one load from another of so many pages of 4 KiB, without what one takes that needs no other page",
    variants: &[],
    by_name: &[
        "16-pages",
        "64-pages",
        "128-pages",
        "512-pages",
        "1024-pages",
        "2048-pages",
        "4096-pages",
        "16384-pages",
    ],
    depends_on: &["TLB", "caches"],
    answers_to: &["lmbench tlb (the number from which it takes time, and how much)"],
    verified_by: "both chains of loads return to their start",
    measure,
};

const PAGE: usize = 4096;
const LINE: usize = 64;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let pages = variant
        .split('-')
        .next()
        .and_then(|pages| pages.parse().ok());
    let pages: usize = pages.ok_or_else(|| Failure::Wrong(format!("no pages: {variant}")))?;
    let memory = Mapping::anonymous(pages * PAGE).available("allocate memory")?;
    memory.in_small_pages();
    memory.all().write(1);
    let memory = Chains::new(memory);
    let close = Chains::new(Mapping::filled(pages * LINE).available("allocate memory")?);
    let order = Disorder::new().order(pages);
    // Successive pages use successive lines: otherwise all of them would be in few sets of the caches.
    let apart = |page: &u32| *page as usize * PAGE / 8 + *page as usize % (PAGE / LINE) * LINE / 8;
    let mut far = link(&memory, order.iter().map(apart))?;
    let mut near = link(&close, order.iter().map(|line| *line as usize * LINE / 8))?;
    sampler.time_less(
        |n| {
            far = far.follow(n);
            Ok(())
        },
        |n| {
            near = near.follow(n);
            Ok(())
        },
    )
}
