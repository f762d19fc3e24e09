//! Scopes: sums of what happened on a thread between two points.
//!
//! The kernel keeps running totals of the thread's life in its slot (`debox/probe/totals.h`). A scope reads
//! them at its begin and at its end. The time from the kernel's last stamp to a reading of the same clock
//! here counts as CPU time in user mode. No system call, no lock, no allocation.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{compiler_fence, Ordering};

use crate::record::{Budget, Slot, Totals, TOTALS_AWAY, TOTALS_IRQ, TOTALS_USER_TAP};

use super::liveness::{self, Belief};
use super::{memory, own_slot, own_work, thread_state, Error};

const PARTS: usize = 6;
const CPU: usize = 0;
const OUTSIDE: usize = 5;

/// Which page faults a scope counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Faults {
    /// Those taken in calls, as the records do.
    #[default]
    InCalls,
    /// Those of the program's own code, too. This takes one `getrusage` at each end, which counts in the
    /// enclosing scopes.
    All,
}

/// What happened on a thread in a scope; `struct debox_sums`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    pub wall_ns: u64,
    /// Where the wall time went: the parts add up to `wall_ns`; `outside_ns` is 0.
    pub budget: Budget,
    /// The part of `budget` in system calls. The rest was between them: user mode and its page faults.
    pub in_calls: Budget,
    /// System calls; under a user tap, those that it saw.
    pub calls: u64,
    /// Sleeps in calls, and in page faults between them.
    pub sleeps: u64,
    pub faults_minor: u64,
    pub faults_major: u64,
    /// Time of unknown kind, because the machine hid switches. It is included in the parts, mostly in CPU
    /// time.
    pub unseen_ns: u64,
    /// Hidden switches, as far as they were noticed.
    pub unseen: u64,
    /// User tap: calls that could not be stamped.
    pub untapped: u64,
    /// [`SUMS_IRQ_MEASURED`], [`SUMS_USER_TAP`], [`SUMS_ALL_FAULTS`].
    pub flags: u32,
    pub reserved: [u32; 3],
}

/// [`Sums::flags`]: `irq_ns` is measured; without this flag, that time is included in `cpu_ns`.
pub const SUMS_IRQ_MEASURED: u32 = 1 << 0;
/// [`Sums::flags`]: only tapped calls are counted.
pub const SUMS_USER_TAP: u32 = 1 << 1;
/// [`Sums::flags`]: with [`Faults::All`].
pub const SUMS_ALL_FAULTS: u32 = 1 << 2;

const _: () = assert!(size_of::<Sums>() == 176);

impl Sums {
    /// CPU time in user mode: running, and not in a call.
    pub fn cpu_user_ns(&self) -> u64 {
        self.budget.cpu_ns - self.in_calls.cpu_ns
    }

    /// CPU time in system calls.
    pub fn cpu_kernel_ns(&self) -> u64 {
        self.in_calls.cpu_ns
    }

    /// Whether `irq_ns` is measured.
    pub fn irq_is_measured(&self) -> bool {
        self.flags & SUMS_IRQ_MEASURED != 0
    }
}

/// A duration with three digits: `1.23ms`.
struct Short(u64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0 => return f.write_str("0"),
            ns if ns < 1_000 => return write!(f, "{ns}ns"),
            ns if ns < 999_500 => (ns as f64 / 1e3, "us"),
            ns if ns < 999_500_000 => (ns as f64 / 1e6, "ms"),
            ns => (ns as f64 / 1e9, "s"),
        };
        let digits = if value < 9.995 {
            2
        } else {
            usize::from(value < 99.95)
        };
        write!(f, "{value:.digits$}{unit}")
    }
}

/// Formats the sums for a log line: `wall=4.10ms cpu=1.30ms blocked=2.75ms runqueue=50.0us preempted=0
/// calls=12`. Non-zero interrupts, if measured, and unknown time follow.
impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let budget = &self.budget;
        write!(
            f,
            "wall={} cpu={} blocked={} runqueue={} preempted={} calls={}",
            Short(self.wall_ns),
            Short(budget.cpu_ns),
            Short(budget.blocked_ns),
            Short(budget.runqueue_ns),
            Short(budget.preempted_ns),
            self.calls,
        )?;
        if self.irq_is_measured() {
            write!(f, " irq={}", Short(budget.irq_ns))?;
        }
        if self.unseen_ns > 0 || self.unseen > 0 {
            write!(f, " unseen={}/{}", Short(self.unseen_ns), self.unseen)?;
        }
        Ok(())
    }
}

