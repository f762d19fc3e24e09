//! The record of one system call, as `debox/include/debox.h` defines it.
//!
//! These types are the C structs of the header, field by field. The assertions at the end compare them
//! with the header's numbers and with the layout that the probes were compiled with.

use std::fmt;

pub use debox_model::COMM_LEN;

/// Layout version of the record and the slot.
pub const VERSION: u16 = 1;
/// Distinct sites kept in one record.
pub const SLEEPS_MAX: usize = 8;
/// Records kept for one thread; a power of two.
pub const HISTORY_MAX: usize = 8;
/// Trace entries kept for one thread.
pub const TRACE_MAX: usize = 256;
/// The pseudo-call `(user)`: a thread's time between calls.
pub const CALL_USER: i32 = -1;

/// [`Record::abi`]: the x86-64 table of call numbers.
pub const ABI_X86_64: u16 = 0;
/// [`Record::abi`]: the 32-bit table (`int 0x80` and 32-bit programs).
pub const ABI_IA32: u16 = 1;

/// [`Record::flags`]: a piece of a call that the kernel restarts; it returned -512 to -516.
pub const RESTARTED: u16 = 1 << 0;
/// [`Record::flags`]: the call began before monitoring did, so its start is a lower bound.
pub const PARTIAL: u16 = 1 << 1;
/// [`Record::flags`]: stamps were taken in user space, and `outside_ns` is valid.
pub const USER_TAP: u16 = 1 << 2;
/// [`Record::flags`]: made by a signal handler inside another call.
pub const NESTED: u16 = 1 << 3;
/// [`Record::flags`]: `irq_ns` is measured; without this flag, that time is included in `cpu_ns`.
pub const IRQ_MEASURED: u16 = 1 << 4;
/// [`Record::flags`]: the kernel did not show the call's end. It lasts until the next call, and
/// `ret` and `args` are 0.
pub const END_UNSEEN: u16 = 1 << 5;
/// [`Record::flags`]: `throttled_ns` and who had the CPU are measured; without this flag they are 0.
pub const CPU_MEASURED: u16 = 1 << 6;

/// Where a call's wall time went. The parts add up to it: each is measured from its own stamps.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budget {
    /// Running, in this call.
    pub cpu_ns: u64,
    /// Asleep: from leaving the CPU to the wake-up.
    pub blocked_ns: u64,
    /// Woken, waiting for a CPU.
    pub runqueue_ns: u64,
    /// Preempted: off the CPU while it could have run.
    pub preempted_ns: u64,
    /// Interrupts during the call, if [`IRQ_MEASURED`].
    pub irq_ns: u64,
    /// User tap only: between the stamps but outside the call.
    pub outside_ns: u64,
}

impl Budget {
    /// The sum of the parts, which is the call's wall time.
    pub fn total_ns(&self) -> u64 {
        let parts = [
            self.cpu_ns,
            self.blocked_ns,
            self.runqueue_ns,
            self.preempted_ns,
            self.irq_ns,
            self.outside_ns,
        ];
        crate::tables::total(&parts)
    }
}

/// The parts of [`Budget::outside_ns`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outside {
    /// Signal handlers.
    pub handler_ns: u64,
    /// SIGSTOP, ptrace.
    pub stopped_ns: u64,
    /// Work on the way back to user mode: deferred closes, task work.
    pub exit_work_ns: u64,
    /// Preempted between a stamp and the instruction.
    pub preempted_ns: u64,
    /// Any other time between the stamps.
    pub other_ns: u64,
}

/// What ended a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waker {
    Unknown,
    /// A task; its id is [`Sleep::waker_tid`], its name [`Sleep::waker_comm`].
    Task,
    HardIrq,
    SoftIrq,
}

/// What [`Sleep::resource`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceKind {
    None,
    /// A file descriptor of the calling process.
    Fd,
    /// The address of a futex word in the calling process.
    Futex,
    /// The call's own timeout.
    Timer,
    /// A contended kernel lock; the value is its address.
    Lock,
    /// A process waited for, as the call's argument names it.
    Child,
    /// A block device, by its number in the kernel.
    Disk,
}

