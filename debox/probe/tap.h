/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * tap.h: the kernel tap: the probes at the start and the end of a call.
 *
 * Every process on the machine pays for these two tracepoints, so they are attached only while a
 * session needs them.
 */
#ifndef PROBE_TAP_H
#define PROBE_TAP_H

#include "calls.h"
#include "life.h"
#include "switch.h"
#include "trigger.h"

typedef __u64 __attribute__((may_alias)) pair;

/* The state that nearly every call finds: two comparisons instead of four. */
static __always_inline bool is_running(struct thread *thread)
{
	return *(pair *)&thread->state == (THREAD_LIVE | (__u64)MODE_RUNNING << 32);
}

static __always_inline bool is_whole_between(struct thread *thread)
{
	return *(pair *)&thread->call == CALL_NONE;
}

/* Not with THREAD_PARTIAL: such a call was open before the thread's first event. */
static __always_inline bool is_whole_call(struct thread *thread)
{
	return *(pair *)&thread->call < ROWS && !(thread->flags & THREAD_PARTIAL);
}

/* A call that begins in any other state. Returns whether the call is followed. */
static __noinline bool enter_call_slow(unsigned long long *ctx, struct task_struct *task,
				       struct thread *thread, __u64 now)
{
	long id = ctx[1];

	if (thread->state != THREAD_LIVE) {
		/* In any other state it is being enrolled at this moment, or was released. */
		if (thread->state != THREAD_ARMED || (id != NR_EXECVE && id != NR_EXECVEAT))
			return false;
		begin_life(thread, task, now, MODE_RUNNING);
		thread->flags |= THREAD_BEGINNING;
	}
	if (thread->mode != MODE_RUNNING)
		resume_unseen(thread, task, now);
	if (thread->has_parts)
		close_part(thread, PART_CPU, now);
	if (thread->call == CALL_NONE)
		close_between(thread, ctx, now);
	else /* Its end was not seen: what is in the registers is the next call's. */
		close_call(thread, task, 0, ctx, now, 0);
	return true;
}

/* A thread that got the CPU while a probe works would write to the same rows. */
static __always_inline void hold_cpu(void)
{
	if (keep_cpu)
		preempt_disable();
}

/*
 * Enables preemption without switching at once: a task that waits for the CPU gets it after the
 * probe, where the kernel checks again. A switch here would be inside the kernel's guard that keeps
 * a probe from running twice on a CPU, and other threads would miss the probe.
 */
static __always_inline void let_cpu_go(void)
{
	unsigned long flags;

	if (!keep_cpu)
		return;
	if (!bpf_ksym_exists(bpf_local_irq_save)) {
		preempt_enable();
		return;
	}
	bpf_local_irq_save(&flags);
	preempt_enable();
	bpf_local_irq_restore(&flags);
}

static __always_inline void enter_call(unsigned long long *ctx, struct pt_regs *regs, long id)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = thread_of(task);
	__u64 now;

	if (!thread)
		return;
	begin_work(thread);
	now = bpf_ktime_get_ns();
	if (LIKELY(is_running(thread) && is_whole_between(thread))) {
		close_between(thread, 0, now);
	} else if (!enter_call_slow(ctx, task, thread, now)) {
		end_work(thread);
		return;
	}
	thread->call = call_number(task, id);
	snapshot(thread, task);
	if (UNLIKELY(is_looked_at(thread->call)))
		look_at_entry(thread);
	end_work(thread);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_sys_enter, struct pt_regs *regs, long id)
{
	hold_cpu();
	enter_call(ctx, regs, id);
	let_cpu_go();
	return 0;
}

/*
 * Since 7.2 a thread may lose its CPU in a probe at its call, just before the probe disables
 * preemption or just after it enables it again. The kernel then skips that probe for all other
 * threads on that CPU until the first one is back. So there are two probes for each of these
 * events. The second one runs after the first, and finds the work done unless the first was
 * skipped.
 */
__u64 stood_in[2]; /* beginnings and ends of calls that only the spare saw */

