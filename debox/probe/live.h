/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * live.h: waits summed by thread, place, resource and owner, for a view that is refreshed.
 *
 * There are two tables. The engine makes the probes write to the other one, and reads and clears
 * the one that is no longer written (debox/engine/src/session/live.rs): so the cost of reading
 * depends on what happened since the last time, and no probe ever holds a row that is removed.
 */
#ifndef PROBE_LIVE_H
#define PROBE_LIVE_H

#include "state.h"
#include "waits.h"

struct live_key {
	__u64 stack;
	__u32 call, lock_flags;
	__u32 tid, tgid;
	__u32 owner, certainty;
	struct resource resource;
	__u32 events_at, reserved; /* of a wait for events: the epoll descriptor, + 1 */
};

struct live_row {
	__u64 count, blocked_ns, max_ns;
	/* Of the longest wait. */
	__u32 ownable, waker_kind, waker_tid, reserved;
	char waker_comm[DEBOX_COMM_LEN];
	struct owner owner;
	char comm[DEBOX_COMM_LEN];
};

struct live_table {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct live_key);
	__type(value, struct live_row);
};
struct live_table live_even SEC(".maps");
struct live_table live_odd SEC(".maps");

__u32 live_turn; /* set by the engine; odd or even */
__u64 live_lost, live_lost_ns;

static __always_inline void note_longest(struct live_row *row, struct thread *thread,
					 struct wait *wait)
{
	row->max_ns = thread->sleep_ns;
	row->waker_kind = thread->waker_kind;
	row->waker_tid = thread->waker_tid;
	__builtin_memcpy(row->waker_comm, thread->waker_comm, sizeof(row->waker_comm));
	if (!wait)
		return;
	row->ownable = wait->ownable;
	row->owner = wait->owner;
}

static __always_inline void add_to_live(void *table, struct live_key *key, struct thread *thread,
					struct task_struct *task, struct wait *wait)
{
	struct live_row *row = bpf_map_lookup_elem(table, key);
	struct live_row fresh = {};

	if (!row) {
		copy_comm(fresh.comm, task);
		bpf_map_update_elem(table, key, &fresh, BPF_NOEXIST);
		row = bpf_map_lookup_elem(table, key);
	}
	if (!row) {
		__sync_fetch_and_add(&live_lost, 1);
		__sync_fetch_and_add(&live_lost_ns, thread->sleep_ns);
		return;
	}
	__sync_fetch_and_add(&row->count, 1);
	__sync_fetch_and_add(&row->blocked_ns, thread->sleep_ns);
	if (thread->sleep_ns >= row->max_ns)
		note_longest(row, thread, wait);
}

/* Adds the sleep that has just ended. `wait` is 0 if its beginning was not seen. */
static __noinline int add_live(struct thread *thread, struct task_struct *task, struct wait *wait,
			       __u64 stack)
{
	struct live_key key = {
		.stack = stack,
		.call = thread->call,
		.lock_flags = thread->lock_flags,
		.tid = thread->tid,
		.tgid = thread->tgid,
	};
	struct pt_regs *regs;

	if (is_epoll_wait(plain_call(thread))) {
		regs = (struct pt_regs *)bpf_task_pt_regs(task);
		if (regs)
			key.events_at = (__u32)regs->di + 1;
	}
	if (wait) {
		key.owner = wait->owner.tid;
		key.certainty = wait->owner.certainty;
		key.resource = wait->resource;
	}
	if (*(volatile __u32 *)&live_turn & 1)
		add_to_live(&live_odd, &key, thread, task, wait);
	else
		add_to_live(&live_even, &key, thread, task, wait);
	return 0;
}

#endif
