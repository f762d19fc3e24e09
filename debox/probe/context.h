/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * context.h: whether a probe runs in a task's own context or in an interrupt on top of it.
 *
 * The kernel keeps that in a per-CPU counter whose address it gives to BPF only if it was built
 * with all symbols. But the counter's offset in the per-CPU area is in the kernel's BTF, and so is
 * that of the CPU's run queue, to which the current task points: the address of the counter follows
 * from these. The per-CPU pointer to the current task is read the same way and must match, else the
 * context is unknown.
 */
#ifndef PROBE_CONTEXT_H
#define PROBE_CONTEXT_H

#include "kernel.h"

/* Offsets in the per-CPU area, from the kernel's BTF; all zero when they are not there. */
const volatile __u64 runqueues_offset;
const volatile __u64 current_task_offset;
const volatile __u64 preempt_count_offset;

/* include/linux/preempt.h: fields of the counter. That of interrupts has moved (kernel.rs). */
#define SERVING_SOFTIRQ 0x000100
const volatile __u32 hardirq_or_nmi = 0xff0000;

/* The current CPU's preemption counter, or -1. */
static __always_inline int preempt_count(struct task_struct *current)
{
	__u64 area, task;
	int count;

	if (!runqueues_offset || !bpf_core_field_exists(current->se.cfs_rq))
		return -1;
	area = (__u64)BPF_CORE_READ(current, se.cfs_rq, rq) - runqueues_offset;
	if (bpf_probe_read_kernel(&task, sizeof(task), (void *)(area + current_task_offset)) ||
	    task != (__u64)bpf_get_current_task())
		return -1;
	if (bpf_probe_read_kernel(&count, sizeof(count), (void *)(area + preempt_count_offset)))
		return -1;
	return count;
}

/*
 * Whether the current task itself runs, without an interrupt on top of it; false if that is not
 * known.
 */
static __always_inline bool is_own_context(struct task_struct *current)
{
	int count = preempt_count(current);

	return count != -1 && !(count & (hardirq_or_nmi | SERVING_SOFTIRQ));
}

/*
 * The kernel skips a program on a CPU where that program is running already. Up to 6.18 tracepoints
 * disable preemption, so only an interrupt can hit a running program, and only the interrupt's
 * event is skipped. Set once disabled preemption has been observed.
 */
bool tracepoints_keep_cpu;
#define PREEMPT_DISABLED 0x0000ff

/* To be called where the kernel itself could be preempted. */
static __always_inline void note_preemption(struct task_struct *current)
{
	int count = tracepoints_keep_cpu ? -1 : preempt_count(current);

	if (count != -1 && (count & PREEMPT_DISABLED))
		tracepoints_keep_cpu = true;
}

#endif