static __always_inline void note_stand_in(struct thread *thread, int at)
{
	if (thread->state == THREAD_LIVE)
		__sync_fetch_and_add(&stood_in[at], 1);
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(on_sys_enter_spare, struct pt_regs *regs, long id)
{
	struct thread *thread = thread_of(bpf_get_current_task_btf());

	if (LIKELY(!thread || thread->call != CALL_NONE))
		return 0;
	hold_cpu();
	note_stand_in(thread, 0);
	enter_call(ctx, regs, id);
	let_cpu_go();
	return 0;
}

/* Closes a call about which there is nothing to record but its duration. */
static __always_inline bool close_plain_call(struct thread *thread, struct task_struct *task,
					     __u64 now, long ret)
{
	__u32 call = thread->call, bucket;
	struct row *row = bpf_map_lookup_elem(&rows, &call);
	__u64 wall = now - thread->begin_ns;

	if (!row)
		return false;
	thread->begin_ns = now;
	thread->call = CALL_NONE;
	thread->calls++;
	thread->in_calls[PART_CPU] += wall;
	row->parts[PART_CPU] += wall;
	row->calls++;
	if (wall > row->max_ns)
		row->max_ns = wall;
	bucket = bucket_of(wall);
	if (bucket < BUCKETS)
		row->histogram[bucket]++;
	if (UNLIKELY(is_error(ret)))
		count_error(row, call, ret);
	if (UNLIKELY(task->min_flt != thread->faults_minor ||
		     task->maj_flt != thread->faults_major))
		count_faults(thread, row, task);
	return true;
}

/*
 * Whether the end of a call belongs to the open call. If probes may be skipped (`keep_cpu`), an end
 * and the next beginning may both have been missed. A return from a signal handler no longer has a
 * number.
 */
static __always_inline bool is_its_end(struct thread *thread, struct pt_regs *regs)
{
	unsigned long number = regs->orig_ax;

	if (!keep_cpu)
		return true;
	if (number == -1UL)
		return is_signal_return(thread->call) || thread->call == NO_SUCH_CALL;
	return (thread->call & 0xffff) == (number < NO_SUCH_CALL ? number : NO_SUCH_CALL);
}

/* Any other end of a call. Returns whether the thread no longer belongs to its client. */
static __noinline bool exit_otherwise(unsigned long long *ctx, struct task_struct *task,
				      struct thread *thread, __u64 now)
{
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	__u32 call = thread->call;

	if (thread->mode != MODE_RUNNING)
		resume_unseen(thread, task, now);
	if (thread->call != CALL_NONE) {
		if (thread->has_parts)
			close_part(thread, PART_CPU, now);
		if (!is_its_end(thread, regs)) {
			close_call(thread, task, 0, ctx, now, 0);
			return false;
		}
		if (want_triggers)
			check_triggers(thread, task, regs, now, ctx[1]);
		if (want_sleeps && want_report && is_poll(call))
			settle_polled(thread, task, ctx[1]);
		close_call(thread, task, regs, ctx, now, ctx[1]);
		return may_have_changed_ids(thread, call) && has_other_ids(thread, task);
	} else if (thread->flags & THREAD_BORN) {
		thread->flags &= ~THREAD_BORN; /* a new child's first return */
	} else {
		refused_call(thread, task, regs, ctx[1], now); /* by seccomp, before it was seen */
	}
	return false;
}

static __always_inline void exit_call(unsigned long long *ctx, struct pt_regs *regs, long ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = thread_of(task);
	__u64 now;

	if (!thread || thread->state != THREAD_LIVE)
		return;
	begin_work(thread);
	now = bpf_ktime_get_ns();
	if (UNLIKELY(want_io || want_callsites || want_triggers || want_records || want_history ||
		     !want_report || !is_running(thread) || !is_whole_call(thread) ||
		     !is_its_end(thread, regs) || may_have_changed_ids(thread, thread->call)) ||
	    !close_plain_call(thread, task, now, ret)) {
		/*
		 * Calls leave() here, not in exit_otherwise(): before 6.13 both would share one
		 * stack.
		 */
		if (exit_otherwise(ctx, task, thread, now) && for_others)
			leave(thread, task, now);
	}
	end_work(thread);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long ret)
{
	hold_cpu();
	exit_call(ctx, regs, ret);
	let_cpu_go();
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(on_sys_exit_spare, struct pt_regs *regs, long ret)
{
	struct thread *thread = thread_of(bpf_get_current_task_btf());

	if (LIKELY(!thread || (thread->call == CALL_NONE && !(thread->flags & THREAD_BORN))))
		return 0;
	hold_cpu();
	note_stand_in(thread, 1);
	exit_call(ctx, regs, ret);
	let_cpu_go();
	return 0;
}

#endif
