// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times an operation in the process that was started for this: warm-up, number of iterations, and one
//! measurement without what the clock takes.

use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::benchmark::{Available, Failure};
use crate::clock::{Clock, Stamp};
use crate::sys;

/// The part of a sample's time that the search for the number of iterations takes, at least.
const SEARCH: f64 = 0.1;
const ITERATIONS_MAX: u64 = 1 << 40;
/// Events with a long preparation end a sample after this many times its planned time.
const PATIENCE: f64 = 3.0;
const EVENTS_MAX: u64 = 10_000_000;
/// An event or a preparation that takes less is not asked how long it waited for the CPU: asking takes a microsecond.
const LONG_NS: f64 = 50_000.0;

/// What a sample's process is asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub benchmark: String,
    pub clock: Clock,
    /// The time that the measurement is to take.
    pub target_ns: f64,
    /// For temporary files.
    pub directory: PathBuf,
    /// The CPU of the process, and one for a second process that measures with it.
    pub cpu: Option<u32>,
    pub second_cpu: Option<u32>,
    /// Bytes that do not fit into the caches; `None`: there is not enough memory for so many.
    pub memory_bytes: Option<u64>,
    /// Whether the kernel's caches may be dropped.
    pub may_drop_caches: bool,
    /// Whether other instances measure at the same time: the process says how far it is, and goes on when told to.
    pub is_gated: bool,
    /// `None`: the sample finds out how often it performs the operation.
    #[serde(default)]
    pub fixed: Option<Fixed>,
}

/// So many iterations: recordings of two samples differ in those that are timed alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    pub warm_up: u64,
    pub timed: u64,
}

/// One measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub iterations: u64,
    pub elapsed_ns: f64,
    pub overhead_ns: f64,
    pub baseline_ns: Option<f64>,
    pub bytes: Option<u64>,
    pub runqueue_ns: Option<u64>,
    /// Iterations of the benchmark's loop, or events, each of which may be several operations.
    #[serde(default)]
    pub loops: u64,
}

impl Measured {
    pub fn operation_ns(&self) -> f64 {
        let measured = (self.elapsed_ns - self.overhead_ns) / self.iterations as f64;
        measured - self.baseline_ns.unwrap_or(0.0)
    }

    /// Says that an operation transfers so many bytes.
    pub fn bytes(mut self, bytes: usize) -> Measured {
        self.bytes = Some(bytes as u64);
        self
    }

    /// Says that each iteration was so many operations.
    pub fn times(mut self, operations: u64) -> Measured {
        self.iterations *= operations;
        self.baseline_ns = self.baseline_ns.map(|ns| ns / operations as f64);
        self
    }
}

/// When an instance ran, in ns of `CLOCK_MONOTONIC_RAW`; 0 before it did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// From then on it performed the operation without a pause.
    pub from_ns: u64,
    pub measured_from_ns: u64,
    pub measured_until_ns: u64,
    pub until_ns: u64,
}

impl Ran {
    fn begin_load(&mut self) {
        first(&mut self.from_ns);
    }

    fn begin(&mut self) {
        first(&mut self.measured_from_ns);
    }

    fn end(&mut self) {
        self.measured_until_ns = sys::monotonic_raw_ns();
    }

    fn end_load(&mut self) {
        self.until_ns = sys::monotonic_raw_ns();
    }
}

fn first(time_ns: &mut u64) {
    if *time_ns == 0 {
        *time_ns = sys::monotonic_raw_ns();
    }
}

#[derive(Debug)]
pub struct Sampler {
    job: Job,
    /// Where the process that started this one reads.
    report: File,
    overhead_ns: f64,
    /// Whether other processes of this sample use the CPU too, so waiting for it is a part of the operation.
    shares_cpu: bool,
    ran: Ran,
}

/// Times events one at a time: each has a part before it that does not count.
#[derive(Debug)]
pub struct Watch {
    clock: Clock,
    elapsed_ns: f64,
    events: u64,
    operations: u64,
    /// When the last event ended.
    idle_since: Stamp,
    /// For how long the thread had waited for a CPU when that was last read. `None`: the kernel does not count it.
    runqueue_ns: Option<u64>,
    /// For how long it waited while an event was timed.
    waited_ns: u64,
}

impl Watch {
    fn new(clock: Clock) -> Watch {
        Watch {
            clock,
            elapsed_ns: 0.0,
            events: 0,
            operations: 0,
            idle_since: clock.now(),
            runqueue_ns: sys::runqueue_ns(),
            waited_ns: 0,
        }
    }

