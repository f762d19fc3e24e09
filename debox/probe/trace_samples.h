/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * trace_samples.h: what can be seen inside a call if functions cannot be probed.
 *
 * A CPU's clock interrupts what runs there at a fixed period; if that is a monitored thread inside
 * a call, its kernel stack is counted. In addition, a fixed set of tracepoints that a call may pass
 * is counted. Samples and tracepoints go to the record in the order in which they occur. Both show
 * how often, not how long.
 */
#ifndef PROBE_TRACE_SAMPLES_H
#define PROBE_TRACE_SAMPLES_H

#include "trace_state.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct trace_sample_key);
	__type(value, __u64);
} trace_samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct trace_stack);
} trace_stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_stack);
} trace_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct trace_passed_key);
	__type(value, __u64);
} trace_passed SEC(".maps");

/* The function that stands for each event in a record, by the kernel's symbols. */
const volatile __u64 event_functions[TRACE_EVENTS_MAX];

/*
 * The slot for entries of the open call. The first entry of a call begins a new list in the slot.
 */
static __always_inline struct debox_slot *slot_of_call(struct thread *thread, __u32 index)
{
	struct trace_thread *trace = trace_of(index);
	struct debox_slot *slot = slot_for_trace(index);

	if (!trace || !slot)
		return 0;
	if (trace->begin_ns != thread->begin_ns) {
		trace->begin_ns = thread->begin_ns;
		slot->trace_open = 0;
		slot->trace_open_lost = 0;
	}
	return slot;
}

static __always_inline bool add_one(void *map, void *key)
{
	__u64 one = 1, *count = bpf_map_lookup_elem(map, key);

	if (count) {
		__sync_fetch_and_add(count, 1);
		return true;
	}
	if (!bpf_map_update_elem(map, key, &one, BPF_NOEXIST))
		return true;
	/* Another CPU may have been first. */
	count = bpf_map_lookup_elem(map, key);
	if (count)
		__sync_fetch_and_add(count, 1);
	return count;
}

SEC("perf_event")
int on_sample(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct trace_sample_key key = {};
	struct trace_stack *stack;
	struct debox_slot *slot;
	struct thread *thread;
	__u32 index = 0, zero = 0, depth = 0;
	int context;

	thread = thread_in_call(task, &index);
	if (!thread)
		return 0;
	context = preempt_count(task);
	if (context != -1 && context & SERVING_SOFTIRQ) {
		COUNT_TRACE_LOST(interrupts, 1);
		return 0;
	}
	stack = bpf_map_lookup_elem(&trace_scratch, &zero);
	if (!stack)
		return 0;
	__builtin_memset(stack, 0, sizeof(*stack));
	if (bpf_get_stack(ctx, stack->frames, sizeof(stack->frames), 0) <= 0) {
		COUNT_TRACE_LOST(stacks, 1);
		return 0;
	}
	key.call = thread->call;
	for (int i = 0; i < TRACE_STACK_DEPTH; i++) {
		if (!stack->frames[i])
			break;
		key.stack = mix(key.stack + stack->frames[i]);
		depth++;
	}
	bpf_map_update_elem(&trace_stacks, &key.stack, stack, BPF_NOEXIST);
	if (!bpf_map_lookup_elem(&trace_stacks, &key.stack) || !add_one(&trace_samples, &key))
		COUNT_TRACE_LOST(stacks, 1);
	slot = slot_of_call(thread, index);
	if (slot)
		add_entry(slot, stack->frames[0], depth, DEBOX_TRACE_SAMPLE);
	return 0;
}

static __always_inline int pass_event(__u32 event)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct trace_passed_key key = {.event = event};
	struct debox_slot *slot;
	struct thread *thread;
	__u32 index = 0;
	int context;

	thread = thread_in_call(task, &index);
	if (!thread)
		return 0;
	context = preempt_count(task);
	if (context != -1 && context & (hardirq_or_nmi | SERVING_SOFTIRQ))
		return 0;
	key.call = thread->call;
	if (!add_one(&trace_passed, &key))
		COUNT_TRACE_LOST(events, 1);
	slot = slot_of_call(thread, index);
	if (slot)
		add_entry(slot, event_functions[event], 0, DEBOX_TRACE_EVENT);
	return 0;
}

/* The event's number is its place in the list; the engine takes the names from the sections. */
#define PASSED(number, name)                                                                       \
	SEC("raw_tp/" #name)                                                                       \
	int passed_##number(void *ctx)                                                             \
	{                                                                                          \
		return pass_event(number);                                                         \
	}

PASSED(0, sched_process_fork)
PASSED(1, sched_process_exec)
PASSED(2, sched_process_exit)
PASSED(3, sched_waking)
PASSED(4, sched_migrate_task)
PASSED(5, signal_generate)
PASSED(6, contention_begin)
PASSED(7, page_fault_kernel)
PASSED(8, mm_page_alloc)
PASSED(9, mm_page_free)
PASSED(10, mm_filemap_add_to_page_cache)
PASSED(11, mm_filemap_delete_from_page_cache)
PASSED(12, mm_vmscan_direct_reclaim_begin)
PASSED(13, mm_compaction_begin)
PASSED(14, vm_unmapped_area)
PASSED(15, exit_mmap)
PASSED(16, tlb_flush)
PASSED(17, writeback_dirty_folio)
PASSED(18, writeback_mark_inode_dirty)
PASSED(19, balance_dirty_pages)
PASSED(20, writeback_single_inode_start)
PASSED(21, block_bio_queue)
PASSED(22, block_getrq)
PASSED(23, block_rq_insert)
PASSED(24, block_rq_issue)
PASSED(25, ext4_da_write_begin)
PASSED(26, ext4_sync_file_enter)
PASSED(27, ext4_request_inode)
PASSED(28, ext4_mark_inode_dirty)
PASSED(29, ext4_es_lookup_extent_enter)
PASSED(30, ext4_unlink_enter)
PASSED(31, ext4_load_inode)
PASSED(32, jbd2_handle_start)
PASSED(33, jbd2_submit_inode_data)
PASSED(34, sock_send_length)
PASSED(35, sock_recv_length)
PASSED(36, inet_sock_set_state)
PASSED(37, tcp_rcv_space_adjust)
PASSED(38, tcp_retransmit_skb)
PASSED(39, net_dev_queue)
PASSED(40, net_dev_start_xmit)
PASSED(41, netif_rx)
PASSED(42, consume_skb)
PASSED(43, kfree_skb)
PASSED(44, hrtimer_start)
PASSED(45, workqueue_queue_work)

#endif