/// A thread's life at one moment.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Reading {
    now_ns: u64,
    birth_ns: u64,
    life_ns: [u64; PARTS],
    calls_ns: [u64; PARTS],
    calls: u64,
    sleeps: u64,
    faults_minor: u64,
    faults_major: u64,
    unseen_ns: u64,
    unseen: u64,
    untapped: u64,
    /// The length of the open part, if the thread's return to the CPU was not seen.
    away_ns: u64,
    flags: u32,
    reserved: u32,
}

/// Reads a field that the kernel may have changed since the last look.
macro_rules! read {
    ($pointer:expr, $($field:tt)+) => {
        // SAFETY: slots are never unmapped (see `memory`), and any bytes are valid integers.
        unsafe { ptr::read_volatile(&raw const (*$pointer).$($field)+) }
    };
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to `time` only; stays in user mode.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// More attempts than a thread can lose its CPU in so short a time. Limited, because a slot that the client
/// itself or others write to must not block the reader.
const ATTEMPTS: usize = 1000;

impl Reading {
    pub const ZERO: Reading = Reading {
        now_ns: 0,
        birth_ns: 0,
        life_ns: [0; PARTS],
        calls_ns: [0; PARTS],
        calls: 0,
        sleeps: 0,
        faults_minor: 0,
        faults_major: 0,
        unseen_ns: 0,
        unseen: 0,
        untapped: 0,
        away_ns: 0,
        flags: 0,
        reserved: 0,
    };

    /// Reads the thread's own slot; `None` if it is never consistent.
    pub fn take(slot: *const Slot) -> Option<Reading> {
        for _ in 0..ATTEMPTS {
            let sequence = read!(slot, totals.sequence);
            let completed = read!(slot, completed);
            compiler_fence(Ordering::SeqCst);
            let totals = read!(slot, totals);
            let tapped_ns = read!(slot, tap_totals_ns);
            let tap_faults = read!(slot, tap_faults);
            let untapped = read!(slot, tap_unstamped);
            let now_ns = monotonic_ns();
            compiler_fence(Ordering::SeqCst);
            // The thread itself counts tapped calls, perhaps in a signal handler.
            let is_whole = sequence & 1 == 0
                && read!(slot, totals.sequence) == sequence
                && read!(slot, completed) == completed;
            if is_whole {
                let mut reading = Reading::of(&totals, now_ns);
                if totals.flags & TOTALS_USER_TAP != 0 {
                    reading.calls_ns = tapped_ns;
                    reading.calls = completed;
                    reading.faults_minor = u64::from(tap_faults);
                    reading.faults_major = 0;
                    reading.untapped = untapped;
                }
                return Some(reading);
            }
        }
        None
    }

    fn of(totals: &Totals, now_ns: u64) -> Reading {
        let open = now_ns.saturating_sub(totals.stamp_ns);
        let mut life_ns = totals.life_ns;
        life_ns[CPU] += open;
        Reading {
            // By this clock or the kernel's, which may be slightly ahead if it was read on another CPU.
            now_ns: totals.stamp_ns + open,
            birth_ns: totals.birth_ns,
            life_ns,
            calls_ns: totals.calls_ns,
            calls: totals.calls,
            sleeps: totals.sleeps,
            faults_minor: totals.faults_minor,
            faults_major: totals.faults_major,
            unseen_ns: totals.unseen_ns,
            unseen: totals.unseen,
            untapped: 0,
            away_ns: match totals.flags & TOTALS_AWAY {
                0 => 0,
                _ => open,
            },
            flags: totals.flags,
            reserved: 0,
        }
    }

    /// Whether the kernel still writes the slot that this was read from. The slot is the calling thread's
    /// own.
    fn believe(&self, slot: *mut Slot) -> Belief {
        let stamp_ns = read!(slot, totals.stamp_ns);
        liveness::believe_totals(slot, self.now_ns.saturating_sub(stamp_ns))
    }

    /// Whether both are readings of one thread in one session.
    pub fn is_of_same_life(&self, other: &Reading) -> bool {
        self.birth_ns == other.birth_ns
    }

    /// Adds what happened between two readings to this sum.
    pub fn add(&mut self, begin: &Reading, end: &Reading) {
        let sums = begin.until(end);
        let grown = differences(&begin.life_ns, &end.life_ns);
        self.birth_ns = end.birth_ns;
        self.now_ns += sums.wall_ns;
        for (part, grown) in grown.iter().enumerate() {
            self.life_ns[part] += grown;
            let in_calls = end.calls_ns[part].saturating_sub(begin.calls_ns[part]);
            self.calls_ns[part] += in_calls;
        }
        self.calls += sums.calls;
        self.sleeps += sums.sleeps;
        self.faults_minor += sums.faults_minor;
        self.faults_major += sums.faults_major;
        self.unseen_ns += sums.unseen_ns;
        self.unseen += sums.unseen;
        self.untapped += sums.untapped;
    }

    /// This reading without the sum in the other.
    pub fn without(mut self, other: &Reading) -> Reading {
        let take = |from: &mut u64, what: u64| *from = from.saturating_sub(what);
        take(&mut self.now_ns, other.now_ns);
        for part in 0..PARTS {
            take(&mut self.life_ns[part], other.life_ns[part]);
            take(&mut self.calls_ns[part], other.calls_ns[part]);
        }
        take(&mut self.calls, other.calls);
        take(&mut self.sleeps, other.sleeps);
        take(&mut self.faults_minor, other.faults_minor);
        take(&mut self.faults_major, other.faults_major);
        take(&mut self.unseen_ns, other.unseen_ns);
        take(&mut self.unseen, other.unseen);
        take(&mut self.untapped, other.untapped);
        self
    }

    /// This reading with so many fewer calls.
    pub fn without_calls(mut self, calls: u64) -> Reading {
        if self.flags & TOTALS_USER_TAP == 0 {
            self.calls = self.calls.saturating_sub(calls);
        }
        self
    }

    /// What happened from this reading to a later one.
    fn until(&self, end: &Reading) -> Sums {
        let wall_ns = end.now_ns.saturating_sub(self.now_ns);
        let budget = differences(&self.life_ns, &end.life_ns);
        let mut in_calls = [0; PARTS];
        for part in 0..PARTS {
            in_calls[part] = end.calls_ns[part].saturating_sub(self.calls_ns[part]);
            // The user tap's clock differs slightly from the kernel's.
            if part != OUTSIDE {
                in_calls[part] = in_calls[part].min(budget[part]);
            }
        }
        let mut flags = 0;
        if end.flags & TOTALS_IRQ != 0 {
            flags |= SUMS_IRQ_MEASURED;
        }
        if end.flags & TOTALS_USER_TAP != 0 {
            flags |= SUMS_USER_TAP;
        }
        Sums {
            wall_ns,
            budget: budget_of(budget),
            in_calls: budget_of(in_calls),
            calls: end.calls.saturating_sub(self.calls),
            sleeps: end.sleeps.saturating_sub(self.sleeps),
            faults_minor: end.faults_minor.saturating_sub(self.faults_minor),
            faults_major: end.faults_major.saturating_sub(self.faults_major),
            unseen_ns: end.unseen_ns.saturating_sub(self.unseen_ns) + self.away_ns + end.away_ns,
            unseen: end.unseen.saturating_sub(self.unseen),
            untapped: end.untapped.saturating_sub(self.untapped),
            flags,
            reserved: [0; 3],
        }
    }
}

/// The growth of the parts, with the sum preserved. A part shrinks if its time was first attributed to it
/// because a switch was hidden; the deficit is subtracted from the parts that have grown.
fn differences(begin: &[u64; PARTS], end: &[u64; PARTS]) -> [u64; PARTS] {
    let mut grown = [0; PARTS];
    let mut owed = 0;
    for part in 0..PARTS {
        grown[part] = end[part].saturating_sub(begin[part]);
        owed += begin[part].saturating_sub(end[part]);
    }
    while owed > 0 {
        let most = (0..PARTS).max_by_key(|part| grown[*part]).unwrap_or(CPU);
        let taken = owed.min(grown[most]);
        if taken == 0 {
            break;
        }
        grown[most] -= taken;
        owed -= taken;
    }
    grown
}

fn budget_of(parts: [u64; PARTS]) -> Budget {
    let [cpu_ns, blocked_ns, runqueue_ns, preempted_ns, irq_ns, outside_ns] = parts;
    Budget {
        cpu_ns,
        blocked_ns,
        runqueue_ns,
        preempted_ns,
        irq_ns,
        outside_ns,
    }
}

/// The thread's page faults so far, as the kernel counts them.
pub(super) fn all_faults() -> (u64, u64) {
    // SAFETY: any bytes are a rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: writes to `usage` only. A raw call, not libc's function, so that no user tap counts it.
    unsafe { libc::syscall(libc::SYS_getrusage, libc::RUSAGE_THREAD, &mut usage) };
    (usage.ru_minflt as u64, usage.ru_majflt as u64)
}

/// Where a scope began: plain data, for bindings. [`Scope`] is what Rust programs use.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Start {
    generation: u64,
    /// The thread, among those alive.
    thread: usize,
    all_faults: u32,
    reserved: u32,
    reading: Reading,
}