    /// Times `event`, which is `operations` operations.
    #[inline(always)]
    pub fn time<T>(&mut self, operations: u64, event: impl FnOnce() -> T) -> T {
        let mut begin = self.clock.now();
        if self.clock.between(self.idle_since, begin) > LONG_NS {
            // What the preparation waited for is none of the event's.
            self.waited();
            begin = self.clock.now();
        }
        let result = event();
        let end = self.clock.now();
        let elapsed_ns = self.clock.between(begin, end);
        if elapsed_ns > LONG_NS {
            self.waited_ns += self.waited().min(elapsed_ns as u64);
        }
        self.elapsed_ns += elapsed_ns;
        self.events += 1;
        self.operations += operations;
        self.idle_since = self.clock.now();
        result
    }

    /// How long this thread has waited for the CPU since the last call.
    #[cold]
    fn waited(&mut self) -> u64 {
        let before = self.runqueue_ns;
        self.runqueue_ns = sys::runqueue_ns();
        match (before, self.runqueue_ns) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            _ => 0,
        }
    }
}

impl Sampler {
    pub fn new(job: Job, report: File) -> Sampler {
        Sampler {
            report,
            overhead_ns: job.clock.overhead_ns(),
            job,
            shares_cpu: false,
            ran: Ran::default(),
        }
    }

    pub fn report(&mut self) -> &mut File {
        &mut self.report
    }

    /// The directory for temporary files.
    pub fn directory(&self) -> &Path {
        &self.job.directory
    }

    /// A size such as `16K`; `memory` is a size that does not fit into the caches.
    pub fn size(&self, variant: &str) -> Result<usize, Failure> {
        let size = match variant {
            "memory" => self.job.memory_bytes.ok_or_else(|| {
                let reason =
                    "there is not enough memory for a buffer that does not fit into the caches";
                Failure::Unavailable(reason.to_string())
            })?,
            "0K" => 0,
            _ => kit_units::parse_size(variant).map_err(Failure::Wrong)?,
        };
        Ok(size as usize)
    }

    pub fn may_drop_caches(&self) -> bool {
        self.job.may_drop_caches
    }

    /// Says that other processes or threads of the benchmark use the CPU too.
    pub fn shares_cpu(&mut self) {
        self.shares_cpu = true;
    }

    /// The CPU of a second process: the same for `one-cpu`, another for `two-cpus`.
    pub fn second_cpu(&self, variant: &str) -> Result<Option<u32>, Failure> {
        if !variant.contains("two-cpus") {
            return Ok(self.job.cpu);
        }
        if self.job.cpu.is_none() {
            let reason = "processes cannot be bound to CPUs here";
            return Err(Failure::Unavailable(reason.to_string()));
        }
        let reason =
            || Failure::Unavailable("there is no second CPU that is free for it".to_string());
        self.job.second_cpu.map(Some).ok_or_else(reason)
    }

    /// Times `run`, which performs the operation as often as its argument says.
    pub fn time(
        &mut self,
        mut run: impl FnMut(u64) -> Result<(), Failure>,
    ) -> Result<Measured, Failure> {
        let iterations = self.iterations(&mut run, self.job.target_ns)?;
        self.wait_for_others(|| run(part(iterations)))?;
        let measured = self.measure(&mut run, iterations)?;
        self.wait_for_others(|| run(part(iterations)))?;
        Ok(measured)
    }

    /// Times `run` and, in the same process, what has to be done beside the operation.
    pub fn time_less(
        &mut self,
        mut run: impl FnMut(u64) -> Result<(), Failure>,
        mut beside: impl FnMut(u64) -> Result<(), Failure>,
    ) -> Result<Measured, Failure> {
        let half = self.job.target_ns / 2.0;
        let iterations = self.iterations(&mut run, half)?;
        let of_beside = match self.job.fixed {
            Some(fixed) => fixed.warm_up,
            None => self.search(&mut beside, half)?,
        };
        self.wait_for_others(|| beside(part(of_beside)))?;
        let baseline = self.measure(&mut beside, of_beside)?.operation_ns();
        self.wait_for_others(|| beside(part(of_beside)))?;
        let measured = self.measure(&mut run, iterations)?;
        self.wait_for_others(|| run(part(iterations)))?;
        Ok(Measured {
            baseline_ns: Some(baseline),
            ..measured
        })
    }

