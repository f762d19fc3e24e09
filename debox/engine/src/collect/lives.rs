//! Threads' lives: closes what is open when a session stops, and adds up a life's parts.

use crate::options::Tap;
use crate::report::Totals;
use crate::tables::{self, add, total, types, CALL_NONE};

use super::possible::is_possible;

/// Closes the open part of a thread that is still alive: for the report, it ends at the stop.
pub(crate) fn close_open_part(thread: &mut types::thread, stopped_ns: u64, tap: Tap) {
    let part = match thread.mode {
        tables::MODE_BLOCKED => tables::PART_BLOCKED,
        tables::MODE_RUNQUEUE => tables::PART_RUNQUEUE,
        tables::MODE_PREEMPTED => tables::PART_PREEMPTED,
        tables::MODE_IRQ => tables::PART_IRQ,
        _ => tables::PART_CPU,
    };
    if tap == Tap::User {
        add(
            &mut thread.between[part],
            stopped_ns.saturating_sub(thread.stamp_ns),
        );
        thread.begin_ns = thread.stamp_ns;
        return;
    }
    let from = if thread.has_parts != 0 {
        thread.stamp_ns
    } else {
        thread.begin_ns
    };
    add(&mut thread.parts[part], stopped_ns.saturating_sub(from));
    let open = if thread.call == CALL_NONE {
        &mut thread.between
    } else {
        &mut thread.in_calls
    };
    for (sum, part) in open.iter_mut().zip(thread.parts) {
        add(sum, part);
    }
}

/// Subtracts a thread's calls from its life. Under the user tap the probes keep a thread's whole
/// life, and the thread itself its calls. Corresponds to `close_tapped_life` of
/// debox/probe/usertap.h, for a thread that has not ended. Impossible values are refused later
/// ([`super::possible`]).
pub(crate) fn take_calls_out_of_life(
    thread: &mut types::thread,
    slot: Option<&types::debox_slot>,
    stopped_ns: u64,
) {
    let Some(slot) = slot else { return };
    thread.calls = slot.completed;
    thread.unstamped = u32::try_from(slot.tap_unstamped).unwrap_or(u32::MAX);
    thread.in_calls.copy_from_slice(&slot.tap_totals_ns);
    if !is_possible(thread, stopped_ns) {
        return;
    }
    let mut outside = slot.tap_totals_ns[tables::PART_OUTSIDE];
    thread.in_calls[tables::PART_OUTSIDE] = outside;
    for part in tables::PART_BLOCKED..tables::PART_OUTSIDE {
        thread.outside[part] = thread.outside[part].min(outside);
        outside -= thread.outside[part];
    }
    thread.outside[tables::PART_CPU] = outside;
    let mut owed = 0;
    for part in (0..tables::PART_OUTSIDE).rev() {
        thread.in_calls[part] = slot.tap_totals_ns[part];
        let taken = total(&[thread.in_calls[part], thread.outside[part], owed]);
        owed = taken.saturating_sub(thread.between[part]);
        thread.between[part] = thread.between[part].saturating_sub(taken);
    }
}

/// The totals of a life. `irq`, `outside`: whether these were measured. The hypervisor's time is
/// not known for every life.
pub(super) fn life_of(between: &[u64], in_calls: &[u64], irq: bool, outside: bool) -> Totals {
    let both = |part: usize| between[part].saturating_add(in_calls[part]);
    Totals {
        wall_ns: total(between).saturating_add(total(in_calls)),
        user_cpu_ns: between[tables::PART_CPU],
        kernel_cpu_ns: in_calls[tables::PART_CPU],
        blocked_ns: both(tables::PART_BLOCKED),
        runqueue_ns: both(tables::PART_RUNQUEUE),
        preempted_ns: both(tables::PART_PREEMPTED),
        irq_ns: irq.then_some(both(tables::PART_IRQ)),
        outside_ns: outside.then_some(both(tables::PART_OUTSIDE)),
        stolen_ns: None,
    }
}

pub(super) fn add_totals(sum: &mut Totals, life: &Totals) {
    let add_measured = |sum: &mut Option<u64>, value: Option<u64>| {
        if let Some(value) = value {
            *sum = Some(sum.unwrap_or(0).saturating_add(value));
        }
    };
    add(&mut sum.wall_ns, life.wall_ns);
    add(&mut sum.user_cpu_ns, life.user_cpu_ns);
    add(&mut sum.kernel_cpu_ns, life.kernel_cpu_ns);
    add(&mut sum.blocked_ns, life.blocked_ns);
    add(&mut sum.runqueue_ns, life.runqueue_ns);
    add(&mut sum.preempted_ns, life.preempted_ns);
    add_measured(&mut sum.irq_ns, life.irq_ns);
    add_measured(&mut sum.outside_ns, life.outside_ns);
    add_measured(&mut sum.stolen_ns, life.stolen_ns);
}
