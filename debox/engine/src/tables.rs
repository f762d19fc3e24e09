//! The probes' tables in Rust. The layouts are generated from the probes' own BTF, so they cannot
//! drift; C macros are repeated here.

pub use debox_model::calls::{CALL_IA32, CALL_NONE};

pub(crate) use crate::skeleton::types;

/// Added to the numbers of calls that the user tap did not see.
pub const CALL_UNTAPPED: u32 = 0x20000;

pub(crate) const ROWS: u32 = 512;
/// All call numbers from here on share the last of those rows.
pub(crate) const NO_SUCH_CALL: u32 = 0xffff;

pub(crate) const PART_CPU: usize = 0;
pub(crate) const PART_BLOCKED: usize = 1;
pub(crate) const PART_RUNQUEUE: usize = 2;
pub(crate) const PART_PREEMPTED: usize = 3;
pub(crate) const PART_IRQ: usize = 4;
pub(crate) const PART_OUTSIDE: usize = 5;
pub(crate) const PARTS: usize = 6;

pub(crate) const MODE_BLOCKED: u32 = 1;
pub(crate) const MODE_RUNQUEUE: u32 = 2;
pub(crate) const MODE_PREEMPTED: u32 = 3;
pub(crate) const MODE_IRQ: u32 = 4;

pub(crate) const THREAD_ARMED: u32 = 1;
pub(crate) const THREAD_LIVE: u32 = 2;
pub(crate) const THREAD_PARTIAL: u32 = 1 << 1;
pub(crate) const THREAD_LEFT: u32 = 1 << 4;
pub(crate) const THREAD_FILTERED: u32 = 1 << 5;
pub(crate) const THREAD_END_UNSEEN: u32 = 1 << 6;
pub(crate) const THREAD_STAMPED: u32 = 1 << 7;
/// Not set by the probes: the thread's sums of its calls could not be true.
pub(crate) const THREAD_REFUSED: u32 = 1 << 31;

pub(crate) const EVENT_THREAD_ENDED: u32 = 1;
pub(crate) const EVENT_CALL_SITE: u32 = 2;
pub(crate) const EVENT_RESOURCE: u32 = 3;
pub(crate) const EVENT_DIRECTORY: u32 = 4;
pub(crate) const EVENT_SITE: u32 = 5;
pub(crate) const EVENT_TRIGGER: u32 = 6;
pub(crate) const EVENT_TITLE: u32 = 7;

pub(crate) const TITLE_OF_PROGRAM: u32 = 1;
pub(crate) const TITLE_AT_END: u32 = 2;
pub(crate) const TITLE_OF_PARENT: u32 = 3;

pub(crate) const KEPT_CALL: u32 = 1;
pub(crate) const KEPT_SLEEP: u32 = 2;
pub(crate) const KEPT_STAMPS: u32 = 3;
pub(crate) const KEPT_CPU: u32 = 4;

pub(crate) const WAKER_TASK: u32 = 1;
pub(crate) const WAKER_HARDIRQ: u32 = 2;
pub(crate) const WAKER_SOFTIRQ: u32 = 3;

pub(crate) const RESOURCE_NONE: u32 = 0;
pub(crate) const RESOURCE_FD: u32 = 1;
pub(crate) const RESOURCE_FUTEX: u32 = 2;
pub(crate) const RESOURCE_TIMER: u32 = 3;
pub(crate) const RESOURCE_LOCK: u32 = 4;
pub(crate) const RESOURCE_CHILD: u32 = 5;
pub(crate) const RESOURCE_DISK: u32 = 6;
/// One of several descriptors; not in `enum debox_resource_kind`.
pub(crate) const RESOURCE_SEVERAL: u32 = 7;

pub(crate) const OWNER_LAST_READER: u32 = 1;
pub(crate) const OWNER_EXACT: u32 = 2;
pub(crate) const OWNER_LAST_HOLDER: u32 = 3;

pub(crate) const DOING_ON_CPU: u32 = 1;
pub(crate) const DOING_WAITING_FOR_CPU: u32 = 2;
pub(crate) const DOING_ASLEEP: u32 = 3;

