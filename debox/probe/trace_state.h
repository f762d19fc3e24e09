/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * trace_state.h: the call tree's maps and settings, and whether a probe is inside a call.
 *
 * The call tree is an object of its own, loaded only when asked for. It shares the session's maps
 * of tasks, threads and slots; it creates none of the other maps in state.h.
 */
#ifndef PROBE_TRACE_STATE_H
#define PROBE_TRACE_STATE_H

#include "state.h"
#include "context.h"
#include "trace_shared.h"

const volatile __u32 trace_depth = TRACE_DEPTH_MAX;
const volatile __u32 trace_thread_count = 1;
/*
 * Returns are seen regardless of what the entry probe decided, so entries that are not kept must be
 * remembered.
 */
const volatile bool returns_always = false;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_thread);
} trace_threads SEC(".maps");

/* All entries are allocated at the start: nothing may be allocated inside what is traced. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct trace_node);
} trace_nodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_lost);
} trace_lost_counts SEC(".maps");

#define COUNT_TRACE_LOST(what, number)                                                             \
	do {                                                                                       \
		__u32 zero_ = 0;                                                                   \
		struct trace_lost *counts_ = bpf_map_lookup_elem(&trace_lost_counts, &zero_);      \
		if (counts_)                                                                       \
			counts_->what += (number);                                                 \
	} while (0)

/* The thread that is current and inside a call, or none. */
static __always_inline struct thread *thread_in_call(struct task_struct *task, __u32 *index_out)
{
	__u32 index = index_of(task);
	struct thread *thread;

	if (!index)
		return 0;
	thread = thread_at(index - 1);
	if (!thread || thread->state != THREAD_LIVE || thread->call == CALL_NONE)
		return 0;
	*index_out = index - 1;
	return thread;
}

static __always_inline struct trace_thread *trace_of(__u32 index)
{
	return bpf_map_lookup_elem(&trace_threads, &index);
}

/* The finishing steps of MurmurHash3: every bit of the input reaches every bit of the result. */
static __always_inline __u64 mix(__u64 value)
{
	value ^= value >> 33;
	value *= 0xff51afd7ed558ccdULL;
	value ^= value >> 33;
	value *= 0xc4ceb9fe1a85ec53ULL;
	return value ^ value >> 33;
}

/* The thread's slot, while it wants entries in its records. */
static __always_inline struct debox_slot *slot_for_trace(__u32 index)
{
	struct debox_slot *slot;

	if (!want_records)
		return 0;
	slot = bpf_map_lookup_elem(&slots, &index);
	return slot && slot->max_trace && !slot->paused ? slot : 0;
}

/* Adds an entry to the open record. Returns its place in the ring + 1; or 0. */
static __always_inline __u32 add_entry(struct debox_slot *slot, __u64 function, __u32 depth,
				       enum debox_trace_kind kind)
{
	__u32 place = slot->trace_written % DEBOX_TRACE_MAX;
	struct debox_trace_entry *entry = &slot->trace[place];

	if (slot->trace_open >= slot->max_trace || slot->trace_open >= DEBOX_TRACE_MAX) {
		slot->trace_open_lost++;
		COUNT_TRACE_LOST(entries, 1);
		return 0;
	}
	entry->function = function;
	entry->delta_ns = 0;
	entry->depth = depth;
	entry->kind = kind;
	slot->trace_written++;
	slot->trace_open++;
	return place + 1;
}

#endif
