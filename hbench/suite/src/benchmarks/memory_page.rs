// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads from memory that stay within a page for a while, and those that change pages with each load: what it takes
//! more to open another row of the memory's chips.

use crate::benchmark::{Available, Benchmark, Failure};
use crate::chain::{link, Disorder};
use crate::sampler::{Measured, Sampler};
use crate::sys::{Chains, Mapping};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "memory.other-page",
    group: "memory",
    operation: "one load from another of 16 pages than the last one, without what one from the same page takes",
    variants: &[],
    by_name: &["memory"],
    depends_on: &["memory.latency", "memory"],
    answers_to: &["lmbench lat_dram_page"],
    verified_by: "both chains of loads return to their start",
    measure,
};

const PAGE: usize = 4096;
const LINE: usize = 128;
/// Both chains visit so many pages at the same time, so each uses the TLB as often.
const GROUP: usize = 16;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    let bytes = sampler.size(variant)?;
    let chains = Chains::new(Mapping::filled(bytes).available("allocate memory")?);
    let mut disorder = Disorder::new();
    let pages = disorder.order(bytes / PAGE);
    let lines = disorder.order(PAGE / LINE);
    let word = |page: &u32, line: &u32| *page as usize * PAGE / 8 + *line as usize * LINE / 8;
    let of_one = pages
        .iter()
        .flat_map(|page| lines.iter().map(move |line| word(page, line)));
    // The second chain uses another word of each line.
    let of_all = pages.chunks(GROUP).flat_map(|group| {
        let of_line = |line| group.iter().map(move |page| word(page, line) + 1);
        lines.iter().flat_map(of_line)
    });
    let mut within = link(&chains, of_one)?;
    let mut across = link(&chains, of_all)?;
    sampler.time_less(
        |n| {
            across = across.follow(n);
            Ok(())
        },
        |n| {
            within = within.follow(n);
            Ok(())
        },
    )
}
