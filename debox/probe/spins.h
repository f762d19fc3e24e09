/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * spins.h: the kernel locks for which calls spun, and where these were taken.
 *
 * The lock's name and the kernel stack are found once for each call and lock, and when the spinning
 * begins: at its end the lock is held already, and others wait for it.
 */
#ifndef PROBE_SPINS_H
#define PROBE_SPINS_H

#include "resources.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct spin_key);
	__type(value, struct spin_row);
} spin_rows SEC(".maps");

/*
 * The kernel stack of the current task, from the probe on down; the engine leaves out the frames of
 * the event itself. Preemption is off, so no other probe uses the scratch.
 */
static __noinline __u64 take_own_kernel_stack(void *ctx)
{
	struct stack_scratch *scratch;
	__u32 zero = 0;

	scratch = bpf_map_lookup_elem(&stack_scratch, &zero);
	if (!scratch)
		return 0;
	__builtin_memset(scratch->stack.frames, 0, sizeof(scratch->stack.frames));
	if (bpf_get_stack(ctx, scratch->stack.frames, sizeof(scratch->stack.frames), 0) <= 0)
		return 0;
	scratch->stack.args[0] = scratch->stack.args[1] = scratch->stack.args[2] = 0;
	return keep_stack(&scratch->stack, 0);
}

/* A lock for which this call has not spun before. */
static __noinline int add_spin(struct thread *thread, struct task_struct *task, void *ctx,
			       struct spin_key *key)
{
	struct wait *wait = wait_at(thread->index);
	struct spin_row fresh = {};
	struct resource before;

	if (wait) {
		/* The thread is not waiting; but what it waited for last may still be needed. */
		before = wait->resource;
		__builtin_memset(&wait->resource, 0, sizeof(wait->resource));
		name_lock(wait, thread, task, key->lock);
		fresh.resource = wait->resource;
		wait->resource = before;
	}
	fresh.stack = take_own_kernel_stack(ctx);
	if (bpf_map_update_elem(&spin_rows, key, &fresh, BPF_NOEXIST) == -7 /* E2BIG */)
		COUNT_LOST(rows);
	return 0;
}

static __always_inline void name_spin(struct thread *thread, struct task_struct *task, void *ctx,
				      void *lock, __u32 flags)
{
	struct spin_key key = {.lock = (__u64)lock, .call = thread->call, .flags = flags};

	if (want_report && !bpf_map_lookup_elem(&spin_rows, &key))
		add_spin(thread, task, ctx, &key);
}

static __noinline int count_spin(struct thread *thread, __u64 lock, __u64 ns)
{
	struct spin_key key = {.lock = lock, .call = thread->call, .flags = thread->spin_flags};
	struct spin_row *row = want_report ? bpf_map_lookup_elem(&spin_rows, &key) : 0;

	if (!row)
		return 0;
	__sync_fetch_and_add(&row->count, 1);
	__sync_fetch_and_add(&row->ns, ns);
	update_max(&row->max_ns, ns);
	return 0;
}

#endif