    /// Times events one at a time. `event` prepares, has the watch time the operation, and cleans up.
    pub fn time_each(
        &mut self,
        mut event: impl FnMut(&mut Watch) -> Result<(), Failure>,
    ) -> Result<Measured, Failure> {
        let mut warm_up = Watch::new(self.job.clock);
        let begin = self.job.clock.now();
        let elapsed = |begin| self.job.clock.between(begin, self.job.clock.now());
        loop {
            event(&mut warm_up)?;
            let is_warm = match self.job.fixed {
                Some(fixed) => warm_up.events >= fixed.warm_up,
                None => elapsed(begin) > SEARCH * self.job.target_ns,
            };
            if is_warm {
                break;
            }
        }
        self.wait_for_others(|| event(&mut warm_up))?;
        self.ran.begin();
        let mut watch = Watch::new(self.job.clock);
        let begin = self.job.clock.now();
        while watch.events < EVENTS_MAX {
            event(&mut watch)?;
            let elapsed = self.job.clock.between(begin, self.job.clock.now());
            let is_enough = match self.job.fixed {
                Some(fixed) => watch.events >= fixed.timed,
                None => {
                    let is_late = elapsed >= PATIENCE * self.job.target_ns;
                    is_late || watch.elapsed_ns >= self.job.target_ns
                }
            };
            if is_enough {
                break;
            }
        }
        self.ran.end();
        self.wait_for_others(|| event(&mut warm_up))?;
        Ok(Measured {
            iterations: watch.operations,
            elapsed_ns: watch.elapsed_ns,
            overhead_ns: self.overhead_ns * watch.events as f64,
            runqueue_ns: self.unless_shared(watch.runqueue_ns.map(|_| watch.waited_ns)),
            loops: watch.events,
            ..Measured::default()
        })
    }

    /// The number of iterations to time, after the warm-up.
    fn iterations(
        &self,
        run: &mut impl FnMut(u64) -> Result<(), Failure>,
        target_ns: f64,
    ) -> Result<u64, Failure> {
        let Some(fixed) = self.job.fixed else {
            return self.search(run, target_ns);
        };
        run(fixed.warm_up.max(1))?;
        Ok(fixed.timed.max(1))
    }

    /// The number of iterations that take `target_ns`; finding it warms up.
    fn search(
        &self,
        run: &mut impl FnMut(u64) -> Result<(), Failure>,
        target_ns: f64,
    ) -> Result<u64, Failure> {
        let mut iterations = 1u64;
        loop {
            let begin = self.job.clock.now();
            run(iterations)?;
            let elapsed = self.job.clock.between(begin, self.job.clock.now()).max(1.0);
            let needed = iterations as f64 * target_ns / elapsed;
            if elapsed >= SEARCH * target_ns || iterations >= ITERATIONS_MAX {
                return Ok((needed as u64).clamp(1, ITERATIONS_MAX));
            }
            // Towards one and a half times the least time, so that the next step is the last.
            let next = (needed * SEARCH * 1.5) as u64;
            iterations = next.clamp(iterations + 1, iterations.saturating_mul(10));
        }
    }

    fn measure(
        &mut self,
        run: &mut impl FnMut(u64) -> Result<(), Failure>,
        iterations: u64,
    ) -> Result<Measured, Failure> {
        self.ran.begin();
        let waited = sys::runqueue_ns();
        let begin = self.job.clock.now();
        run(iterations)?;
        let end = self.job.clock.now();
        let runqueue_ns = self.waited_since(waited);
        self.ran.end();
        Ok(Measured {
            iterations,
            elapsed_ns: self.job.clock.between(begin, end),
            overhead_ns: self.overhead_ns,
            runqueue_ns,
            loops: iterations,
            ..Measured::default()
        })
    }

    fn waited_since(&self, before: Option<u64>) -> Option<u64> {
        let waited = sys::runqueue_ns()?.saturating_sub(before?);
        self.unless_shared(Some(waited))
    }

    fn unless_shared(&self, waited_ns: Option<u64>) -> Option<u64> {
        waited_ns.filter(|_| !self.shares_cpu)
    }

    /// When the process measured, and when it ran for others that measured.
    pub fn ran(&self) -> Ran {
        self.ran
    }

    /// With other instances, says that this one has come so far, and goes on with `load` until all have: none of them
    /// is measured beside fewer. The first of these waits comes before the measurement, the last after it.
    fn wait_for_others(
        &mut self,
        mut load: impl FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if !self.job.is_gated {
            return Ok(());
        }
        self.ran.begin_load();
        self.report
            .write_all(READY_LINE)
            .available("say that the sample is ready")?;
        let mut input = [libc::pollfd {
            fd: libc::STDIN_FILENO,
            events: libc::POLLIN,
            revents: 0,
        }];
        loop {
            load()?;
            if sys::poll(&mut input).available("poll")? > 0 {
                break;
            }
        }
        self.ran.end_load();
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        match read.available("wait for the other instances")? {
            0 => Err(Failure::Unavailable("the run has ended".to_string())),
            _ => Ok(()),
        }
    }
}

/// So many iterations that the other instances need not wait for this one.
fn part(iterations: u64) -> u64 {
    (iterations / 100).max(1)
}

