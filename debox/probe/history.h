/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * history.h: the stream of all records, for a reader that keeps them.
 *
 * A sleep is sent when it ends, and its call when that ends. The reader joins them by the thread
 * and its number of completed calls. Neither wakes the reader: it polls, some fifty times a second.
 * What does not fit is counted.
 */
#ifndef PROBE_HISTORY_H
#define PROBE_HISTORY_H

#include "callcpu.h"
#include "polled.h"
#include "state.h"

/*
 * With want_history: what the shim measures around calls. The slots then belong to the shim, not to
 * the probes.
 */
const volatile bool want_stamps = false;

/* Calls and sleeps for which there was no room. */
__u64 history_lost_calls;
__u64 history_lost_sleeps;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} history SEC(".maps");

/* Names the types of what is sent, so that the skeleton generated from BTF has them. */
struct {
	struct kept_call kept_call;
	struct kept_sleep kept_sleep;
	struct kept_stamps kept_stamps;
	struct kept_cpu kept_cpu;
} history_types;

static __always_inline void name_kept_thread(struct kept_call *kept, struct thread *thread,
					     struct task_struct *task)
{
	kept->kind = KEPT_CALL;
	kept->tid = thread->tid;
	kept->tgid = thread->tgid;
	kept->call = thread->call;
	copy_comm(kept->comm, task);
}

static __always_inline void keep_parts(struct kept_call *kept, struct thread *thread, __u64 wall)
{
	for (int i = 0; i < PARTS; i++)
		kept->parts[i] = thread->has_parts ? thread->parts[i] : 0;
	if (!thread->has_parts)
		kept->parts[PART_CPU] = wall;
	kept->spin_ns = thread->spin_ns;
	kept->begin_ns = thread->begin_ns;
	kept->wall_ns = wall;
}

/*
 * Sends the stamps around the last call that the shim has completed. They are complete at the end
 * of the thread's next call at the latest, which is when this runs: before that call itself is
 * sent, so that the reader gets them right after the calls that they enclose. Returns whether the
 * call that ends now is between stamps, too.
 */
static __noinline bool keep_stamps(struct thread *thread)
{
	struct debox_slot *slot = slot_of(thread, thread->index);
	struct debox_record *record;
	struct kept_stamps *kept;
	__u64 completed;

	if (!slot)
		return false;
	completed = slot->completed;
	if (completed != thread->stamps_kept) {
		thread->stamps_kept = completed;
		kept = bpf_ringbuf_reserve(&history, sizeof(*kept), 0);
		if (kept) {
			record = &slot->history[(completed - 1) % DEBOX_HISTORY_MAX];
			kept->kind = KEPT_STAMPS;
			kept->tid = thread->tid;
			kept->call = record->call;
			kept->reserved = 0;
			kept->begin_ns = record->start_ns;
			kept->wall_ns = record->wall_ns;
			bpf_ringbuf_submit(kept, BPF_RB_NO_WAKEUP);
		}
	}
	return slot->tap_call == thread->call + 1;
}

/*
 * Sends who had the CPU that the call, or the time between calls, waited for; before the call
 * itself. For most calls there is nothing to send.
 */
