/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * chains.h: chains of waits: a thread waited for a holder that meanwhile waited for another one.
 *
 * Each monitored thread keeps a log of its last sleeps. When a wait ends that was held up by a
 * known holder, the holder's sleeps within the wait show how long and where the holder itself was
 * blocked. The longest of them may have a holder of its own, and so on for a few links. For a
 * holder that is not monitored, all that is known is what it was doing when the wait began.
 */
#ifndef PROBE_CHAINS_H
#define PROBE_CHAINS_H

#include "owners.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct chain_row);
} chain_rows SEC(".maps");

/* The chain that is being followed; used with interrupts off, inside the scheduler. */
struct chain_walk {
	struct chain_row row;
	struct owner next;	/* holder of the last link so far */
	__u64 begin_ns, end_ns; /* of the last link's wait */
	__u64 resource;		/* what it waited for */
	/* The longest of the holder's sleeps within it so far. */
	__u64 longest_ns, longest_begin_ns, longest_resource;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct chain_walk);
} chain_scratch SEC(".maps");

static __always_inline void log_sleep(struct wait *wait, struct thread *thread, __u64 stack)
{
	struct logged_sleep *slept = &wait->log[wait->logged % LOGGED_SLEEPS];

	wait->blocked_ns += thread->sleep_ns;
	slept->begin_ns = wait->begin_ns;
	slept->blocked_ns = thread->sleep_ns;
	slept->stack = stack;
	slept->resource = thread->resource;
	slept->call = thread->call;
	slept->lock_flags = thread->lock_flags;
	slept->owner = wait->owner;
	wait->logged++;
}

/* How much of a sleep lies within the wait that is being followed. */
static __always_inline __u64 overlap(struct chain_walk *walk, __u64 begin, __u64 end)
{
	if (begin < walk->begin_ns)
		begin = walk->begin_ns;
	if (end > walk->end_ns)
		end = walk->end_ns;
	return end > begin ? end - begin : 0;
}

/*
 * For a holder that is still asleep at the end of a wait that was given up: its site is not logged
 * yet.
 */
static __noinline __u64 stack_of_sleeper(__u32 tid, __u32 call)
{
	struct task_struct *task;
	__u64 site, stack = 0;

	/* With a broker, `tid` is not the number by which the kernel finds tasks. */
	if (for_others || !bpf_ksym_exists(bpf_task_from_pid))
		return 0;
	task = bpf_task_from_pid(tid);
	if (!task)
		return 0;
	if (!task->on_cpu)
		stack = take_kernel_stack(task, call, &site);
	bpf_task_release(task);
	return stack;
}

/*
 * A holder that waits for the same resource has released it before, so its sleeps from then on do
 * not count. Called for each of the holder's sleeps. Not static, so that it is verified once.
 */
__noinline int end_with_holding(struct chain_walk *walk, __u64 begin, __u64 resource)
{
	if (!walk)
		return 0;
	if (resource == walk->resource && begin >= walk->begin_ns && begin < walk->end_ns)
		walk->end_ns = begin;
	return 0;
}

/* Adds one of the holder's sleeps to its link. Not static, for the same reason. */
__noinline int add_holders_sleep(struct chain_walk *walk, struct chain_link *link,
				 struct logged_sleep *slept)
{
	__u64 ns;

	if (!walk || !link || !slept)
		return 0;
	ns = overlap(walk, slept->begin_ns, slept->begin_ns + slept->blocked_ns);
	link->blocked_ns += ns;
	if (ns <= walk->longest_ns)
		return 0;
	link->stack = slept->stack;
	link->call = slept->call;
	link->lock_flags = slept->lock_flags;
	walk->longest_ns = ns;
	walk->longest_begin_ns = slept->begin_ns;
	walk->longest_resource = slept->resource;
	walk->next = slept->owner;
	return 0;
}

/*
 * When the thread's open sleep ended; the end of the followed wait if it has not ended; 0 if there
 * is no open sleep.
 */
static __always_inline __u64 end_of_open_sleep(struct chain_walk *walk, struct thread *thread,
					       struct wait *wait)
{
	if (thread->mode == MODE_BLOCKED)
		return walk->end_ns;
	if (thread->mode == MODE_RUNQUEUE && thread->flags & THREAD_SLEPT)
		return wait->begin_ns + thread->sleep_ns;
	return 0;
}

/*
 * Adds the holder's own sleeps within the wait to its link; the longest one leads to the next link.
 */
static __always_inline void follow_sleeps(struct chain_walk *walk, struct chain_link *link,
					  struct thread *thread, struct wait *wait)
{
	__u64 end, ns = 0;

	walk->next.certainty = DEBOX_OWNER_NONE;
	link->measured = 1;
	if (wait->tid != thread->tid)
		return; /* it has never slept */
	for (__u32 i = 0; i < LOGGED_SLEEPS; i++) {
		if (i < wait->logged)
			end_with_holding(walk, wait->log[i].begin_ns, wait->log[i].resource);
	}
	walk->longest_ns = 0;
	walk->longest_begin_ns = 0;
	walk->longest_resource = 0;
	end = end_of_open_sleep(walk, thread, wait);
	if (end) {
		end_with_holding(walk, wait->begin_ns, thread->resource);
		ns = overlap(walk, wait->begin_ns, end);
	}
	if (ns) {
		link->blocked_ns = ns;
		link->call = thread->call;
		link->lock_flags = thread->lock_flags;
		link->stack = stack_of_sleeper(thread->tid, thread->call);
		walk->longest_ns = ns;
		walk->longest_begin_ns = wait->begin_ns;
		walk->longest_resource = thread->resource;
		walk->next = wait->owner;
	}
	for (__u32 i = 0; i < LOGGED_SLEEPS; i++) {
		if (i >= wait->logged)
			break;
		add_holders_sleep(walk, link, &wait->log[i]);
	}
	link->stack_ns = walk->longest_ns;
	if (walk->longest_begin_ns > walk->begin_ns)
		walk->begin_ns = walk->longest_begin_ns;
	walk->end_ns = walk->begin_ns + walk->longest_ns;
	walk->resource = walk->longest_resource;
}

