/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * switch.h: the scheduler's events, which end and begin the parts of a call.
 *
 *   running --switch out--> blocked --waking--> runqueue --switch in--> running
 *                      \--> preempted ---------------------------------/
 *
 * sched_waking is not ordered with the switch by a lock: on another CPU it may come before the
 * sleeper's own switch is seen. But every sleep ends with one, so a thread that comes back without
 * a waking since it left was woken while it was leaving. (sched_wakeup is ordered, but it is one
 * more event for which every wake-up on the machine pays, and it often runs on the wrong CPU to
 * name the waker.)
 */
#ifndef PROBE_SWITCH_H
#define PROBE_SWITCH_H

#include "calls.h"
#include "context.h"
#include "life.h"
#include "live.h"
#include "trigger.h"
#include "locks.h"
#include "counted.h"
#include "cpus.h"
#include "waits.h"

#define NR_SCHED_YIELD 24

/*
 * Some virtual machines hide switches. A thread that left the CPU and came back without either
 * being shown has waited longer by the scheduler's account than by the stamps. Otherwise the two
 * differ by microseconds, and by the readings of its clock that the scheduler saves. The stamps
 * count a wait from the waking on, which is before the scheduler does.
 *
 * If the open part began with a stamp of this call and is long enough, it contains the whole wait.
 * Otherwise the wait may have been before the call, and is only reported. A wait that is longer
 * than the thread has been on the CPU is not a real one: a task that stays queued while it sleeps
 * (6.12, sched_delayed) and is moved to another CPU counts as waiting from then on.
 */
#define UNSEEN_LEAST_NS 200000

static __always_inline void close_unseen_wait(struct thread *thread, __u64 delay, __u64 now)
{
	__s64 unseen = delay - thread->run_delay_ns;
	struct lost *counts;

	if (LIKELY(unseen < UNSEEN_LEAST_NS) || unseen > (__s64)(now - thread->came_ns))
		return;
	counts = lost();
	if (!counts)
		return;
	if (!user_tap && thread->has_parts && (__s64)(now - part_began(thread)) >= unseen) {
		close_part(thread, PART_CPU, now - unseen);
		close_part(thread, PART_PREEMPTED, now);
		counts->switches++;
		if (want_records)
			total_unseen(thread, 0);
	} else {
		counts->unseen_wait_ns += unseen;
		if (want_records)
			total_unseen(thread, unseen);
	}
}

/*
 * Time that the hypervisor takes is inside the stamps, but the scheduler leaves it out of a task's
 * time: the kernel's getrusage shows that much less than the CPU time here.
 */
static __always_inline __u64 steal_clock(struct task_struct *task)
{
	return want_steal ? stolen_so_far(task) : 0;
}

static __always_inline void note_steal(struct thread *thread, __u64 now, __u64 steal)
{
	if (!want_steal)
		return;
	if (thread->came_cpu == bpf_get_smp_processor_id() + 1) {
		steal -= thread->came_steal;
		/*
		 * The rest was taken between the scheduler's clock and the event, when the thread
		 * came.
		 */
		if (steal > now - thread->came_ns)
			steal = now - thread->came_ns;
		thread->stolen_ns += steal;
	}
	thread->came_cpu = 0;
}

static __always_inline void note_coming(struct thread *thread, __u64 now, __u64 steal)
{
	thread->came_ns = now;
	if (!want_steal)
		return;
	thread->came_steal = steal;
	thread->came_cpu = bpf_get_smp_processor_id() + 1;
}

/* Whether the thread may be in user mode after this switch; calls are added up when they end. */
static __always_inline bool is_in_user_mode(struct thread *thread)
{
	return user_tap || thread->call == CALL_NONE;
}

static __always_inline void begin_sleep(struct thread *thread, struct task_struct *task)
{
	bool is_counted;

	thread->flags &= ~(THREAD_LOCK | THREAD_COUNTED);
	thread->lock_flags = 0;
	thread->waiters_entry = 0;
	is_counted = note_lock(thread, task);
	if (want_callsites && want_report && !user_tap && thread->call == CALL_NONE)
		note_sleeping_stack(thread);
	begin_own_wait(thread);
	if (!is_counted)
		count_sleeper(thread);
}

/* How many waiters the sleep that ended leaves behind. */
static __always_inline __u32 leave_waiters(struct thread *thread)
{
	__u32 left = 0;

	if (thread->flags & THREAD_LOCK)
		left = count_lock_waiters(thread->resource);
	if (thread->flags & THREAD_COUNTED)
		return left + remove_waiter(thread->resource);
	if (!(thread->flags & THREAD_LOCK))
		return 0;
	/* Still counted until contention_end: leave the sleeper itself out. */
	left += count_waiters(thread->resource);
	return left ? left - 1 : 0;
}

/*
 * Tasks end a wait by waking the thread, timers by an interrupt. So if an interrupt ended a wait
 * for a futex that no thread holds, or for files of which none is ready, it was a timeout. Such
 * waits show as timers.
 */