/// Who had the CPU for the largest part of the time in which a call waited for one, without what a quota
/// took. Processes count as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuOwner {
    /// The call did not wait for a CPU, or only for its quota; or this is not measured.
    None,
    Unknown,
    /// Another process; see [`Record::cpu_owner_pid`] and [`Record::cpu_owner_comm`].
    Task,
    /// Other threads of the call's own process.
    Own,
    /// A thread of the kernel.
    Kernel,
    /// No task: the CPU was idle and had to be woken.
    Idle,
    /// Processes that are hidden from a broker's client, taken together.
    Hidden,
    /// Many processes; it is not known which of them had the most.
    Many,
    /// The hypervisor, as far as that is certain.
    Stolen,
}

impl CpuOwner {
    pub(crate) fn of(kind: u32) -> CpuOwner {
        match kind {
            0 => CpuOwner::None,
            2 => CpuOwner::Task,
            3 => CpuOwner::Own,
            4 => CpuOwner::Kernel,
            5 => CpuOwner::Idle,
            6 => CpuOwner::Hidden,
            7 => CpuOwner::Many,
            8 => CpuOwner::Stolen,
            _ => CpuOwner::Unknown,
        }
    }

    /// The name in histories and reports; `None` for [`CpuOwner::None`].
    pub fn as_str(self) -> Option<&'static str> {
        Some(match self {
            CpuOwner::None => return None,
            CpuOwner::Unknown => "unknown",
            CpuOwner::Task => "task",
            CpuOwner::Own => "own",
            CpuOwner::Kernel => "kernel",
            CpuOwner::Idle => "idle",
            CpuOwner::Hidden => "hidden",
            CpuOwner::Many => "many",
            CpuOwner::Stolen => "stolen",
        })
    }

    /// Whether it has a name and a process id.
    pub fn is_process(self) -> bool {
        matches!(self, CpuOwner::Task | CpuOwner::Own | CpuOwner::Kernel)
    }
}

/// How certain it is that [`Sleep::owner_tid`] held the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// No owner is known.
    None,
    /// A lock held by readers; the kernel names only the last one.
    LastReader,
    Exact,
    /// The task that took a semaphore last and has not released it itself.
    LastHolder,
}

/// One place where the call slept; sleeps at the same site are one entry.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sleep {
    /// Kernel address of the site, 0 if the stack could not be captured.
    pub site: u64,
    /// Key of the whole kernel stack in the session's table.
    pub stack: u64,
    /// Total time blocked.
    pub blocked_ns: u64,
    /// The longest one.
    pub longest_ns: u64,
    /// What was waited on; its meaning depends on [`Sleep::resource_kind`].
    pub resource: u64,
    pub resource_kind_raw: u32,
    /// How many sleeps.
    pub count: u32,
    /// Most waiters when a sleep began, the sleeper included.
    pub waiters_entry: u32,
    /// Most waiters left when one ended, the sleeper not included.
    pub waiters_exit: u32,
    /// 0: not counted, 1: over the session's tasks, 2: over all tasks.
    pub waiters_scope: u32,
    /// What ended the last sleep; see [`Sleep::waker`].
    pub waker_kind: u32,
    /// 0 unless the waker is a task.
    pub waker_tid: u32,
    /// Who held the resource, 0 when not known.
    pub owner_tid: u32,
    pub waker_comm_raw: [u8; COMM_LEN],
    pub owner_comm_raw: [u8; COMM_LEN],
    /// See [`Sleep::owner`].
    pub owner_certainty: u32,
    /// Which kind of contended lock it was (`LCB_F_*` of the kernel, or its highest bit for a
    /// semaphore), 0 for anything else.
    pub lock_flags: u32,
    pub reserved: [u32; 4],
}

impl Sleep {
    /// What ended the last sleep here.
    pub fn waker(&self) -> Waker {
        match self.waker_kind {
            1 => Waker::Task,
            2 => Waker::HardIrq,
            3 => Waker::SoftIrq,
            _ => Waker::Unknown,
        }
    }

