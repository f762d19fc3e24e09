/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * irq.h: interrupts that run on top of a monitored thread (detail "irq").
 *
 * Hard and soft interrupts nest. What counts is the time from the first entry to the last exit on a
 * CPU, and the gate passes only these two events on.
 *
 * Soft interrupts that a call raises itself and that run before it goes on, as with the loopback
 * device, are interrupts, too. Time that an interrupt takes before its first tracepoint and after
 * its last one stays in cpu.
 */
#ifndef PROBE_IRQ_H
#define PROBE_IRQ_H

#include "calls.h"

static __always_inline int irq_begins(void)
{
	struct thread *thread = thread_of(bpf_get_current_task_btf());

	/* Not while a probe is at work on the thread: that time is too short to matter. */
	if (!thread || thread->state != THREAD_LIVE || thread->busy || thread->mode != MODE_RUNNING)
		return 0;
	close_part(thread, PART_CPU, bpf_ktime_get_ns());
	thread->mode = MODE_IRQ;
	return 0;
}

static __always_inline int irq_ends(void)
{
	struct thread *thread = thread_of(bpf_get_current_task_btf());

	if (!thread || thread->mode != MODE_IRQ)
		return 0;
	close_part(thread, PART_IRQ, bpf_ktime_get_ns());
	thread->mode = MODE_RUNNING;
	if (want_records && (user_tap || thread->call == CALL_NONE))
		write_totals(thread, part_began(thread), false);
	return 0;
}

#define IRQ_PAIR(name)                                                                             \
	SEC("tp_btf/" #name "_entry") int on_##name##_entry(void *ctx)                             \
	{                                                                                          \
		return irq_begins();                                                               \
	}                                                                                          \
	SEC("tp_btf/" #name "_exit") int on_##name##_exit(void *ctx)                               \
	{                                                                                          \
		return irq_ends();                                                                 \
	}

IRQ_PAIR(irq_handler)
IRQ_PAIR(softirq)
IRQ_PAIR(local_timer)
IRQ_PAIR(reschedule)
IRQ_PAIR(call_function)
IRQ_PAIR(call_function_single)

#endif
