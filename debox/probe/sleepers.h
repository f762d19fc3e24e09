/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * sleepers.h: what a task waits for that was asleep before its monitoring began: people look at a
 * process that hangs while it hangs.
 *
 * The beginning of such a wait was not seen. The kernel itself may note the lock with the task
 * (blocker_of()). If it does not, the lock is one whose own list of waiters contains the task.
 * Everything else is found from the call's arguments, as at the beginning of any sleep.
 */
#ifndef PROBE_SLEEPERS_H
#define PROBE_SLEEPERS_H

#include "locks.h"
#include "waits.h"

#define LOCK_WAITERS_MAX 512 /* of one lock, looked through for the task */

/* A walk through the waiters of a lock. */
struct waiter_walk {
	__u64 at, head;
	__u64 task, to_task; /* to_task: from the link to the pointer */
	__u32 found;
};

static long next_waiter(__u32 index, struct waiter_walk *walk)
{
	__u64 task = 0, next = 0;

	if (!walk->at || walk->at == walk->head)
		return 1;
	bpf_probe_read_kernel(&task, sizeof(task), (void *)(walk->at + walk->to_task));
	if (task == walk->task) {
		walk->found = 1;
		return 1;
	}
	bpf_probe_read_kernel(&next, sizeof(next), (void *)walk->at);
	walk->at = next;
	return 0;
}

/* The flags of the lock if the task waits for it, else 0. */
static __noinline __u32 waits_for_rwsem(struct task_struct *task, __u64 at)
{
	struct rw_semaphore *lock = (void *)at;
	struct waiter_walk walk = {.task = (__u64)task};
	struct rwsem_waiter *waiter;
	__u64 to_link;

	if (!at || !bpf_core_field_exists(lock->wait_list) ||
	    !bpf_core_field_exists(struct rwsem_waiter, task))
		return 0;
	to_link = bpf_core_field_offset(struct rwsem_waiter, list);
	walk.to_task = bpf_core_field_offset(struct rwsem_waiter, task) - to_link;
	walk.head = (__u64)&lock->wait_list;
	walk.at = (__u64)BPF_CORE_READ(lock, wait_list.next);
	bpf_loop(LOCK_WAITERS_MAX, next_waiter, &walk, 0);
	if (!walk.found)
		return 0;
	waiter = (void *)(walk.at - to_link);
	return BPF_CORE_READ(waiter, type) == RWSEM_WAITING_FOR_READ ? LCB_F_READ : LCB_F_WRITE;
}

static __noinline __u32 waits_for_mutex(struct task_struct *task, __u64 at)
{
	struct mutex *lock = (void *)at;
	struct waiter_walk walk = {.task = (__u64)task};

	if (!at || !bpf_core_field_exists(lock->wait_list) ||
	    !bpf_core_field_exists(struct mutex_waiter, task))
		return 0;
	walk.to_task = bpf_core_field_offset(struct mutex_waiter, task) -
		       bpf_core_field_offset(struct mutex_waiter, list);
	walk.head = (__u64)&lock->wait_list;
	walk.at = (__u64)BPF_CORE_READ(lock, wait_list.next);
	bpf_loop(LOCK_WAITERS_MAX, next_waiter, &walk, 0);
	return walk.found ? LCB_F_MUTEX : 0;
}

/* Notes the lock if the task waits for it. Returns whether it does. */
static __always_inline bool try_rwsem(struct thread *thread, struct task_struct *task, void *lock)
{
	thread->lock_flags = waits_for_rwsem(task, (__u64)lock);
	thread->resource = (__u64)lock;
	return thread->lock_flags;
}

static __always_inline bool try_mutex(struct thread *thread, struct task_struct *task, void *lock)
{
	thread->lock_flags = waits_for_mutex(task, (__u64)lock);
	thread->resource = (__u64)lock;
	return thread->lock_flags;
}

static __noinline bool try_inode(struct thread *thread, struct task_struct *task, __u64 at)
{
	struct inode *inode = (struct inode *)at;
	struct address_space *mapping;
	struct super_block *super;

	if (!inode)
		return false;
	super = BPF_CORE_READ(inode, i_sb);
	mapping = BPF_CORE_READ(inode, i_mapping);
	return try_rwsem(thread, task, &inode->i_rwsem) ||
	       try_rwsem(thread, task, &super->s_umount) ||
	       try_mutex(thread, task, &super->s_vfs_rename_mutex) ||
	       (bpf_core_field_exists(mapping->invalidate_lock) &&
		try_rwsem(thread, task, &mapping->invalidate_lock));
}

static __noinline bool try_argument(struct thread *thread, struct task_struct *task, __u64 fd)
{
	struct file *file = file_of(task, fd);
	struct inode *inode;

	if (!file)
		return false;
	inode = BPF_CORE_READ(file, f_inode);
	if (try_inode(thread, task, (__u64)inode) || try_mutex(thread, task, &file->f_pos_lock))
		return true;
	return (BPF_CORE_READ(inode, i_mode) & FILE_TYPE) == FILE_TYPE_FIFO &&
	       try_mutex(thread, task,
			 &((struct pipe_inode_info *)BPF_CORE_READ(file, private_data))->mutex);
}

/* Searches the locks that the call may use. */
static __noinline bool find_lock(struct thread *thread, struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct nameidata *names;

	if (mm && try_rwsem(thread, task, &mm->mmap_lock))
		return true;
	if (!regs || thread->call == CALL_NONE)
		return false;
	for (__u32 i = 0; i < FILES_IN_ARGUMENTS; i++) {
		if (try_argument(thread, task, argument_word(regs, i)))
			return true;
	}
	if (try_inode(thread, task, (__u64)BPF_CORE_READ(task, fs, pwd.dentry, d_inode)))
		return true;
	names = BPF_CORE_READ(task, nameidata);
	return names && bpf_core_type_exists(struct nameidata) &&
	       try_inode(thread, task, (__u64)BPF_CORE_READ(names, path.dentry, d_inode));
}

/* The task sleeps, and its entry is not in use yet. */
static __noinline int adopt_sleep(struct thread *thread, struct task_struct *task, __u64 now)
{
	bool is_counted;

	thread->begin_ns = now;
	thread->stamp_ns = now;
	thread->contending = contended_of(task) != 0;
	is_counted = note_lock(thread, task);
	if (!(thread->flags & THREAD_LOCK) && !bpf_core_field_exists(task->blocker) &&
	    task->__state & TASK_UNINTERRUPTIBLE && find_lock(thread, task))
		thread->flags |= THREAD_LOCK;
	begin_wait(thread, task);
	if (!is_counted)
		count_sleeper(thread);
	return 0;
}

/* The task was woken meanwhile: takes the adopted sleep back. */
static __always_inline void forget_sleep(struct thread *thread)
{
	struct wait *wait = wait_at(thread->index);

	if (wait)
		wait->tid = 0;
	if (thread->flags & THREAD_COUNTED)
		remove_waiter(thread->resource);
	thread->flags &= ~(THREAD_LOCK | THREAD_COUNTED);
	thread->lock_flags = 0;
	thread->resource = 0;
}

#endif
