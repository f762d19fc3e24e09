// SPDX-License-Identifier: MIT OR Apache-2.0
//! What monitoring adds to each call and each wait, before it is paid: what a call and a wait take on this machine without
//! probes, times what the probes of these options were measured to multiply them by.
//!
//! The factors are those of `debox/bench/overhead/whole_machine.py --only details` on one machine with Linux 6.18, where a
//! call took 136 ns and a wait 2.9 us. Whether they hold on other machines has not been measured.

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::mem::size_of;
use std::thread;
use std::time::{Duration, Instant};

use debox::Options;

/// Batches of which the fastest counts: other work on the machine only makes them slower.
const BATCHES: u32 = 40;
const CALLS: u32 = 50;
const ROUND_TRIPS: u32 = 10;

/// Time that is added to each call, and to each wait with its calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    pub call: Duration,
    pub wait: Duration,
}

/// What the cheapest call, and a wait for another process on the same CPU, take without probes.
#[derive(Debug, Clone, Copy)]
pub struct Bare {
    call: Duration,
    wait: Duration,
}

impl Bare {
    /// On this machine, before a session is opened: its probes cost other processes something, too. Takes some
    /// milliseconds.
    pub fn measured() -> io::Result<Bare> {
        Ok(Bare {
            call: call(),
            wait: wait()?,
        })
    }

    /// With a session of these options.
    pub fn price(&self, options: &Options) -> Price {
        let factors = Factors::of(options);
        Price {
            call: self.call.mul_f64(factors.call),
            wait: self.wait.mul_f64(factors.wait),
        }
    }
}

impl Price {
    /// The part of one CPU, in percent, that so many waits a second take.
    pub fn percent_of_waits(&self, per_second: u64) -> f64 {
        100.0 * per_second as f64 * self.wait.as_secs_f64()
    }
}

/// What is added, relative to what is there without probes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Factors {
    call: f64,
    wait: f64,
}

impl Factors {
    fn of(options: &Options) -> Factors {
        let detail = &options.detail;
        let keeps_records = options.history_bytes > 0 || !options.triggers.is_empty();
        // With a limit, a call that is over sooner costs no stack.
        let takes_all_stacks = detail.callsites && options.slow_ns == 0;
        let parts = [
            (true, 1.85, 0.4),
            (detail.sleeps, 0.0, 0.45),
            (detail.cpu, 0.0, 0.1),
            (detail.irq, 0.1, 0.0),
            (detail.io, 0.15, 0.0),
            (keeps_records, 0.75, 0.4),
            (takes_all_stacks, 5.5, 0.4),
            // Samples of the kernel's stack. Probes at functions cost more, by how many of them a call enters.
            (options.trace.is_some(), 0.3, 0.5),
        ];
        let on = parts.iter().filter(|(is_on, ..)| *is_on);
        on.fold(Factors::default(), |sum, (_, call, wait)| Factors {
            call: sum.call + call,
            wait: sum.wait + wait,
        })
    }
}

/// A call that does nothing but enter the kernel.
fn call() -> Duration {
    fastest(CALLS, || {
        // SAFETY: takes nothing, and returns a number.
        black_box(unsafe { libc::syscall(libc::SYS_getppid) });
        Ok(())
    })
    .unwrap_or_default()
}

/// A wait for a byte from another thread on the same CPU, with its calls.
fn wait() -> io::Result<Duration> {
    let here = thread::Builder::new().spawn(|| {
        stay_on_this_cpu()?;
        let (mut their_end, mut there) = io::pipe()?;
        let (mut back, mut their_answer) = io::pipe()?;
        // It has the CPU and the policy of this one.
        let partner = thread::Builder::new().spawn(move || {
            let mut byte = [0];
            while matches!(their_end.read(&mut byte), Ok(1)) {
                if their_answer.write_all(&byte).is_err() {
                    break;
                }
            }
        })?;
        // Two waits a round trip: one on each side.
        let round_trip = fastest(ROUND_TRIPS, || {
            there.write_all(&[0])?;
            back.read_exact(&mut [0])
        });
        // It ends when nothing more can come.
        drop(there);
        let ended = partner.join();
        ended.map_err(|_| io::Error::other("the other thread that measures has failed"))?;
        Ok(round_trip? / 2)
    })?;
    here.join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread that measures has ended")))
}

/// Keeps the calling thread where it is, and from being preempted by those that it wakes.
fn stay_on_this_cpu() -> io::Result<()> {
    // SAFETY: takes nothing, and returns a number.
    let cpu = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0);
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::other("it runs on a CPU beyond the first 1,024"));
    }
    // SAFETY: sets of CPUs and parameters are plain integers, for which zero is a value, and the calls read as much.
    let done = unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut cpus);
        let none: libc::sched_param = std::mem::zeroed();
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &cpus) == 0
            && libc::sched_setscheduler(0, libc::SCHED_BATCH, &none) == 0
    };
    match done {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

/// Time of one of `count`, in the fastest batch.
fn fastest(count: u32, mut each: impl FnMut() -> io::Result<()>) -> io::Result<Duration> {
    let mut fastest = Duration::MAX;
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for _ in 0..count {
            each()?;
        }
        fastest = fastest.min(begin.elapsed() / count);
    }
    Ok(fastest)
}

#[cfg(test)]
mod tests {
    use debox::Detail;

    use super::*;

    fn record(slow_ns: u64) -> Options {
        Options {
            detail: Detail {
                sleeps: true,
                callsites: true,
                cpu: true,
                samples: true,
                ..Detail::default()
            },
            slow_ns,
            history_bytes: 1 << 20,
            ..Options::default()
        }
    }

    /// The measured figures: 3.6 and 2.3 times as long as without a recording, 8.4 and 2.6 times with all stacks.
    #[test]
    fn what_is_asked_for_has_its_price() {
        let [some, all] = [10_000, 0].map(|slow_ns| Factors::of(&record(slow_ns)));
        assert!((2.5..2.7).contains(&some.call) && (1.2..1.5).contains(&some.wait));
        assert!((7.0..9.0).contains(&all.call) && (1.5..1.9).contains(&all.wait));
        let plain = Factors::of(&Options::default());
        assert!(plain.call < some.call && plain.wait < some.wait);
    }

    #[test]
    fn calls_and_waits_are_measured() {
        let bare = Bare::measured().expect("a call and a wait");
        let [plain, all] = [Options::default(), record(0)].map(|options| bare.price(&options));
        for time in [plain.call, plain.wait, all.call, all.wait] {
            assert!(time > Duration::from_nanos(20), "{plain:?} {all:?}");
            assert!(time < Duration::from_millis(10), "{plain:?} {all:?}");
        }
        let price = Price {
            call: Duration::from_nanos(200),
            wait: Duration::from_micros(3),
        };
        assert!((price.percent_of_waits(10_000) - 3.0).abs() < 1e-9);
    }
}