static __always_inline void note_end(struct thread *thread, struct task_struct *task,
				     bool has_stack)
{
	bool interrupted = thread->waker_kind == DEBOX_WAKER_HARDIRQ ||
			   thread->waker_kind == DEBOX_WAKER_SOFTIRQ;
	__u32 call = plain_call(thread);
	bool of_files = has_stack && is_epoll_wait(call);
	struct wait *wait;

	if (thread->flags & THREAD_LOCK || (!of_files && (!interrupted || call != NR_FUTEX)))
		return;
	wait = wait_at(thread->index);
	if (!wait || wait->tid != thread->tid)
		return;
	if (of_files && wait->resource.kind == DEBOX_RESOURCE_FD && name_ready_file(wait, task))
		announce_resource(wait, thread, task);
	else if (interrupted && !wait->ownable)
		thread->lock_flags |= DEBOX_LOCK_TIMED_OUT;
}

/* `has_stack`: the task is not running, so that its kernel stack is the one it slept at. */
static __always_inline void end_sleep(struct thread *thread, struct task_struct *task,
				      bool has_stack)
{
	__u32 waiters_exit = leave_waiters(thread);
	__u64 site = 0, stack = 0;
	struct wait *wait;

	note_end(thread, task, has_stack);
	if (has_stack)
		stack = take_kernel_stack(task, thread->call, &site);
	if (want_report && !want_live)
		add_sleep(thread, task, stack, waiters_exit);
	if (want_triggers)
		note_call_sleep(thread->index, stack);
	wait = end_wait(thread, task, stack, has_stack);
	if (want_records && (!user_tap || (thread->tap_where == TAP_IN_CALL && has_stack)))
		record_sleep(thread, task, wait, stack, site, waiters_exit);
	if (want_history)
		keep_sleep(thread, wait, stack, waiters_exit);
	if (want_live)
		add_live(thread, task, wait, stack);
	if (user_tap)
		write_tapped_site(thread, task, stack, tap_caller(thread));
	thread->waker_kind = DEBOX_WAKER_UNKNOWN;
	thread->waker_tid = 0;
	thread->waker_comm[0] = 0;
}

/*
 * Some switches are not shown to probes: a virtual machine's own agent has been seen to leave the
 * CPU without the event, so that the next task comes in unseen. The thread for which this runs is
 * on the CPU, so an open wait has ended; the scheduler's own account says how long it waited.
 */
static __noinline int resume_unseen(struct thread *thread, struct task_struct *task, __u64 now)
{
	__u64 resumed = user_tap ? tap_resumed(thread, now) : now;
	__u64 elapsed = resumed - part_began(thread);
	__u64 waited = run_delay(task) - thread->run_delay_ns;
	bool slept = thread->flags & THREAD_SLEPT;

	if (resumed != now) /* what the thread has counted already is one part */
		waited = thread->mode == MODE_BLOCKED ? 0 : elapsed;
	if (waited > elapsed)
		waited = elapsed;
	if (thread->mode == MODE_BLOCKED) {
		thread->sleep_ns = elapsed - waited;
		close_part(thread, PART_BLOCKED, resumed - waited);
	}
	close_part(thread, thread->mode == MODE_PREEMPTED ? PART_PREEMPTED : PART_RUNQUEUE,
		   part_began(thread) + waited);
	thread->mode = MODE_RUNNING;
	if (user_tap)
		tap_in(thread, now);
	thread->run_delay_ns = run_delay(task); /* counted here, and not again when it leaves */
	thread->came_ns = now;
	COUNT_LOST(switches);
	if (want_records) {
		total_unseen(thread, 0);
		if (slept)
			total_sleep(thread);
		if (is_in_user_mode(thread))
			write_totals(thread, part_began(thread), false);
	}
	if (want_sleeps && slept)
		end_sleep(thread, task, false); /* its place is not known any more */
	thread->flags &= ~THREAD_SLEPT;
	thread->sleep_ns = 0;
	return 0;
}

static __always_inline void switch_out(void *ctx, struct task_struct *task,
				       struct task_struct *next, bool preempt, unsigned int state,
				       __u64 now, __u64 steal)
{
	struct thread *thread = thread_with_storage(task);
	__u64 delay;

	if (!thread || thread->state != THREAD_LIVE)
		return;
	delay = run_delay(task);
	if (thread->mode != MODE_RUNNING)
		resume_unseen(thread, task, now);
	else
		close_unseen_wait(thread, delay, now);
	close_part(thread, PART_CPU, now);
	note_steal(thread, now, steal);
	if (state & TASK_DEAD) {
		end_life(thread, task, ctx, now, false);
		return;
	}
	if (want_records && is_in_user_mode(thread))
		write_totals(thread, part_began(thread), true);
	if (user_tap)
		tap_out(thread, task, preempt ? 0 : state, now);
	thread->run_delay_ns = delay;
	/* On the way back to user mode `preempt` is false: the state alone tells a sleep. */
	if (state == 0 || preempt) {
		if (want_cpu)
			note_pushed_off(thread, task, next);
		thread->mode = thread->call == NR_SCHED_YIELD ? MODE_RUNQUEUE : MODE_PREEMPTED;
		return;
	}
	thread->sleep_ns = 0;
	thread->flags |= THREAD_SLEPT;
	if (want_sleeps)
		begin_sleep(thread, task);
	barrier();
	thread->mode = MODE_BLOCKED; /* last: from here on a waker may write to the entry */
}