/// What a gated sample's process writes when it has come as far as all are to come before they go on.
pub const READY_LINE: &[u8] = b"ready\n";

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;

    pub(crate) fn sampler() -> Sampler {
        let job = Job {
            benchmark: String::new(),
            clock: Clock::MonotonicRaw,
            target_ns: 2e6,
            directory: std::env::temp_dir(),
            cpu: None,
            second_cpu: Some(0),
            memory_bytes: Some(4 << 20),
            may_drop_caches: false,
            is_gated: false,
            fixed: None,
        };
        let report = File::options().write(true).open("/dev/null");
        Sampler::new(job, report.expect("it is there"))
    }

    fn spin(duration: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < duration {}
    }

    /// So much CPU time of this thread, however long it waits for it.
    fn use_cpu(duration: Duration) {
        let used = || {
            let mut time = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: the kernel writes the time.
            unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        let begin = used();
        while used() - begin < duration {}
    }

    #[test]
    fn a_known_time_is_measured() {
        let measured = sampler()
            .time(|n| {
                (0..n).for_each(|_| spin(Duration::from_micros(20)));
                Ok(())
            })
            .expect("it runs");
        assert!(measured.iterations > 10);
        // Never less than it takes; more if the machine does something else.
        assert!(measured.operation_ns() >= 20_000.0, "{measured:?}");
        assert!(measured.operation_ns() < 2e6, "{measured:?}");
    }

    #[test]
    fn what_is_beside_the_operation_does_not_count() {
        let spin_for = |us: u64| {
            move |n: u64| {
                (0..n).for_each(|_| spin(Duration::from_micros(us)));
                Ok(())
            }
        };
        let measured = sampler()
            .time_less(spin_for(50), spin_for(30))
            .expect("it runs");
        assert!(measured.baseline_ns.expect("a baseline") >= 30_000.0);
        let parts = measured.operation_ns() + measured.baseline_ns.expect("a baseline");
        let whole = (measured.elapsed_ns - measured.overhead_ns) / measured.iterations as f64;
        assert!((parts - whole).abs() < 1e-3);
    }

    #[test]
    fn of_events_only_what_is_timed_counts() {
        let mut prepared = 0;
        let measured = sampler()
            .time_each(|watch| {
                prepared += 1;
                spin(Duration::from_micros(300));
                watch.time(4, || spin(Duration::from_micros(40)));
                Ok(())
            })
            .expect("it runs");
        assert_eq!(measured.iterations % 4, 0);
        assert!(prepared > measured.iterations / 4, "there is a warm-up");
        assert!(measured.operation_ns() >= 9_900.0, "{measured:?}");
        assert_eq!(measured.bytes(8).times(2).bytes, Some(8));
    }

    /// A thread on the same CPU takes half of it, and the preparation is nine tenths of the time.
    #[test]
    fn what_a_preparation_waits_for_is_none_of_the_events() {
        let Some(cpu) = sys::affinity().last().copied() else {
            return;
        };
        let ends = Arc::new(AtomicBool::new(false));
        let competitor = std::thread::spawn({
            let ends = Arc::clone(&ends);
            move || {
                let _ = sys::bind_to_cpu(cpu);
                while !ends.load(Ordering::Relaxed) {}
            }
        });
        let measured = std::thread::spawn(move || {
            let _ = sys::bind_to_cpu(cpu);
            let mut sampler = sampler();
            sampler.job.target_ns = 4e6;
            sampler.time_each(|watch| {
                use_cpu(Duration::from_millis(9));
                watch.time(1, || use_cpu(Duration::from_micros(500)));
                Ok(())
            })
        });
        let measured = measured.join().expect("no panic");
        ends.store(true, Ordering::Relaxed);
        competitor.join().expect("no panic");
        let measured = measured.expect("it runs");
        if let Some(waited) = measured.runqueue_ns {
            let own = (measured.elapsed_ns - waited as f64) / measured.loops as f64;
            assert!((450e3..5e6).contains(&own), "{measured:?}");
        }
    }

    #[test]
    fn a_fixed_number_of_iterations_is_performed() {
        let mut fixed = sampler();
        fixed.job.fixed = Some(Fixed {
            warm_up: 3,
            timed: 20,
        });
        let performed = std::cell::Cell::new(0);
        let count = |n| {
            performed.set(performed.get() + n);
            Ok(())
        };
        let measured = fixed.time(count).expect("it runs");
        assert_eq!((measured.loops, performed.take()), (20, 23));
        let measured = fixed.time_less(count, |_| Ok(())).expect("it runs");
        assert_eq!((measured.times(4).loops, performed.take()), (20, 23));
        let measured = fixed.time_each(|watch| {
            watch.time(2, || performed.set(performed.get() + 1));
            Ok(())
        });
        let measured = measured.expect("it runs");
        assert_eq!((measured.iterations, measured.loops), (40, 20));
        assert_eq!(performed.take(), 23);
    }

    #[test]
    fn a_failure_ends_the_sample() {
        let failed = sampler().time(|_| Err(Failure::Wrong("it was".to_string())));
        assert_eq!(failed, Err(Failure::Wrong("it was".to_string())));
    }
}
