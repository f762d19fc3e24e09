//! Samples of what monitored threads compute: the CPUs' sampling clocks, and the samples that they took
//! (`debox/probe/samples.h`).

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::{Link, ProgramMut};

use crate::cpu_clocks;
use crate::process::Processes;
use crate::stacks::Stacks;

/// 199 samples per second and CPU: a prime number, so as not to run in step with timers.
pub(crate) const PERIOD_NS: u64 = 1_000_000_000 / 199;

/// The ring buffer's size per CPU: enough for the samples of some 300 ms with the largest stacks.
const RING_BYTES_PER_CPU: u32 = 1 << 20;
const RING_BYTES_MAX: u32 = 64 << 20;

/// The most places for which samples are counted.
const MAX_PLACES: usize = 1 << 18;

/// The CPUs' running clocks.
pub(crate) struct Clocks {
    links: Vec<Link>,
    events: Vec<OwnedFd>,
    cpus: BTreeSet<i32>,
}

impl Clocks {
    /// Opens the clocks of all CPUs, with nothing attached to them.
    pub fn open() -> io::Result<Clocks> {
        Ok(Clocks {
            links: Vec::new(),
            cpus: cpu_clocks::online()?,
            events: cpu_clocks::open_all(PERIOD_NS)?,
        })
    }

    pub fn ring_bytes(&self) -> u32 {
        let cpus = u32::try_from(self.cpus.len()).unwrap_or(u32::MAX);
        let bytes = RING_BYTES_PER_CPU.saturating_mul(cpus);
        bytes.min(RING_BYTES_MAX).next_power_of_two()
    }

    pub fn attach(&mut self, program: &ProgramMut) -> Result<()> {
        for event in &self.events {
            let link = program
                .attach_perf_event(event.as_raw_fd())
                .context("cannot attach to the CPU's clock")?;
            self.links.push(link);
        }
        Ok(())
    }

    pub fn stop(&mut self) {
        self.links.clear();
        self.events.clear();
    }

    /// A sentence about CPUs that have come online since.
    pub fn unseen(&self) -> Option<String> {
        let now = cpu_clocks::online().ok()?;
        let new: Vec<String> = now.difference(&self.cpus).map(i32::to_string).collect();
        (!new.is_empty()).then(|| {
            format!(
                "CPUs that came online during the session were not sampled: {}.",
                new.join(", ")
            )
        })
    }
}

/// Why there are no samples, as a sentence.
pub(crate) fn refusal(error: &io::Error) -> String {
    format!(
        "The program's CPU use was not sampled: this system does not allow perf events \
         (perf_event_open: {error})."
    )
}

/// A stack in one call of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Number of the stack, for [`Stacks::sampled`].
    pub stack: u32,
    pub tid: u32,
    /// `CALL_NONE`: between calls.
    pub call: u32,
}

/// The samples that were received.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    pub places: HashMap<Place, u64>,
    pub in_interrupts: u64,
    /// Samples for which there was no room, in the ring buffer or here.
    pub lost: u64,
}

impl Samples {
    /// Counts a sample as the probes send it.
    pub fn take(&mut self, bytes: &[u8], stacks: &mut Stacks, processes: &mut Processes) {
        let Some((name, stack)) = stacks.take_sample(bytes, processes) else {
            self.lost += 1;
            return;
        };
        let place = Place {
            stack,
            tid: (name >> 32) as u32,
            call: name as u32,
        };
        if self.places.len() >= MAX_PLACES && !self.places.contains_key(&place) {
            self.lost += 1;
            return;
        }
        *self.places.entry(place).or_default() += 1;
    }
}