    /// The name of the task that ended the last sleep here; empty if it was not a task.
    pub fn waker_comm(&self) -> String {
        comm(&self.waker_comm_raw)
    }

    /// How certain it is who held the resource when the last sleep began.
    pub fn owner(&self) -> Owner {
        match self.owner_certainty {
            1 => Owner::LastReader,
            2 => Owner::Exact,
            3 => Owner::LastHolder,
            _ => Owner::None,
        }
    }

    /// The name of the task [`Sleep::owner_tid`]; empty if there is none.
    pub fn owner_comm(&self) -> String {
        comm(&self.owner_comm_raw)
    }

    /// What [`Sleep::resource`] is.
    pub fn resource_kind(&self) -> ResourceKind {
        match self.resource_kind_raw {
            1 => ResourceKind::Fd,
            2 => ResourceKind::Futex,
            3 => ResourceKind::Timer,
            4 => ResourceKind::Lock,
            5 => ResourceKind::Child,
            6 => ResourceKind::Disk,
            _ => ResourceKind::None,
        }
    }
}

/// What a [`TraceEntry`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceKind {
    /// A function that was entered and left.
    Function,
    /// A function that was entered; its return was not seen before the call ended.
    Unreturned,
    /// Where the sampling clock found the call, if functions cannot be probed.
    Sample,
    /// A tracepoint that the call passed, if functions cannot be probed: the function is its
    /// `__traceiter_NAME`.
    Event,
}

/// One kernel function entered during a call, in the order of entry (detail `trace`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceEntry {
    /// Its address in the kernel.
    pub function: u64,
    /// From its entry to its return, with all that it called; 0 unless the kind is a function.
    pub delta_ns: u32,
    /// The number of traced functions around it; for a sample, the depth of the stack.
    pub depth: u16,
    /// See [`TraceEntry::kind`].
    pub kind_raw: u16,
}

impl TraceEntry {
    /// The kind of the entry.
    pub fn kind(&self) -> TraceKind {
        match self.kind_raw {
            0 => TraceKind::Function,
            2 => TraceKind::Sample,
            3 => TraceKind::Event,
            _ => TraceKind::Unreturned,
        }
    }
}

/// The record of one call.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    /// Odd while the record is being written.
    pub sequence: u32,
    /// [`VERSION`].
    pub version: u16,
    /// The size of this struct as the writer knew it.
    pub size: u16,
    /// Call number, or [`CALL_USER`].
    pub call: i32,
    /// [`ABI_X86_64`] or [`ABI_IA32`].
    pub abi: u16,
    /// [`RESTARTED`], [`PARTIAL`], [`USER_TAP`], [`NESTED`], [`IRQ_MEASURED`],
    /// [`END_UNSEEN`], [`CPU_MEASURED`].
    pub flags: u16,
    /// As the kernel returned it: `-errno` on error.
    pub ret: i64,
    /// The first argument words.
    pub args: [u64; 3],
    /// On `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    pub wall_ns: u64,
    pub budget: Budget,
    pub faults_minor: u32,
    pub faults_major: u32,
    /// Entries of `sleeps` that are filled; see [`Record::sleeps`].
    pub sleeps_used: u16,
    /// Trace entries of the call; the slot keeps them until they are overwritten.
    pub trace_used: u16,
    /// Sleeps that did not fit; their time is still in the budget.
    pub sleeps_lost: u32,
    /// Ordinal of this call on this thread, from 1.
    pub number: u64,
    /// Functions entered (samples, events) that did not fit.
    pub trace_lost: u32,
    /// Number of the first trace entry; see [`Slot::trace_written`].
    pub trace_first: u32,
    pub outside: Outside,
    /// With [`CPU_MEASURED`]: the part of `runqueue_ns` and `preempted_ns` in which a cgroup's CPU quota
    /// was used up.
    pub throttled_ns: u64,
    /// With [`CPU_MEASURED`]: the part of the rest in which the largest owner had the CPU.
    pub cpu_owner_ns: u64,
    /// See [`Record::cpu_owner`].
    pub cpu_owner_kind: u32,
    /// 0 if the owner is not a process.
    pub cpu_owner_pid: u32,
    pub cpu_owner_comm_raw: [u8; COMM_LEN],
    pub reserved: [u64; 4],
    pub sleep_entries: [Sleep; SLEEPS_MAX],
}