static __always_inline void switch_in(struct task_struct *task, __u64 now, __u64 steal)
{
	struct thread *thread = thread_with_storage(task);
	__u32 waited_in = PARTS;
	__u64 began, waits_from;
	bool slept;

	if (!thread || thread->state != THREAD_LIVE)
		return;
	slept = thread->flags & THREAD_SLEPT;
	began = waits_from = part_began(thread);
	note_coming(thread, now, steal);
	switch (thread->mode) {
	case MODE_BLOCKED:
		/*
		 * Woken while it was going to sleep: it was never asleep, and only waited for a
		 * CPU. Or, if no waking was seen at all, it was woken just now.
		 */
		if (thread->woken_early) {
			thread->sleep_ns = 0;
			close_part(thread, PART_BLOCKED, began);
			close_part(thread, PART_RUNQUEUE, now);
			waited_in = PART_RUNQUEUE;
		} else {
			thread->sleep_ns = now - began;
			close_part(thread, PART_BLOCKED, now);
			COUNT_LOST(switches);
			if (want_records)
				total_unseen(thread, 0);
		}
		break;
	case MODE_PREEMPTED:
		close_part(thread, PART_PREEMPTED, now);
		waited_in = PART_PREEMPTED;
		break;
	case MODE_RUNQUEUE:
		close_part(thread, PART_RUNQUEUE, now);
		waited_in = PART_RUNQUEUE;
		break;
	default: /* running when it was enrolled and not seen since, or it left unseen */
		thread->woken_early = 0;
		if (user_tap)
			tap_in(thread, now);
		return;
	}
	if (now > began) /* if no waking was seen this counts the sleep, too: no harm */
		thread->run_delay_ns += now - began;
	thread->mode = MODE_RUNNING;
	thread->woken_early = 0;
	if (want_cpu && waited_in != PARTS) {
		thread->cpus_allowed = task->nr_cpus_allowed;
		thread->own_tgid = task->tgid;
		account_cpu_wait(thread, waits_from, now, waited_in);
	}
	if (want_records && slept)
		total_sleep(thread);
	if (want_records && is_in_user_mode(thread))
		write_totals(thread, part_began(thread), false);
	if (user_tap)
		tap_in(thread, now);
	if (want_sleeps && slept)
		end_sleep(thread, task, true);
	thread->flags &= ~THREAD_SLEPT;
	thread->sleep_ns = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	bool leaves = prev->bpf_storage, comes = next->bpf_storage;
	__u64 now, steal;

	/* Else the compiler would test both pointers at once, which the verifier does not allow. */
	asm volatile("" : "+r"(leaves), "+r"(comes));
	if (!leaves && !comes)
		return 0;
	now = bpf_ktime_get_ns();
	steal = steal_clock(next);
	if (leaves)
		switch_out(ctx, prev, next, preempt, prev_state, now, steal);
	if (comes)
		switch_in(next, now, steal);
	return 0;
}

/* Notes who ends the sleep: the current task, or an interrupt on top of it. */
static __always_inline void note_waker(struct thread *thread)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	int count = preempt_count(waker);

	thread->waker_tid = 0;
	thread->waker_comm[0] = 0;
	if (count == -1) {
		thread->waker_kind = DEBOX_WAKER_UNKNOWN;
	} else if (count & hardirq_or_nmi) {
		thread->waker_kind = DEBOX_WAKER_HARDIRQ;
	} else if (count & SERVING_SOFTIRQ) {
		thread->waker_kind = DEBOX_WAKER_SOFTIRQ;
	} else {
		thread->waker_kind = DEBOX_WAKER_TASK;
		thread->waker_tid = number_of_waker(thread, waker);
		show_comm(thread->waker_comm, waker, thread->waker_tid);
	}
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	struct thread *thread;
	__u64 now;

	if (!task->bpf_storage)
		return 0;
	thread = thread_of(task);
	if (!thread || thread->state != THREAD_LIVE)
		return 0;
	if (want_sleeps)
		note_waker(thread);
	/* Not while it waits for a CPU: that wait goes on. */
	if (want_cpu && (thread->mode == MODE_BLOCKED || thread->mode == MODE_RUNNING))
		note_woken(thread, task);
	if (thread->mode != MODE_BLOCKED) {
		thread->woken_early = 1;
		return 0;
	}
	/* The sleeper's stamp is from another CPU, perhaps from this very moment. */
	now = bpf_ktime_get_ns();
	if (now < part_began(thread))
		now = part_began(thread);
	thread->sleep_ns = now - part_began(thread);
	close_part(thread, PART_BLOCKED, now);
	if (user_tap)
		tap_woken(thread, now);
	thread->mode = MODE_RUNQUEUE;
	return 0;
}

#endif