impl Start {
    /// Takes the calling thread's reading now. Safe in a signal handler.
    ///
    /// # Errors
    ///
    /// [`Error::NotEnabled`], [`Error::NotMonitored`].
    pub fn now(faults: Faults) -> Result<Start, Error> {
        let slot = own_slot()?;
        let counted = (faults == Faults::All).then(all_faults);
        let mut reading = Reading::take(slot).ok_or(Error::NotMonitored)?;
        match reading.believe(slot) {
            Belief::AtOnce => {}
            // Read again, to leave out the call that was made for the check.
            Belief::Checked => reading = Reading::take(slot).ok_or(Error::NotMonitored)?,
            Belief::None => return Err(Error::Closed),
        }
        let mut reading = own_work::taken_off(reading);
        if let Some(faults) = counted {
            (reading.faults_minor, reading.faults_major) =
                own_work::faults_taken_off(faults, &reading);
        }
        Ok(Start {
            generation: memory::generation(),
            thread: this_thread(),
            all_faults: u32::from(counted.is_some()),
            reserved: 0,
            reading,
        })
    }

    /// What has happened since. Safe in a signal handler.
    ///
    /// # Errors
    ///
    /// [`Error::OtherThread`], [`Error::Interrupted`].
    pub fn sums(&self) -> Result<Sums, Error> {
        if self.thread != this_thread() {
            return Err(Error::OtherThread);
        }
        let slot = own_slot().map_err(|_| Error::Interrupted)?;
        if memory::generation() != self.generation {
            return Err(Error::Interrupted);
        }
        let taken = Reading::take(slot).ok_or(Error::Interrupted)?;
        let mut end = own_work::taken_off(taken);
        if let Belief::None = taken.believe(slot) {
            return Err(Error::Interrupted);
        }
        if end.birth_ns != self.reading.birth_ns {
            return Err(Error::OtherThread); // the scope's thread has ended, and this one reuses its address
        }
        if self.all_faults != 0 {
            (end.faults_minor, end.faults_major) = own_work::faults_taken_off(all_faults(), &end);
        }
        let mut sums = self.reading.until(&end);
        if self.all_faults != 0 {
            sums.flags |= SUMS_ALL_FAULTS;
        }
        Ok(sums)
    }
}