impl Record {
    /// Where the call slept.
    pub fn sleeps(&self) -> &[Sleep] {
        &self.sleep_entries[..usize::from(self.sleeps_used).min(SLEEPS_MAX)]
    }

    /// Who had the CPU that the call waited for.
    pub fn cpu_owner(&self) -> CpuOwner {
        CpuOwner::of(self.cpu_owner_kind)
    }

    /// The name of the process [`Record::cpu_owner_pid`]; empty if there is none.
    pub fn cpu_owner_comm(&self) -> String {
        comm(&self.cpu_owner_comm_raw)
    }

    /// The call's name, such as `read`.
    pub fn call_name(&self) -> String {
        crate::calls::name(self.table_number())
    }

    /// The error that the call returned, if it did.
    pub fn errno(&self) -> Option<i32> {
        (-4095..0).contains(&self.ret).then(|| -(self.ret as i32))
    }

    /// The number under which the probes' tables and [`crate::calls::name`] know the call.
    pub(crate) fn table_number(&self) -> u32 {
        match (self.call, self.abi) {
            (CALL_USER, _) => crate::tables::CALL_NONE,
            (call, ABI_IA32) => {
                (call as u32).min(crate::tables::NO_SUCH_CALL) | crate::tables::CALL_IA32
            }
            (call, _) => (call as u32).min(crate::tables::NO_SUCH_CALL),
        }
    }
}

impl fmt::Debug for Record {
    /// Formats only the fields that are filled.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("number", &self.number)
            .field("call", &self.call_name())
            .field("ret", &self.ret)
            .field("args", &self.args)
            .field("flags", &self.flags)
            .field("start_ns", &self.start_ns)
            .field("wall_ns", &self.wall_ns)
            .field("budget", &self.budget)
            .field("throttled_ns", &self.throttled_ns)
            .field("cpu_owner", &self.cpu_owner())
            .field("cpu_owner_comm", &self.cpu_owner_comm())
            .field("faults_minor", &self.faults_minor)
            .field("faults_major", &self.faults_major)
            .field("sleeps", &self.sleeps())
            .field("sleeps_lost", &self.sleeps_lost)
            .finish()
    }
}

/// [`Totals::flags`]: the thread was last seen when it left the CPU.
pub const TOTALS_AWAY: u32 = 1 << 0;
/// [`Totals::flags`]: calls are in the tap's own words of the slot.
pub const TOTALS_USER_TAP: u32 = 1 << 1;
/// [`Totals::flags`]: interrupts are measured apart from CPU time.
pub const TOTALS_IRQ: u32 = 1 << 2;

/// The parts of a thread's life so far, for scopes; see `struct debox_totals`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Odd while it is being written.
    pub sequence: u32,
    /// [`TOTALS_AWAY`], [`TOTALS_USER_TAP`], [`TOTALS_IRQ`].
    pub flags: u32,
    /// When monitoring of the thread began.
    pub birth_ns: u64,
    /// The time up to which `life_ns` counts.
    pub stamp_ns: u64,
    /// Time in calls and between them, in the order of [`Budget`].
    pub life_ns: [u64; 6],
    /// Kernel tap: the part of `life_ns` in calls.
    pub calls_ns: [u64; 6],
    pub calls: u64,
    pub sleeps: u64,
    pub faults_minor: u64,
    pub faults_major: u64,
    /// Waits that no event showed.
    pub unseen_ns: u64,
    /// Switches that no event showed.
    pub unseen: u64,
}

