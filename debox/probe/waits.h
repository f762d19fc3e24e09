/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * waits.h: one wait of a monitored thread, from its beginning to its end: what it is for, who holds
 * it up, and its place in a chain of waits.
 */
#ifndef PROBE_WAITS_H
#define PROBE_WAITS_H

#include "chains.h"
#include "owners.h"
#include "resources.h"
#include "counted.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct owner_key);
	__type(value, struct owner_row);
} owner_rows SEC(".maps");

/* The thread leaves the CPU to sleep: what has to be read of it is read while it is still there. */
static __noinline int begin_wait(struct thread *thread, struct task_struct *task)
{
	struct wait *wait = wait_at(thread->index);
	__u64 lock = thread->flags & THREAD_LOCK ? thread->resource : 0;

	if (!wait) {
		thread->resource = lock;
		return 0;
	}
	if (wait->tid != thread->tid) {
		wait->tid = thread->tid;
		wait->logged = 0;
		wait->bio_device = 0;
		wait->blocked_ns = 0;
		wait->later.count = 0;
	}
	wait->fd = FD_NONE;
	wait->ownable = 0;
	wait->begin_ns = part_began(thread);
	__builtin_memset(&wait->resource, 0, sizeof(wait->resource));
	__builtin_memset(&wait->owner, 0, sizeof(wait->owner));
	if (lock)
		name_lock(wait, thread, task, lock);
	else
		thread->resource = counted_resource(thread, name_argument(wait, thread, task));
	if (wait->resource.kind == DEBOX_RESOURCE_NONE)
		name_disk(wait, task);
	wait->bio_device = 0;
	find_owner(wait, thread, task, lock);
	announce_resource(wait, thread, task);
	return 0;
}

/*
 * The current thread leaves the CPU. Not static, so that it is verified once, whatever went before;
 * for the same reason it takes no task.
 */
__noinline int begin_own_wait(struct thread *thread)
{
	if (!thread)
		return 0;
	return begin_wait(thread, bpf_get_current_task_btf());
}

/*
 * Counts the thread among those that sleep on the same resource. For a lock, too, if it was not
 * seen when the thread began to wait: who else had come before is not known.
 */
static __always_inline void count_sleeper(struct thread *thread)
{
	if (!thread->resource || (for_others && thread->flags & THREAD_LOCK))
		return;
	thread->waiters_entry = add_waiter(thread->resource);
	if (thread->waiters_entry)
		thread->flags |= THREAD_COUNTED;
	if (thread->flags & THREAD_LOCK)
		thread->waiters_entry += count_lock_waiters(thread->resource);
}

static __noinline int add_owner(struct thread *thread, struct wait *wait, __u64 stack)
{
	__u64 ns = thread->sleep_ns;
	struct owner *owner = &wait->owner;
	struct owner_key key = {
		.stack = stack,
		.call = thread->call,
		.lock_flags = thread->lock_flags,
		.owner_stack = owner->stack,
		.owner_call = owner->call,
		.owner_lock_flags = owner->lock_flags,
		.certainty = owner->certainty,
		.doing = owner->doing,
		.tid = owner->tid,
	};
	struct owner_row *row = bpf_map_lookup_elem(&owner_rows, &key);
	struct owner_row fresh = {.count = 1, .blocked_ns = ns};

	if (!row) {
		__builtin_memcpy(fresh.comm, owner->comm, sizeof(fresh.comm));
		if (!bpf_map_update_elem(&owner_rows, &key, &fresh, BPF_NOEXIST))
			return 0;
		row = bpf_map_lookup_elem(&owner_rows, &key); /* another CPU was first */
	}
	if (!row) {
		COUNT_LOST(rows);
		return 0;
	}
	__sync_fetch_and_add(&row->count, 1);
	__sync_fetch_and_add(&row->blocked_ns, ns);
	return 0;
}

/*
 * The sleep at `stack` has ended, and sleep_ns says how long it was. Each part is a function of its
 * own, because the frames of all functions that are open at once may take 512 bytes together, and
 * older kernels (6.1) round each up to a multiple of 32.
 */
static __noinline int close_wait(struct thread *thread, struct task_struct *task, struct wait *wait,
				 __u64 stack)
{
	if (want_report) {
		add_resource(thread, task, wait, stack);
		if (wait->ownable && !want_live)
			add_owner(thread, wait, stack);
		if (!want_live && wait->owner.certainty != DEBOX_OWNER_NONE)
			add_chain(thread, task, wait, stack);
	}
	log_sleep(wait, thread, stack);
	return 0;
}

/*
 * Returns the wait that has ended, if its beginning was seen. For a sleep whose end was not seen
 * (`has_stack` is false) only its duration is kept: its place is not known.
 */
static __always_inline struct wait *end_wait(struct thread *thread, struct task_struct *task,
					     __u64 stack, bool has_stack)
{
	struct wait *wait = wait_at(thread->index);

	if (!wait || wait->tid != thread->tid)
		return 0; /* it slept already when its monitoring began */
	if (has_stack)
		close_wait(thread, task, wait, stack);
	else
		log_sleep(wait, thread, stack);
	return wait;
}

#endif
