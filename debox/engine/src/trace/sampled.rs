//! The method for kernels on which functions cannot be probed: stack samples by each CPU's clock,
//! and the tracepoints that calls pass.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::Skel;

use super::attached::Attached;
use super::events;
use super::kernel_functions::KernelFunctions;
use super::skeleton::{OpenTraceSkel, TraceSkel};
use crate::cpu_clocks;

/// The time between two samples of a CPU's clock; costs about 2 % of a CPU on which calls run all
/// the time.
pub(super) const PERIOD_NS: u64 = 100_000;

/// Tells the probes which function stands for each event in a record.
pub(super) fn name_events(open: &mut OpenTraceSkel) -> Option<KernelFunctions> {
    let symbols = KernelFunctions::read_symbols().ok()?;
    let rodata = open.maps.rodata_data.as_deref_mut()?;
    let places = rodata.event_functions.iter_mut();
    for (place, event) in places.zip(events::names()) {
        *place = symbols
            .address_of(&format!("__traceiter_{event}"))
            .unwrap_or(0);
    }
    Some(symbols)
}

pub(super) fn attach(skel: &mut TraceSkel, attached: &mut Attached) -> Result<()> {
    for program in skel.object_mut().progs_mut() {
        let section = program.section().to_string_lossy().into_owned();
        if section.starts_with("raw_tp/") && super::offer::is_open(&program.as_fd()) {
            let link = program
                .attach()
                .with_context(|| format!("cannot attach to {section}"))?;
            attached.links.push(link);
        }
    }
    let clocks =
        cpu_clocks::open_all(PERIOD_NS).context("cannot open the CPUs' clocks for samples")?;
    for event in clocks {
        let link = skel
            .progs
            .on_sample
            .attach_perf_event(event.as_raw_fd())
            .context("cannot attach to the CPU's clock")?;
        attached.links.push(link);
        attached.descriptors.push(event);
    }
    Ok(())
}