/// What one thread shares with the probes: its controls and its last records.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slot {
    pub version: u32,
    /// The size of this struct.
    pub size: u32,
    /// Thread id; 0 when the slot is free.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// Not 0 while records are paused; written by the thread.
    pub paused: u32,
    /// At most this many entries in [`Record::sleeps`]; written by the thread.
    pub max_sleeps: u32,
    /// Written by the thread.
    pub max_trace: u32,
    /// Not 0 once the records are no longer written; written by the library.
    pub gone: u32,
    /// Records completed; the last is `history[(completed - 1) % HISTORY_MAX]`.
    pub completed: u64,
    pub tap_call: u32,
    pub tap_touched: u32,
    pub tap_foreign: u32,
    pub tap_handler: u32,
    pub tap_first_out_ns: u64,
    pub tap_last_in_ns: u64,
    pub tap_frame: u64,
    pub tap_faults: u32,
    pub tap_abandoned: u32,
    pub tap_unstamped: u64,
    pub tap_totals_ns: [u64; 6],
    pub tap_caller: u64,
    /// Trace entries so far, wrapping around; entry N is `trace[N % TRACE_MAX]` until entry
    /// N + `TRACE_MAX` is written.
    pub trace_written: u32,
    pub trace_open: u32,
    pub trace_open_lost: u32,
    pub trace_reserved: u32,
    /// The parts of the thread's life so far.
    pub totals: Totals,
    pub reserved2: [u64; 22],
    pub history: [Record; HISTORY_MAX],
    pub trace: [TraceEntry; TRACE_MAX],
    pub triggers_fired: u64,
    /// Calls that are left to the thread to decide (`struct undecided_call` of debox/probe/shared.h).
    pub triggers_undecided: [u64; 176],
    pub reserved3: [u64; 15],
}