/* Adds the holder of the last link. */
static long add_link(__u32 unused, void *nothing)
{
	struct chain_walk *walk;
	struct chain_link *link;
	struct thread *thread;
	struct wait *wait;
	__u32 zero = 0, length;

	walk = bpf_map_lookup_elem(&chain_scratch, &zero);
	if (!walk || walk->next.certainty == DEBOX_OWNER_NONE)
		return 1;
	length = walk->row.length;
	for (__u32 i = 0; i < CHAIN_LINKS; i++) {
		if (i < length && walk->row.links[i].tid == walk->next.tid) {
			walk->row.end = CHAIN_CYCLE;
			return 1;
		}
	}
	if (length >= CHAIN_LINKS) {
		walk->row.end = CHAIN_TOO_LONG;
		return 1;
	}
	if (length)
		walk->row.links[(length - 1) % CHAIN_LINKS].certainty = walk->next.certainty;
	link = &walk->row.links[length];
	__builtin_memset(link, 0, sizeof(*link));
	link->tid = walk->next.tid;
	link->doing = walk->next.doing;
	__builtin_memcpy(link->comm, walk->next.comm, sizeof(link->comm));
	walk->row.length = length + 1;
	thread = walk->next.index ? thread_at(walk->next.index - 1) : 0;
	wait = walk->next.index ? wait_at(walk->next.index - 1) : 0;
	if (thread && wait && thread->tid == walk->next.tid) {
		follow_sleeps(walk, link, thread, wait);
		return 0;
	}
	link->stack = walk->next.stack;
	link->call = walk->next.call;
	link->lock_flags = walk->next.lock_flags;
	walk->next.certainty = DEBOX_OWNER_NONE;
	return 0;
}

/* Chains are counted together if their links have the same names and the same places. */
static __always_inline __u64 name_chain(struct chain_row *row)
{
	__u64 hash = mix(7, row->end), *comm;
	struct chain_link *link;

	for (__u32 i = 0; i < CHAIN_LINKS; i++) {
		if (i >= row->length)
			break;
		link = &row->links[i];
		comm = (__u64 *)link->comm;
		hash = mix(mix(hash, comm[0]), comm[1]);
		hash = mix(mix(hash, link->stack), (__u64)link->call << 32 | link->lock_flags);
		hash = mix(hash, (__u64)link->certainty << 32 | link->measured);
		if (!link->measured)
			hash = mix(hash, link->doing);
	}
	return hash;
}

static __always_inline void count_chain(struct chain_row *found)
{
	__u64 name = name_chain(found);
	struct chain_row *row = bpf_map_lookup_elem(&chain_rows, &name);

	if (!row) {
		if (!bpf_map_update_elem(&chain_rows, &name, found, BPF_NOEXIST))
			return;
		row = bpf_map_lookup_elem(&chain_rows, &name); /* another CPU was first */
	}
	if (!row) {
		COUNT_LOST(rows);
		return;
	}
	__sync_fetch_and_add(&row->count, 1);
	for (__u32 i = 0; i < CHAIN_LINKS; i++) {
		if (i >= found->length)
			break;
		__sync_fetch_and_add(&row->links[i].blocked_ns, found->links[i].blocked_ns);
		__sync_fetch_and_add(&row->links[i].stack_ns, found->links[i].stack_ns);
		if (row->links[i].tid != found->links[i].tid)
			row->links[i].tid = 0;
		if (row->links[i].doing != found->links[i].doing)
			row->links[i].doing = DOING_UNKNOWN;
	}
}

/*
 * Follows the chain that has begun. Not static, so that it is verified once for all kinds of waits.
 */
__noinline int follow_chain(void)
{
	struct chain_walk *walk;
	__u32 zero = 0;

	walk = bpf_map_lookup_elem(&chain_scratch, &zero);
	if (!walk)
		return 0;
	bpf_loop(CHAIN_LINKS, add_link, 0, 0);
	if (walk->row.length > 1)
		count_chain(&walk->row);
	return 0;
}

/* The thread's wait has ended, and its holder is known: follows and counts the chain. */
static __noinline int add_chain(struct thread *thread, struct task_struct *task, struct wait *wait,
				__u64 stack)
{
	struct chain_walk *walk;
	struct chain_link *link;
	__u32 zero = 0;

	walk = bpf_map_lookup_elem(&chain_scratch, &zero);
	if (!walk)
		return 0;
	walk->row.count = 1;
	walk->row.length = 1;
	walk->row.end = CHAIN_COMPLETE;
	walk->next = wait->owner;
	walk->begin_ns = wait->begin_ns;
	walk->end_ns = wait->begin_ns + thread->sleep_ns;
	walk->resource = thread->resource;
	link = &walk->row.links[0];
	__builtin_memset(link, 0, sizeof(*link));
	link->stack = stack;
	link->blocked_ns = thread->sleep_ns;
	link->stack_ns = thread->sleep_ns;
	link->call = thread->call;
	link->lock_flags = thread->lock_flags;
	link->tid = thread->tid;
	link->measured = 1;
	copy_comm(link->comm, task);
	return follow_chain();
}

#endif