pub(crate) const CPU_OWNER_TASK: u32 = 1;
pub(crate) const CPU_OWNER_KERNEL: u32 = 2;
pub(crate) const CPU_OWNER_QUOTA: u32 = 4;
/// What is known about the owner of the CPU, for predicates.
pub(crate) const OWNER_NAMED: u32 = 1;
pub(crate) const OWNER_UNNAMED: u32 = 2;
pub(crate) const CPU_RUN_REAL_TIME: u32 = 1 << 2;

pub(crate) const CHAIN_CYCLE: u32 = 1;
pub(crate) const CHAIN_TOO_LONG: u32 = 2;

pub(crate) const CHECK_OFFSET: u32 = 0xffff;
pub(crate) const CHECK_FRAME_POINTER: u32 = 1 << 16;
pub(crate) const CHECK_STACK_POINTER: u32 = 1 << 17;
pub(crate) const CHECK_RELATIVE: u32 = 1 << 18;
pub(crate) const WAY_INTERRUPTED: u8 = 0x80;

pub(crate) const RAW_STACK: u32 = 0x100;
pub(crate) const WRAPPER_FROM_SP: u32 = 1;
pub(crate) const WRAPPER_FROM_BP: u32 = 2;

pub(crate) const WAITERS_MONITORED: u32 = 1;
pub(crate) const WAITERS_ALL: u32 = 2;

pub(crate) const LOCK_READ: u32 = 1 << 1;
pub(crate) const LOCK_WRITE: u32 = 1 << 2;
pub(crate) const LOCK_RT: u32 = 1 << 3;
pub(crate) const LOCK_PERCPU: u32 = 1 << 4;
pub(crate) const LOCK_MUTEX: u32 = 1 << 5;
pub(crate) const LOCK_SEMAPHORE: u32 = 1 << 31;
pub(crate) const LOCK_TIMED_OUT: u32 = 1 << 30;

/// What a thread waits for when the report is made, from its `struct wait`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OpenWait {
    pub resource: types::resource,
    pub owner: types::owner,
    pub lock_flags: u32,
    /// Not 0: the resource is of a kind that can be held.
    pub ownable: u32,
}

/// Adds to a sum. Processes can write to some of the summands: a sum that would overflow saturates,
/// which is visibly wrong, instead of wrapping around.
pub(crate) fn add(sum: &mut u64, value: u64) {
    *sum = sum.saturating_add(value);
}

/// The values that are possible for one thread in some time: processes can write to their counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Possible {
    time_ns: u64,
    calls: u64,
}

impl Possible {
    /// Limits for the time that has passed. The program's clock follows the kernel's only by its rate.
    /// If a thread is switched, both clocks are used, which may make a short call seem some percent
    /// longer.
    pub fn within(passed_ns: u64) -> Possible {
        const SLACK_NS: u64 = 10_000_000;
        /// No processor enters and leaves the kernel in less time.
        const SHORTEST_CALL_NS: u64 = 8;
        let time_ns = passed_ns
            .saturating_add(passed_ns / 8)
            .saturating_add(SLACK_NS);
        Possible {
            time_ns,
            calls: time_ns / SHORTEST_CALL_NS,
        }
    }

    pub fn has_time(&self, ns: u64) -> bool {
        ns <= self.time_ns
    }

    pub fn has_calls(&self, count: u64) -> bool {
        count <= self.calls
    }

    /// Whether `some` can be a part of `all`. The two are counted one after the other, and a jump may
    /// come in between.
    pub fn is_part(some: u64, all: u64) -> bool {
        some <= all.saturating_add(all / 8).saturating_add(64)
    }
}

/// Minor and major faults of a thread that has ended, those in its calls included.
pub(crate) fn faults_of_life(thread: &types::thread) -> (u64, u64) {
    let minor = thread
        .end_faults_minor
        .saturating_sub(thread.birth_faults_minor);
    let major = thread
        .end_faults_major
        .saturating_sub(thread.birth_faults_major);
    (minor, major)
}