/// A task's name, up to its terminating zero.
fn comm(bytes: &[u8; COMM_LEN]) -> String {
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(COMM_LEN);
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// The header's numbers, and the layouts that the compiler of the probes gave to the same structs.
mod layout {
    use std::mem::{offset_of, size_of};

    use super::{Budget, Outside, Record, Sleep, Slot, Totals, TraceEntry};
    use crate::skeleton::types;

    macro_rules! same {
        ($rust:ty, $c:ty, $size:literal, {
            $($field:ident = $c_field:ident @ $offset:literal),* $(,)?
        }) => {
            const _: () = assert!(size_of::<$rust>() == $size && size_of::<$c>() == $size);
            $(const _: () = assert!(
                offset_of!($rust, $field) == $offset && offset_of!($c, $c_field) == $offset
            );)*
        };
    }

    same!(Budget, types::debox_budget, 48, {
        cpu_ns = cpu_ns @ 0, blocked_ns = blocked_ns @ 8, runqueue_ns = runqueue_ns @ 16,
        preempted_ns = preempted_ns @ 24, irq_ns = irq_ns @ 32, outside_ns = outside_ns @ 40,
    });
    same!(Outside, types::debox_outside, 40, {
        handler_ns = handler_ns @ 0, stopped_ns = stopped_ns @ 8,
        exit_work_ns = exit_work_ns @ 16, preempted_ns = preempted_ns @ 24,
        other_ns = other_ns @ 32,
    });
    same!(TraceEntry, types::debox_trace_entry, 16, {
        function = function @ 0, delta_ns = delta_ns @ 8, depth = depth @ 12,
        kind_raw = kind @ 14,
    });
    same!(Sleep, types::debox_sleep, 128, {
        site = site @ 0, stack = stack @ 8, blocked_ns = blocked_ns @ 16,
        longest_ns = longest_ns @ 24, resource = resource @ 32,
        resource_kind_raw = resource_kind @ 40, count = count @ 44,
        waiters_entry = waiters_entry @ 48, waiters_exit = waiters_exit @ 52,
        waiters_scope = waiters_scope @ 56, waker_kind = waker_kind @ 60,
        waker_tid = waker_tid @ 64, owner_tid = owner_tid @ 68,
        waker_comm_raw = waker_comm @ 72, owner_comm_raw = owner_comm @ 88,
        owner_certainty = owner_certainty @ 104, lock_flags = lock_flags @ 108,
        reserved = reserved @ 112,
    });
    same!(Record, types::debox_record, 1280, {
        sequence = sequence @ 0, version = version @ 4, size = size @ 6, call = call @ 8,
        abi = abi @ 12, flags = flags @ 14, ret = ret @ 16, args = args @ 24,
        start_ns = start_ns @ 48, wall_ns = wall_ns @ 56, budget = budget @ 64,
        faults_minor = faults_minor @ 112, faults_major = faults_major @ 116,
        sleeps_used = sleeps_used @ 120, trace_used = trace_used @ 122,
        sleeps_lost = sleeps_lost @ 124, number = number @ 128, trace_lost = trace_lost @ 136,
        trace_first = trace_first @ 140, outside = outside @ 144,
        throttled_ns = throttled_ns @ 184, cpu_owner_ns = cpu_owner_ns @ 192,
        cpu_owner_kind = cpu_owner_kind @ 200, cpu_owner_pid = cpu_owner_pid @ 204,
        cpu_owner_comm_raw = cpu_owner_comm @ 208, reserved = reserved @ 224,
        sleep_entries = sleeps @ 256,
    });
    same!(Totals, types::debox_totals, 168, {
        sequence = sequence @ 0, flags = flags @ 4, birth_ns = birth_ns @ 8, stamp_ns = stamp_ns @ 16,
        life_ns = life_ns @ 24, calls_ns = calls_ns @ 72, calls = calls @ 120, sleeps = sleeps @ 128,
        faults_minor = faults_minor @ 136, faults_major = faults_major @ 144,
        unseen_ns = unseen_ns @ 152, unseen = unseen @ 160,
    });
    same!(Slot, types::debox_slot, 16384, {
        version = version @ 0, size = size @ 4, tid = tid @ 8, tgid = tgid @ 12,
        paused = paused @ 16, max_sleeps = max_sleeps @ 20, max_trace = max_trace @ 24,
        gone = gone @ 28, completed = completed @ 32, tap_call = tap_call @ 40,
        tap_touched = tap_touched @ 44, tap_foreign = tap_foreign @ 48,
        tap_handler = tap_handler @ 52, tap_first_out_ns = tap_first_out_ns @ 56,
        tap_last_in_ns = tap_last_in_ns @ 64, tap_frame = tap_frame @ 72,
        tap_faults = tap_faults @ 80, tap_abandoned = tap_abandoned @ 84,
        tap_unstamped = tap_unstamped @ 88, tap_totals_ns = tap_totals_ns @ 96,
        tap_caller = tap_caller @ 144, trace_written = trace_written @ 152,
        trace_open = trace_open @ 156, trace_open_lost = trace_open_lost @ 160,
        trace_reserved = trace_reserved @ 164, totals = totals @ 168,
        reserved2 = reserved2 @ 336, history = history @ 512,
        trace = trace @ 10752, triggers_fired = triggers_fired @ 14848,
        triggers_undecided = triggers_undecided @ 14856, reserved3 = reserved3 @ 16264,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_from_values() {
        let record = |ret| Record {
            ret,
            ..Record::default()
        };
        assert_eq!(record(0).errno(), None);
        assert_eq!(record(-9).errno(), Some(9));
        assert_eq!(record(-4095).errno(), Some(4095));
        assert_eq!(record(-4096).errno(), None);
        assert_eq!(record(1 << 40).errno(), None);
    }

    #[test]
    fn names_stop_at_their_zero() {
        let mut sleep = Sleep::default();
        assert_eq!(sleep.waker_comm(), "");
        sleep.waker_comm_raw[..3].copy_from_slice(b"abc");
        assert_eq!(sleep.waker_comm(), "abc");
        sleep.waker_comm_raw = [b'x'; COMM_LEN];
        assert_eq!(sleep.waker_comm().len(), COMM_LEN);
    }

    #[test]
    fn more_sleeps_than_there_is_room_for_are_not_believed() {
        let record = Record {
            sleeps_used: 99,
            ..Record::default()
        };
        assert_eq!(record.sleeps().len(), SLEEPS_MAX);
    }
}
