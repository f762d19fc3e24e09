/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * locks.h: contended kernel locks: which one a sleep waits for, how many tasks wait, and how long
 * calls spun for which lock.
 */
#ifndef PROBE_LOCKS_H
#define PROBE_LOCKS_H

#include "calls.h"
#include "context.h"
#include "counted.h"
#include "gate.h"
#include "spins.h"

/* Not static, so that it is verified once. */
__noinline __u32 count_lock_waiters(__u64 lock)
{
	return count_in_waiters(&lock_waiters, lock);
}

/* include/linux/hung_task.h: what the low bits of task->blocker mean. */
#define BLOCKER_TYPE 3UL

/*
 * The lock that the kernel itself notes for a task that sleeps for one
 * (CONFIG_DETECT_HUNG_TASK_BLOCKER: mutexes and semaphores since 6.16, rwsems since 6.17). Needed
 * for waits that began before monitoring.
 */
static __always_inline __u64 blocker_of(struct task_struct *task, __u32 *flags)
{
	__u64 blocker;

	if (!bpf_core_field_exists(task->blocker))
		return 0;
	blocker = task->blocker;
	switch (blocker & BLOCKER_TYPE) {
	case 0:
		*flags = LCB_F_MUTEX;
		break;
	case 1:
		*flags = DEBOX_LOCK_SEMAPHORE;
		break;
	case 2:
		*flags = LCB_F_READ;
		break;
	default:
		*flags = LCB_F_WRITE;
	}
	return blocker & ~BLOCKER_TYPE;
}

/*
 * Notes the lock that the thread goes to sleep for, if any. Returns true if its waiters are counted
 * already.
 */
static __noinline bool note_lock(struct thread *thread, struct task_struct *task)
{
	struct contended *contended = thread->contending ? contended_of(task) : 0;
	__u32 flags = 0;
	__u64 lock = blocker_of(task, &flags);

	if (!contended && !lock)
		return false;
	thread->flags |= THREAD_LOCK;
	if (contended && (!lock || lock == contended->lock)) {
		thread->resource = contended->lock;
		thread->lock_flags = contended->flags;
		/*
		 * Threads whose wait began before the gate saw it are only in the session's own
		 * count.
		 */
		thread->waiters_entry = contended->waiters + count_waiters(contended->lock);
		return true;
	}
	thread->resource = lock; /* its event was not seen */
	thread->lock_flags = flags;
	return false;
}

/*
 * Spinning is CPU time, and is measured as the CPU time between two stamps, so that interrupts on
 * top are left out if they are measured. Locks nest (a rwlock's queue is a spinlock): only the
 * outermost counts. Under the user tap the thread itself keeps the open call, and spinning is not
 * shown.
 */
static __always_inline void begin_spin(struct thread *thread, struct task_struct *task, void *ctx,
				       void *lock, __u32 flags)
{
	if (user_tap || thread->state != THREAD_LIVE || thread->mode != MODE_RUNNING ||
	    thread->busy || thread->spin_lock)
		return;
	begin_work(thread);
	name_spin(thread, task, ctx, lock, flags);
	close_part(thread, PART_CPU, bpf_ktime_get_ns());
	thread->spin_lock = (__u64)lock;
	thread->spin_flags = flags;
	thread->spin_from_ns = thread->parts[PART_CPU];
	end_work(thread);
}

static __always_inline void end_spin(struct thread *thread, void *lock)
{
	__u64 spun;

	if (user_tap || !thread->spin_lock || thread->spin_lock != (__u64)lock)
		return;
	begin_work(thread);
	close_part(thread, PART_CPU, bpf_ktime_get_ns());
	spun = thread->parts[PART_CPU] - thread->spin_from_ns;
	thread->spin_ns += spun;
	count_spin(thread, (__u64)lock, spun);
	thread->spin_lock = 0;
	end_work(thread);
}

/* The gate has noted the lock with the task. */
SEC("tp_btf/contention_begin")
int BPF_PROG(on_contention_begin, void *lock, unsigned int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = thread_of(task);

	if (!thread)
		return 0;
	/* Spinlocks and rwlocks. Spinning in an interrupt does not count for the call. */
	if ((flags & LCB_F_SPIN) && !(flags & LCB_F_MUTEX)) {
		if (!user_tap && is_own_context(task))
			begin_spin(thread, task, ctx, lock, flags);
		return 0;
	}
	if (flags & LCB_F_SPIN)
		begin_spin(thread, task, ctx, lock, flags);
	else
		end_spin(thread, lock);
	thread->contending = 1;
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(on_contention_end, void *lock, int ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = thread_of(task);

	if (!thread)
		return 0;
	end_spin(thread, lock);
	if (thread->contending && !contended_of(task))
		thread->contending = 0;
	return 0;
}

#endif