/// The thread's words have an address of their own as long as it lives.
fn this_thread() -> usize {
    ptr::from_ref(thread_state::of_this_thread()) as usize
}

/// A piece of work of one thread, whose time is summed up; see [`scope`].
pub struct Scope {
    name: Cow<'static, str>,
    start: Result<Start, Error>,
    // A scope has to end on the thread that it began on.
    _not_send: PhantomData<*const ()>,
}

/// Begins a scope on this thread: what happens on the thread is summed up until [`Scope::end`].
///
/// Scopes may be nested, and overlap. Each costs two readings of the clock and some plain loads. If nothing
/// is measured (DeBox is not enabled, or the broker has gone), a scope does no harm, and its end returns
/// why there are no sums.
///
/// Everything that the thread does counts. Under an event loop that includes other tasks: there, put a
/// scope around a piece of work that does not suspend. `debox/include/debox.h` has the details.
pub fn scope(name: impl Into<Cow<'static, str>>) -> Scope {
    scope_with(name.into(), Faults::InCalls)
}

fn scope_with(name: Cow<'static, str>, faults: Faults) -> Scope {
    Scope {
        start: Start::now(faults),
        name,
        _not_send: PhantomData,
    }
}

impl Scope {
    /// A scope that counts the given kind of page faults.
    pub fn with_faults(name: impl Into<Cow<'static, str>>, faults: Faults) -> Scope {
        scope_with(name.into(), faults)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sums so far.
    ///
    /// # Errors
    ///
    /// As for [`Scope::end`].
    pub fn so_far(&self) -> Result<Sums, Error> {
        self.start.as_ref().map_err(Error::clone)?.sums()
    }

    /// Ends the scope.
    ///
    /// # Errors
    ///
    /// The reason why the scope could not begin, [`Error::NotEnabled`] or [`Error::NotMonitored`]; or
    /// [`Error::Interrupted`].
    pub fn end(self) -> Result<Sums, Error> {
        self.so_far()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals() -> Totals {
        Totals {
            birth_ns: 100,
            stamp_ns: 1000,
            life_ns: [500, 300, 50, 50, 0, 0],
            calls_ns: [200, 300, 20, 0, 0, 0],
            calls: 7,
            ..Totals::default()
        }
    }

    fn later_totals() -> Totals {
        Totals {
            stamp_ns: 2000,
            life_ns: [900, 800, 100, 100, 0, 0],
            calls_ns: [300, 700, 50, 0, 0, 0],
            calls: 9,
            ..totals()
        }
    }

    #[test]
    fn parts_add_up_to_wall_time() {
        let later = later_totals();
        let sums = Reading::of(&totals(), 1200).until(&Reading::of(&later, 2100));
        assert_eq!(sums.wall_ns, 900);
        assert_eq!(sums.budget, budget_of([300, 500, 50, 50, 0, 0]));
        assert_eq!(sums.in_calls, budget_of([100, 400, 30, 0, 0, 0]));
        assert_eq!((sums.cpu_user_ns(), sums.cpu_kernel_ns()), (200, 100));
        assert_eq!(sums.calls, 2);
        assert_eq!(
            sums.to_string(),
            "wall=900ns cpu=300ns blocked=500ns runqueue=50ns preempted=50ns calls=2"
        );
    }

    #[test]
    fn work_of_the_library_is_left_out_of_every_part() {
        let later = later_totals();
        let (begin, end) = (Reading::of(&totals(), 1200), Reading::of(&later, 2100));
        let mut work = Reading::ZERO;
        work.add(&begin, &end);
        assert!(work.is_of_same_life(&end));
        let sums = begin.until(&end.without(&work));
        assert_eq!((sums.wall_ns, sums.calls), (0, 0));
        assert_eq!(sums.budget, Budget::default());
        assert_eq!(sums.in_calls, Budget::default());
        // Two equal sums, with the program's own work between them.
        let mut last = later;
        last.stamp_ns = 2600;
        last.life_ns[CPU] += 600;
        last.calls += 3;
        let sums = begin.until(&Reading::of(&last, 2600).without(&work));
        assert_eq!(
            (sums.wall_ns, sums.budget.cpu_ns, sums.calls),
            (500, 500, 3)
        );
    }

    #[test]
    fn a_clock_behind_the_last_stamp_takes_nothing_back() {
        let reading = Reading::of(&totals(), 990);
        assert_eq!((reading.now_ns, reading.life_ns[CPU]), (1000, 500));
    }

    #[test]
    fn what_was_taken_for_cpu_time_first_is_unseen_and_the_sum_holds() {
        let mut begin = totals();
        begin.flags = TOTALS_AWAY;
        let mut end = totals(); // the 400 ns until the scope began turn out to be waiting
        end.stamp_ns = 1500;
        end.life_ns[1] += 450;
        end.life_ns[CPU] += 50;
        let sums = Reading::of(&begin, 1400).until(&Reading::of(&end, 1500));
        assert_eq!(sums.wall_ns, 100);
        let budget = sums.budget;
        assert_eq!(budget.cpu_ns + budget.blocked_ns, 100);
        assert_eq!(sums.unseen_ns, 400);
        assert!(sums.to_string().ends_with("unseen=400ns/0"), "{sums}");
    }

    #[test]
    fn durations_are_short() {
        let short = |ns| Short(ns).to_string();
        assert_eq!(short(0), "0");
        assert_eq!(short(999), "999ns");
        assert_eq!(short(1_234), "1.23us");
        assert_eq!(short(12_345_678), "12.3ms");
        assert_eq!(short(999_499_999), "999ms");
        assert_eq!(short(2_000_000_000), "2.00s");
    }

    #[test]
    fn scopes_without_a_session_say_so() {
        assert_eq!(scope("request").end(), Err(Error::NotEnabled));
    }
}
