//! Samples of what threads computed. A recording has them only as sums over its whole time.

use anyhow::{ensure, Result};
use debox_history::History;
use debox_model::report::{SampledStack, Samples};

use crate::{Options, Weight};

/// The call name of samples between calls.
pub const USER: &str = "(user)";
/// The text for stacks for which the recording had no room.
pub const NOT_KEPT: &str = "(stacks that were not kept)";

/// The stacks of all samples. Empty if only a part of the records is exported: the samples cannot be
/// divided.
pub fn of(history: &History, options: &Options) -> Result<Vec<SampledStack>> {
    let is_whole = options.filter.is_none() && options.from_ns.is_none() && options.to_ns.is_none();
    let samples = history
        .account()
        .and_then(|account| account.samples.as_ref());
    if options.weight == Weight::Samples {
        ensure!(
            is_whole,
            "samples cover the whole recording: leave out --filter, --from and --to"
        );
        ensure!(
            samples.is_some(),
            "there are no samples of where the program computes: the recording has no end, or was made where \
             the kernel does not allow them, or these are several recordings"
        );
    }
    Ok(samples.filter(|_| is_whole).map(stacks).unwrap_or_default())
}

fn stacks(samples: &Samples) -> Vec<SampledStack> {
    let further = SampledStack {
        syscall: USER.to_string(),
        frames: vec![NOT_KEPT.into()],
        samples: samples.in_further_stacks,
        ..SampledStack::default()
    };
    let listed = samples.stacks.iter().cloned();
    listed
        .chain([further])
        .filter(|stack| stack.samples > 0)
        .collect()
}