static __noinline int keep_call_cpu(struct thread *thread, __u64 ordinal)
{
	struct call_cpu *of_call = sum_up_call_cpu(thread);
	struct kept_cpu *kept;

	if (!of_call)
		return 0;
	kept = bpf_ringbuf_reserve(&history, sizeof(*kept), 0);
	if (!kept) /* the reader misses it: the call has waited */
		return 0;
	kept->kind = KEPT_CPU;
	kept->tid = thread->tid;
	kept->call = thread->call;
	kept->reserved = 0;
	kept->ordinal = ordinal;
	kept->throttled_ns = of_call->throttled_ns;
	__builtin_memcpy(&kept->owner, &of_call->result, sizeof(kept->owner));
	bpf_ringbuf_submit(kept, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Adds which of several descriptors the call waited for, as settle_polled() has found out. */
static __noinline int keep_polled(struct kept_call *kept, struct thread *thread)
{
	struct wait *wait = is_poll(thread->call) ? wait_at(thread->index) : 0;

	if (!wait || wait->tid != thread->tid || !wait->later.count) {
		__builtin_memset(&kept->polled, 0, sizeof(kept->polled));
		return 0;
	}
	kept->polled = wait->resource;
	wait->later.count = 0;
	return 0;
}

/*
 * Sends the call that ends now. Its place in the program is in `entry_stack`, 0 if it was not
 * taken.
 */
static __noinline int keep_call(struct thread *thread, struct task_struct *task,
				struct pt_regs *regs, __u64 wall, long ret)
{
	bool stamped = want_stamps && keep_stamps(thread);
	struct kept_call *kept;

	if (keeps_call_cpu())
		keep_call_cpu(thread, thread->calls);
	kept = bpf_ringbuf_reserve(&history, sizeof(*kept), 0);
	if (!kept) {
		__sync_fetch_and_add(&history_lost_calls, 1);
		return 0;
	}
	name_kept_thread(kept, thread, task);
	keep_parts(kept, thread, wall);
	kept->flags = (thread->flags & THREAD_PARTIAL) | (regs ? 0 : THREAD_END_UNSEEN) |
		      (stamped ? THREAD_STAMPED : 0);
	kept->ordinal = thread->calls;
	kept->ret = ret;
	kept->args[0] = regs ? regs->di : 0;
	kept->args[1] = regs ? regs->si : 0;
	kept->args[2] = regs ? regs->dx : 0;
	kept->user_stack = thread->entry_stack;
	kept->faults_minor = task->min_flt - thread->faults_minor;
	kept->faults_major = task->maj_flt - thread->faults_major;
	kept->read_bytes = want_io ? task->ioac.read_bytes - thread->read_bytes : 0;
	kept->write_bytes = want_io ? task->ioac.write_bytes - thread->write_bytes : 0;
	keep_polled(kept, thread);
	bpf_ringbuf_submit(kept, BPF_RB_NO_WAKEUP);
	/* Faults from here on are the program's own, until the next call takes a new snapshot. */
	thread->faults_minor = task->min_flt;
	thread->faults_major = task->maj_flt;
	return 0;
}

/*
 * Sends a piece of time between calls in which the thread was not on the CPU all the time. The
 * other pieces need not be sent: the thread ran between the two calls.
 */
static __noinline int keep_between(struct thread *thread, __u64 wall)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct kept_call *kept;

	if (keeps_call_cpu())
		keep_call_cpu(thread, thread->calls + 1);
	kept = bpf_ringbuf_reserve(&history, sizeof(*kept), 0);
	if (!kept) {
		__sync_fetch_and_add(&history_lost_calls, 1);
		return 0;
	}
	name_kept_thread(kept, thread, task);
	keep_parts(kept, thread, wall);
	kept->flags = 0;
	kept->ordinal = thread->calls + 1;
	kept->ret = 0;
	for (int i = 0; i < 3; i++)
		kept->args[i] = 0;
	kept->user_stack = want_callsites && thread->slept_used ? thread->slept[0].at : 0;
	kept->faults_minor = task->min_flt - thread->faults_minor;
	kept->faults_major = task->maj_flt - thread->faults_major;
	kept->read_bytes = 0;
	kept->write_bytes = 0;
	__builtin_memset(&kept->polled, 0, sizeof(kept->polled));
	bpf_ringbuf_submit(kept, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Sends the sleep that has just ended. `wait` is 0 if its beginning was not seen. */
static __noinline int keep_sleep(struct thread *thread, struct wait *wait, __u64 stack,
				 __u32 waiters_exit)
{
	struct kept_sleep *kept = bpf_ringbuf_reserve(&history, sizeof(*kept), 0);
	__u64 end = thread->stamp_ns, asleep = thread->sleep_ns;

	if (!kept) {
		__sync_fetch_and_add(&history_lost_sleeps, 1);
		return 0;
	}
	kept->kind = KEPT_SLEEP;
	kept->tid = thread->tid;
	kept->call = thread->call;
	kept->lock_flags = thread->lock_flags;
	kept->ordinal = thread->calls + 1;
	kept->stack = stack;
	kept->blocked_ns = asleep;
	kept->begin_ns = wait && wait->begin_ns + asleep <= end ? wait->begin_ns : end - asleep;
	kept->runqueue_ns = end - kept->begin_ns - asleep;
	kept->waker_kind = thread->waker_kind;
	kept->waker_tid = thread->waker_tid;
	__builtin_memcpy(kept->waker_comm, thread->waker_comm, DEBOX_COMM_LEN);
	kept->waiters_scope = thread->flags & THREAD_COUNTED ? DEBOX_WAITERS_MONITORED
			      : thread->flags & THREAD_LOCK  ? DEBOX_WAITERS_ALL
							     : DEBOX_WAITERS_UNKNOWN;
	kept->waiters_entry = thread->waiters_entry;
	kept->waiters_exit = waiters_exit;
	kept->ownable = wait ? wait->ownable : 0;
	if (wait) {
		kept->resource = wait->resource;
		kept->owner = wait->owner;
	} else {
		__builtin_memset(&kept->resource, 0, sizeof(kept->resource));
		__builtin_memset(&kept->owner, 0, sizeof(kept->owner));
	}
	bpf_ringbuf_submit(kept, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
