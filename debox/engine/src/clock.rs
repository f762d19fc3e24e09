//! The user tap's clock: from the time-stamp counter to CLOCK_MONOTONIC.
//!
//! `struct debox_tap_clock` is in the first page of the file of rows, which every process under the
//! user tap maps. It is refreshed while the session runs, to follow adjustments of the system's
//! clock and to keep the error from growing.

use std::fs::File;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};

const PAGE: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// The clock of every stamp.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec, and CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// `struct debox_tap_clock`.
#[repr(C)]
pub(crate) struct Shared {
    sequence: AtomicU32,
    reserved0: u32,
    base_tsc: u64,
    base_ns: u64,
    mult: u64,
    reserved: [u64; 4],
}

/// Both clocks at one moment.
#[derive(Clone, Copy)]
struct Pair {
    tsc: u64,
    ns: u64,
}

/// The relation of the two clocks, from which `struct debox_tap_clock` is filled.
pub(crate) struct Rate {
    first: Pair,
    last: Pair,
}

pub(crate) struct TapClock {
    shared: NonNull<Shared>,
    rate: Rate,
}

// SAFETY: the mapping is this object's own; other processes only read it.
unsafe impl Send for TapClock {}

/// The reason why the counter cannot serve as a clock here, if there is one.
///
/// The processor need not guarantee to count in deep idle states (`nonstop_tsc`): it may not have
/// any, and the kernel does not keep a counter as its clock if it has seen it stop.
pub(crate) fn refusal() -> Option<String> {
    const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags"))?;
    let clock = std::fs::read_to_string(CLOCK).unwrap_or_default();
    refusal_of(flags, clock.trim())
}

fn refusal_of(flags: &str, clock: &str) -> Option<String> {
    let need = "the user tap needs a time-stamp counter that runs at one rate";
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    if !has("constant_tsc") {
        return Some(format!(
            "{need}, and this processor lacks constant_tsc; use --tap kernel"
        ));
    }
    if !has("nonstop_tsc") && clock != "tsc" {
        return Some(format!(
            "{need}, and this processor lacks nonstop_tsc, and the kernel's clock is {clock}; \
             use --tap kernel"
        ));
    }
    None
}

/// Time since the machine was started, including suspended time.
pub(crate) fn since_boot_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec, and every kernel that runs the probes has the clock.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn read_tsc() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The closest of several attempts, so that an interruption between the two reads has no effect.
fn take_pair() -> Pair {
    let attempt = || {
        let before = read_tsc();
        let ns = monotonic_ns();
        let after = read_tsc();
        (
            after - before,
            Pair {
                tsc: before + (after - before) / 2,
                ns,
            },
        )
    };
    let best = (0..20).map(|_| attempt()).min_by_key(|(width, _)| *width);
    best.map(|(_, pair)| pair)
        .expect("twenty attempts were made")
}

impl TapClock {
    pub fn start(file: &File) -> Result<TapClock> {
        // SAFETY: a fresh shared mapping of the file's first page, which is as long as that.
        let page = unsafe {
            mmap(
                None,
                PAGE,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                file,
                0,
            )
        };
        let shared = page.context("cannot map the user tap's clock")?.cast();
        let mut clock = TapClock {
            shared,
            rate: Rate::measure(),
        };
        clock.refresh();
        Ok(clock)
    }

    pub fn refresh(&mut self) {
        // SAFETY: the mapping lives as long as this object, and only this object writes to it.
        unsafe { self.rate.refresh(self.shared.as_ptr()) };
    }
}

impl Rate {
    /// Measures over 20 ms; later refreshes improve the accuracy.
    pub fn measure() -> Rate {
        let first = take_pair();
        std::thread::sleep(Duration::from_millis(20));
        Rate { first, last: first }
    }

    /// The counter's ticks in a time. To be called after the first measurement.
    pub fn ticks_in(&self, ns: u64) -> u64 {
        let now = take_pair();
        let (ticks, passed) = (now.tsc - self.first.tsc, (now.ns - self.first.ns).max(1));
        (u128::from(ns) * u128::from(ticks) / u128::from(passed)) as u64
    }

    /// Updates the clock. No allocation and no system call.
    ///
    /// # Safety
    ///
    /// `shared` is mapped, and nothing else writes to it meanwhile.
    pub unsafe fn refresh(&mut self, shared: *mut Shared) {
        let now = take_pair();
        // The rate from a baseline of up to ten seconds: long enough to be exact to some parts in
        // 10^8, short enough to follow the system clock's slewing.
        if now.ns - self.first.ns > 10_000_000_000 {
            self.first = self.last;
        }
        let since = now.tsc - self.first.tsc;
        if since == 0 {
            return;
        }
        let mult = (u128::from(now.ns - self.first.ns) << 32) / u128::from(since);
        self.last = now;
        // SAFETY: as the caller promises.
        unsafe {
            let sequence = &(*shared).sequence;
            sequence.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            std::ptr::write_volatile(&raw mut (*shared).base_tsc, now.tsc);
            std::ptr::write_volatile(&raw mut (*shared).base_ns, now.ns);
            std::ptr::write_volatile(&raw mut (*shared).mult, mult as u64);
            fence(Ordering::SeqCst);
            sequence.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for TapClock {
    fn drop(&mut self) {
        // SAFETY: mapped in `start` with this size, and no longer used.
        let _ = unsafe { munmap(self.shared.cast(), PAGE.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::refusal_of;

    #[test]
    fn a_counter_must_run_at_one_rate_and_not_stop() {
        assert_eq!(
            refusal_of("flags : tsc constant_tsc nonstop_tsc", "tsc"),
            None
        );
        assert_eq!(
            refusal_of("flags : constant_tsc nonstop_tsc", "kvm-clock"),
            None
        );
        assert_eq!(refusal_of("flags : tsc constant_tsc", "tsc"), None);

        let stops = refusal_of("flags : tsc constant_tsc", "hpet").expect("refused");
        assert!(
            stops.contains("nonstop_tsc") && stops.contains("hpet"),
            "{stops}"
        );
        let varies = refusal_of("flags : tsc nonstop_tsc", "tsc").expect("refused");
        assert!(varies.contains("lacks constant_tsc"), "{varies}");
    }
}
