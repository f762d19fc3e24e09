/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * totals.h: how a thread has spent its time, kept where the thread can read it at any moment.
 *
 * The thread reads in user mode only, so the sums are written at the events after which it may be
 * there: the end of a call and, between calls, its return to the CPU. The time since then is CPU
 * time, which the thread adds from its own reading of the clock. The sums are also written when the
 * thread leaves the CPU between calls: if its return is not shown, the reader can tell.
 */
#ifndef PROBE_TOTALS_H
#define PROBE_TOTALS_H

#include "record.h"

static __always_inline void begin_totals(struct debox_totals *totals)
{
	totals->sequence |= 1;
	barrier();
}

static __always_inline void end_totals(struct debox_totals *totals)
{
	barrier();
	totals->sequence++;
}

/* Writes all totals. `stamp` is when the open part began. */
static __noinline int write_totals(struct thread *thread, __u64 stamp, bool is_away)
{
	struct debox_slot *slot = slot_of(thread, thread->index);
	struct debox_totals *totals;

	if (!slot)
		return 0;
	totals = &slot->totals;
	begin_totals(totals);
	totals->flags = (is_away ? DEBOX_TOTALS_AWAY : 0) | (user_tap ? DEBOX_TOTALS_USER_TAP : 0) |
			(want_irq ? DEBOX_TOTALS_IRQ : 0);
	totals->birth_ns = thread->birth_ns;
	totals->stamp_ns = stamp;
	for (int i = 0; i < PARTS; i++) {
		totals->calls_ns[i] = thread->in_calls[i];
		totals->life_ns[i] = thread->between[i] + thread->in_calls[i] + thread->parts[i];
	}
	totals->calls = thread->calls;
	totals->faults_minor = thread->call_faults_minor;
	totals->faults_major = thread->call_faults_major;
	end_totals(totals);
	return 0;
}

/* A call ended in which nothing but CPU time passed. */
static __always_inline void total_plain_call(struct thread *thread, __u64 stamp)
{
	struct debox_slot *slot = slot_of(thread, thread->index);
	struct debox_totals *totals;

	if (!slot)
		return;
	totals = &slot->totals;
	begin_totals(totals);
	totals->stamp_ns = stamp;
	totals->calls_ns[PART_CPU] = thread->in_calls[PART_CPU];
	totals->life_ns[PART_CPU] = thread->between[PART_CPU] + thread->in_calls[PART_CPU];
	totals->calls = thread->calls;
	end_totals(totals);
}

/* Counts one more sleep. The totals are written again before the thread reads them. */
static __always_inline void total_sleep(struct thread *thread)
{
	struct debox_slot *slot = slot_of(thread, thread->index);

	if (slot)
		slot->totals.sleeps++;
}

/* Counts a switch that no event showed, and its time. The totals are written again afterwards. */
static __always_inline void total_unseen(struct thread *thread, __u64 ns)
{
	struct debox_slot *slot = slot_of(thread, thread->index);

	if (!slot)
		return;
	slot->totals.unseen++;
	slot->totals.unseen_ns += ns;
}

#endif
