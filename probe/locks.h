/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * locks.h: contended kernel locks: which one a sleep waits for, how many wait, how long was spun.
 *
 * contention_begin (5.19) comes again without an end when a mutex goes from spinning to sleeping
 * and back, so the lock that a task contends for is kept with the task. All tasks are followed, to
 * count waiters that are not monitored.
 */
#ifndef PROBE_LOCKS_H
#define PROBE_LOCKS_H

#include "calls.h"
#include "context.h"
#include "waiters.h"

struct contended {
	__u64 lock;
	__u32 flags;
	__u32 waiters; /* when this task joined, itself included */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct contended);
} contended_lock SEC(".maps");

/* The lock that the task is waiting for, if any. */
static __always_inline struct contended *contended_of(struct task_struct *task)
{
	struct contended *contended = bpf_task_storage_get(&contended_lock, task, 0, 0);

	return contended && contended->lock ? contended : 0;
}

/* include/linux/hung_task.h: what the low bits of task->blocker mean. */
#define BLOCKER_TYPE 3UL

/*
 * The lock that the kernel itself notes for a task which sleeps for one
 * (CONFIG_DETECT_HUNG_TASK_BLOCKER: mutexes and semaphores since 6.16, rwsems since 6.17), for
 * waits that began before anybody looked.
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

/* Notes the lock that the thread goes to sleep for, if any; true if its waiters are counted
 * already. */
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
		thread->waiters_entry = contended->waiters;
		return true;
	}
	thread->resource = lock; /* its event was not seen */
	thread->lock_flags = flags;
	return false;
}

/*
 * Spinning is CPU time, and is taken as the CPU time between two stamps, so that interrupts on top
 * are left out where they are measured. Locks nest (a rwlock's queue is a spinlock): the outermost
 * counts. Under the user tap the open call is the thread's own, and spinning is not shown.
 */
static __always_inline void begin_spin(struct thread *thread, void *lock)
{
	if (user_tap || !thread || thread->state != THREAD_LIVE || thread->mode != MODE_RUNNING ||
	    thread->busy || thread->spin_lock)
		return;
	begin_work(thread);
	close_part(thread, PART_CPU, bpf_ktime_get_ns());
	thread->spin_lock = (__u64)lock;
	thread->spin_from_ns = thread->parts[PART_CPU];
	end_work(thread);
}

static __always_inline void end_spin(struct thread *thread, void *lock)
{
	if (user_tap || !thread || !thread->spin_lock || thread->spin_lock != (__u64)lock)
		return;
	begin_work(thread);
	close_part(thread, PART_CPU, bpf_ktime_get_ns());
	thread->spin_ns += thread->parts[PART_CPU] - thread->spin_from_ns;
	thread->spin_lock = 0;
	end_work(thread);
}

SEC("tp_btf/contention_begin")
int BPF_PROG(on_contention_begin, void *lock, unsigned int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct contended *contended;
	struct thread *thread;

	/* Spinlocks and rwlocks; what interrupts spin for is not the call's. */
	if ((flags & LCB_F_SPIN) && !(flags & LCB_F_MUTEX)) {
		if (!user_tap && task->bpf_storage && is_own_context(task))
			begin_spin(thread_of(task), lock);
		return 0;
	}
	if (!flags) /* down() alone passes none */
		flags = DEBOX_LOCK_SEMAPHORE;
	thread = thread_of(task);
	if (flags & LCB_F_SPIN)
		begin_spin(thread, lock);
	else
		end_spin(thread, lock);
	contended = bpf_task_storage_get(&contended_lock, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!contended)
		return 0;
	if (contended->lock != (__u64)lock) {
		if (contended->lock) /* its end was not seen */
			remove_waiter(contended->lock);
		contended->lock = (__u64)lock;
		contended->waiters = add_waiter((__u64)lock);
	}
	contended->flags = flags & ~LCB_F_SPIN;
	if (thread)
		thread->contending = 1;
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(on_contention_end, void *lock, int ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct contended *contended;
	struct thread *thread;

	if (!task->bpf_storage)
		return 0;
	thread = thread_of(task);
	end_spin(thread, lock);
	contended = contended_of(task);
	if (!contended || contended->lock != (__u64)lock)
		return 0;
	contended->lock = 0;
	remove_waiter((__u64)lock);
	if (thread)
		thread->contending = 0;
	return 0;
}

#endif
