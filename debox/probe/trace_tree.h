/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * trace_tree.h: the functions that a call enters, how they nest, and how long each takes.
 *
 * A thread keeps its open functions in a stack. A function's time goes to a node that stands for
 * the path that led to it, so that the tree is added up here and no single call need be kept. The
 * stamp at a function's entry is taken last in its probe, and the one at its return first: a
 * probe's own time counts for the calling function.
 */
#ifndef PROBE_TRACE_TREE_H
#define PROBE_TRACE_TREE_H

#include "trace_state.h"

static __always_inline struct trace_frame *frame_at(struct trace_thread *trace, __u32 depth)
{
	/*
	 * The compiler knows that some depths are small enough, and the verifier of 6.1 does not.
	 */
	asm("" : "+r"(depth));
	return &trace->frames[depth % TRACE_DEPTH_MAX];
}

/* The sums belong to the thread's open call only if something has been added to them. */
static __always_inline __u64 blocked_so_far(struct thread *thread)
{
	return thread->has_parts ? thread->parts[PART_BLOCKED] : 0;
}

/*
 * Counts an entry of a function under another one; makes the node at the first. Returns the node's
 * name.
 */
static __always_inline __u64 enter_node(__u64 parent, __u64 function, __u32 call, __u32 depth)
{
	__u64 name = mix((parent ? parent : call + 1) + mix(function));
	struct trace_node *node = bpf_map_lookup_elem(&trace_nodes, &name);

	if (!node) {
		struct trace_node fresh = {
			.parent = parent,
			.function = function,
			.call = call,
			.depth = depth,
			.first_ns = bpf_ktime_get_ns(),
		};

		bpf_map_update_elem(&trace_nodes, &name, &fresh, BPF_NOEXIST);
		node = bpf_map_lookup_elem(&trace_nodes, &name);
		if (!node) {
			COUNT_TRACE_LOST(nodes, 1);
			return name;
		}
	}
	__sync_fetch_and_add(&node->entered, 1);
	return name;
}

/*
 * Begins the tree of a new call. Functions that the last call left open, such as one that never
 * returns, are over.
 */
static __always_inline void begin_tree(struct trace_thread *trace, struct thread *thread,
				       __u32 index)
{
	struct debox_slot *slot = slot_for_trace(index);

	if (trace->depth)
		COUNT_TRACE_LOST(unreturned, trace->depth);
	trace->begin_ns = thread->begin_ns;
	trace->depth = 0;
	trace->hidden = 0;
	if (slot) {
		slot->trace_open = 0;
		slot->trace_open_lost = 0;
	}
}

/* Returns whether the function's return is of interest. */
static __always_inline bool enter_function(__u64 function)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct trace_frame *frame;
	struct trace_thread *trace;
	struct debox_slot *slot;
	struct thread *thread;
	__u32 index = 0, depth;
	int context;

	thread = thread_in_call(task, &index);
	if (!thread)
		return false;
	context = preempt_count(task);
	if (context != -1 && context & (hardirq_or_nmi | SERVING_SOFTIRQ)) {
		COUNT_TRACE_LOST(interrupts, 1);
		return false;
	}
	trace = trace_of(index);
	if (!trace) {
		COUNT_TRACE_LOST(threads, 1);
		return false;
	}
	if (trace->begin_ns != thread->begin_ns)
		begin_tree(trace, thread, index);
	depth = trace->depth;
	if (depth >= trace_depth || depth >= TRACE_DEPTH_MAX) {
		COUNT_TRACE_LOST(depth, 1);
		if (returns_always)
			trace->hidden++;
		return false;
	}
	frame = frame_at(trace, depth);
	frame->function = function;
	frame->node = enter_node(depth ? frame_at(trace, depth - 1)->node : 0, function,
				 thread->call, depth);
	frame->children_ns = 0;
	frame->blocked_ns = blocked_so_far(thread);
	slot = slot_for_trace(index);
	frame->entry = slot ? add_entry(slot, function, depth, DEBOX_TRACE_UNRETURNED) : 0;
	trace->depth = depth + 1;
	frame->entered_ns = bpf_ktime_get_ns();
	return true;
}

/*
 * The position in the stack of the function that returns, or -1. The functions above it have no
 * return.
 */
static __always_inline int find_open(struct trace_thread *trace, __u64 function)
{
	int depth = trace->depth;

	for (int i = 0; i < TRACE_DEPTH_MAX; i++) {
		depth--;
		if (depth < 0)
			break;
		if (frame_at(trace, depth)->function == function)
			return depth;
	}
	return -1;
}

static __always_inline void leave_node(struct trace_frame *frame, __u64 total, __u64 blocked)
{
	struct trace_node *node = bpf_map_lookup_elem(&trace_nodes, &frame->node);
	__u64 longest;

	if (!node)
		return;
	__sync_fetch_and_add(&node->returned, 1);
	__sync_fetch_and_add(&node->total_ns, total);
	__sync_fetch_and_add(&node->children_ns, frame->children_ns);
	if (blocked)
		__sync_fetch_and_add(&node->blocked_ns, blocked);
	for (int attempt = 0; attempt < 4; attempt++) {
		longest = node->max_ns;
		if (total <= longest ||
		    __sync_val_compare_and_swap(&node->max_ns, longest, total) == longest)
			break;
	}
}

static __always_inline void leave_function(__u64 function)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct trace_frame *frame;
	struct trace_thread *trace;
	struct debox_slot *slot;
	struct thread *thread;
	__u32 index = 0, place;
	__u64 now, total;
	int depth, context;

	thread = thread_in_call(task, &index);
	if (!thread)
		return;
	now = bpf_ktime_get_ns();
	context = preempt_count(task);
	if (context != -1 && context & (hardirq_or_nmi | SERVING_SOFTIRQ))
		return;
	trace = trace_of(index);
	if (!trace)
		return;
	if (trace->begin_ns != thread->begin_ns) {
		begin_tree(trace, thread, index);
		COUNT_TRACE_LOST(unmatched, 1);
		return;
	}
	if (trace->hidden) {
		trace->hidden--;
		return;
	}
	depth = find_open(trace, function);
	if (depth < 0) {
		COUNT_TRACE_LOST(unmatched, 1);
		return;
	}
	if (depth + 1 != trace->depth)
		COUNT_TRACE_LOST(unreturned, trace->depth - depth - 1);
	trace->depth = depth;
	frame = frame_at(trace, depth);
	total = now > frame->entered_ns ? now - frame->entered_ns : 0;
	leave_node(frame, total, blocked_so_far(thread) - frame->blocked_ns);
	if (depth)
		frame_at(trace, depth - 1)->children_ns += total;
	if (!frame->entry)
		return;
	slot = slot_for_trace(index);
	place = (frame->entry - 1) % DEBOX_TRACE_MAX;
	if (slot && slot->trace[place].function == function) {
		slot->trace[place].delta_ns = total < (__u32)-1 ? total : (__u32)-1;
		slot->trace[place].kind = DEBOX_TRACE_FUNCTION;
	}
}

#endif