/// Adds a thread's life to the sum of several.
pub(crate) fn add_life(sum: &mut types::thread, thread: &types::thread) {
    for part in 0..PARTS {
        add(&mut sum.between[part], thread.between[part]);
        add(&mut sum.in_calls[part], thread.in_calls[part]);
        add(&mut sum.outside[part], thread.outside[part]);
    }
    add(&mut sum.between_spin_ns, thread.between_spin_ns);
    add(&mut sum.stolen_ns, thread.stolen_ns);
    add(&mut sum.calls, thread.calls);
    sum.unstamped = sum.unstamped.saturating_add(thread.unstamped);
    add(&mut sum.call_faults_minor, thread.call_faults_minor);
    add(&mut sum.call_faults_major, thread.call_faults_major);
    let (minor, major) = faults_of_life(thread);
    add(&mut sum.end_faults_minor, minor);
    add(&mut sum.end_faults_major, major);
    sum.between_max_ns = sum.between_max_ns.max(thread.between_max_ns);
}

/// The sum of parts, saturating as in [`add`].
pub(crate) fn total(parts: &[u64]) -> u64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(*part))
}

const SUB_BUCKET_BITS: u32 = 3;
const BUCKET_LOW_BITS: u32 = 5;

/// The highest value that falls into a bucket of the probes' histogram (`bucket_of` in C).
pub(crate) fn bucket_upper_edge(bucket: usize) -> u64 {
    if bucket == 0 {
        return (1 << BUCKET_LOW_BITS) - 1;
    }
    let bucket = bucket as u64 - 1;
    let log = (bucket >> SUB_BUCKET_BITS) + u64::from(BUCKET_LOW_BITS);
    let sub = bucket & ((1 << SUB_BUCKET_BITS) - 1);
    let width = 1u64 << (log - u64::from(SUB_BUCKET_BITS));
    (1u64 << log) + (sub + 1) * width - 1
}

/// Reads a value (a plain C struct of the probes) from the bytes of a map.
pub(crate) fn read_value<T: Copy>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < std::mem::size_of::<T>() {
        return None;
    }
    // SAFETY: T is a plain C struct of integers, any bytes are a valid value, and there are enough.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}

/// The bytes of a value, for a map.
pub(crate) fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: T is a plain C struct of integers without padding, alive as long as the slice.
    unsafe { std::slice::from_raw_parts((value as *const T).cast(), std::mem::size_of::<T>()) }
}

/// A task's name, up to its terminating zero.
pub(crate) fn text(bytes: &[i8]) -> String {
    let bytes: Vec<u8> = bytes
        .iter()
        .map(|b| *b as u8)
        .take_while(|b| *b != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn comm(bytes: &[i8]) -> String {
    text(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `bucket_of` of debox/probe/buckets.h, to check its inverse.
    fn bucket_of(ns: u64) -> usize {
        let log = 63 - ns.max(1).leading_zeros();
        if log < BUCKET_LOW_BITS {
            return 0;
        }
        (((log - BUCKET_LOW_BITS) << SUB_BUCKET_BITS) as usize)
            + ((ns >> (log - SUB_BUCKET_BITS)) & 7) as usize
            + 1
    }

    #[test]
    fn upper_edges_hold_their_bucket_within_the_stated_error() {
        for ns in (0..1000).chain((1..40).flat_map(|b| [(1 << b) - 1, 1 << b, (1 << b) + 1])) {
            let edge = bucket_upper_edge(bucket_of(ns));
            assert!(edge >= ns, "{ns} is above its bucket's edge {edge}");
            assert_eq!(bucket_of(edge), bucket_of(ns), "{ns} and its edge {edge}");
            if ns >= 32 {
                assert!(edge as f64 <= ns as f64 * 1.125, "{ns}: {edge}");
            }
        }
    }

    #[test]
    fn short_values_are_refused() {
        assert!(read_value::<u64>(&[0; 7]).is_none());
        assert_eq!(read_value::<u64>(&[1, 0, 0, 0, 0, 0, 0, 0]), Some(1));
    }
}
