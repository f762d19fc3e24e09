/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * owners.h: who holds what a sleep waits on, and what the holder is doing.
 *
 * Kernel locks and file locks name their holder themselves; a futex word does so if it belongs to a
 * mutex or rwlock of glibc. A name is believed only if a task with that number lives (and, for a
 * kernel lock, is the task that the lock points to: the last reader of a lock may be long gone).
 */
#ifndef PROBE_OWNERS_H
#define PROBE_OWNERS_H

#include "locks.h"
#include "resources.h"

#define NR_FCNTL 72
#define NR_FLOCK 73
#define NR_FUTEX 202
#define F_SETLKW 7
#define F_OFD_SETLKW 38
#define F_WRLCK 1
#define F_UNLCK 2
#define LOCK_EX 2
#define FILE_LOCKS_MAX 128 /* of one file, looked through for the holder */

/* include/linux/rwsem.h, mutex.h: what the low bits of the owner mean. */
#define RWSEM_READER_OWNED 1UL
#define RWSEM_OWNER_FLAGS 3UL
#define MUTEX_OWNER_FLAGS 7UL
#define RT_OWNER_FLAGS 1UL

/* The futex operations that take a lock, and the bits of a word that names its owner. */
#define FUTEX_COMMAND (~(128UL | 256UL))
#define FUTEX_PRIVATE 128
#define FUTEX_WAIT 0
#define FUTEX_LOCK_PI 6
#define FUTEX_WAIT_BITSET 9
#define FUTEX_LOCK_PI2 13
#define FUTEX_TID 0x3fffffff
#define FUTEX_WAITERS 0x80000000

/* glibc's pthread_mutex_t on x86-64, as sysdeps/nptl/bits/struct_mutex.h lays it out. */
struct glibc_mutex {
	__u32 lock, count;
	__s32 owner;
	__u32 users;
	__u32 kind;
};
#define GLIBC_LOCKED_WITH_WAITERS 2
#define GLIBC_KIND_TYPE 3u /* normal, recursive, error-checking, adaptive */
#define GLIBC_KIND_RECURSIVE 1u
#define GLIBC_KIND_ROBUST 16u
#define GLIBC_KIND_OTHER (128u | 256u | 512u) /* shared between processes, elision on and off */

/* What names the holder. */
struct holder {
	__u64 task; /* its address, 0 if only its number is known */
	__s32 pid;
	__u32 certainty;
	__u32 tgid;	 /* not 0: it must be of this process */
	bool own_number; /* `pid` is a number in the sleeper's PID namespace */
	bool is_process; /* any of its threads: what one of several does says nothing */
};

static __always_inline void holder_of_lock(struct holder *holder, __u64 lock, __u32 flags)
{
	struct task_struct *task;
	__u64 owner;

	holder->certainty = DEBOX_OWNER_EXACT;
	if (flags & LCB_F_MUTEX) {
		if (bpf_core_field_exists(((struct mutex *)lock)->owner))
			holder->task = BPF_CORE_READ((struct mutex *)lock, owner.counter) &
				       ~MUTEX_OWNER_FLAGS;
	} else if (flags & DEBOX_LOCK_SEMAPHORE) {
		holder->certainty = DEBOX_OWNER_LAST_HOLDER;
		if (bpf_core_field_exists(((struct semaphore *)lock)->last_holder))
			holder->task = BPF_CORE_READ((struct semaphore *)lock, last_holder);
	} else if (flags & LCB_F_PERCPU) {
		return; /* its readers are counted, not named */
	} else if (flags & LCB_F_RT) {
		if (!(flags & (LCB_F_READ | LCB_F_WRITE)) &&
		    bpf_core_type_exists(struct rt_mutex_base))
			holder->task = (__u64)BPF_CORE_READ((struct rt_mutex_base *)lock, owner) &
				       ~RT_OWNER_FLAGS;
	} else if ((flags & (LCB_F_READ | LCB_F_WRITE)) &&
		   bpf_core_field_exists(((struct rw_semaphore *)lock)->owner)) {
		owner = BPF_CORE_READ((struct rw_semaphore *)lock, owner.counter);
		holder->task = owner & ~RWSEM_OWNER_FLAGS;
		if (owner & RWSEM_READER_OWNED)
			holder->certainty = DEBOX_OWNER_LAST_READER;
	}
	task = (struct task_struct *)holder->task;
	if (task)
		holder->pid = BPF_CORE_READ(task, pid);
}

/* glibc's pthread_rwlock_t on x86-64, as sysdeps/nptl/bits/struct_rwlock.h lays it out. */
struct glibc_rwlock {
	__u32 readers, writers, phase, writers_word, pad[2];
	__s32 writer, shared;
};
#define RWLOCK_FLAGS 48		  /* where the kind of rwlock is */
#define RWLOCK_FLAGS_MAX 2u	  /* prefers readers, writers, writers that do not nest */
#define RWLOCK_IN_WRITE_PHASE 1u  /* of `readers` */
#define RWLOCK_WRITE_LOCKED 2u	  /* of `readers` */
#define RWLOCK_WORD_WAITED_FOR 3u /* of `phase` and `writers_word`: closed, with waiters */

/*
 * The holders of what tasks wait for that were asleep when they were enrolled, as read by the
 * engine.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct read_holder);
} holders_read SEC(".maps");

/* Readers wait for the write phase to end, writers for the writer before them. */
static __noinline int writer_of_rwlock(struct holder *holder, __u64 word, bool is_private)
{
	struct glibc_rwlock lock;
	__u32 flags = 0, waited_for;
	__u64 at;

	for (int i = 0; i < 2; i++) {
		at = word - (i ? offsetof(struct glibc_rwlock, writers_word)
			       : offsetof(struct glibc_rwlock, phase));
		if (bpf_probe_read_user(&lock, sizeof(lock), (void *)at) ||
		    bpf_probe_read_user(&flags, sizeof(flags), (void *)(at + RWLOCK_FLAGS)))
			continue;
		waited_for = i ? lock.writers_word : lock.phase;
		if (waited_for != RWLOCK_WORD_WAITED_FOR || !(lock.readers & RWLOCK_WRITE_LOCKED))
			continue;
		if (!i && !(lock.readers & RWLOCK_IN_WRITE_PHASE))
			continue;
		if (lock.shared != !is_private || flags > RWLOCK_FLAGS_MAX || lock.writer <= 0)
			continue;
		holder->pid = lock.writer;
		return 1;
	}
	return 0;
}

/*
 * For a task that was asleep already: its memory is not that of the task that runs the iterator, so
 * the engine has read the holder.
 */
static __noinline int holder_that_was_read(struct holder *holder, struct task_struct *task,
					   struct pt_regs *regs)
{
	__u32 tid = task->pid;
	struct read_holder *read = bpf_map_lookup_elem(&holders_read, &tid);

	if (!read || read->address != regs->di || read->switches != task->nvcsw)
		return 0; /* it has slept for something else since */
	holder->own_number = false;
	holder->pid = read->holder;
	return 1;
}

/*
 * Whether this is the word of a lock with waiters, in the form of Drepper's "Futexes are tricky":
 * glibc, Rust, Go.
 */
static __always_inline bool is_word_of_lock(__u32 word)
{
	__u32 tid = word & FUTEX_TID;

	return word == GLIBC_LOCKED_WITH_WAITERS ||
	       (word & FUTEX_WAITERS && tid && tid != FUTEX_TID);
}

/*
 * The word alone proves nothing: any program may keep a 2 there. The other fields of the mutex must
 * fit, too. Returns whether the futex is waited for as a lock is. If its word is not one of a lock
 * with waiters, as with a condition variable, no thread holds it.
 */
static __noinline bool holder_of_futex(struct holder *holder, struct pt_regs *regs,
				       struct task_struct *task)
{
	__u32 command = regs->si & FUTEX_COMMAND, word = (__u32)regs->dx;
	bool is_private = regs->si & FUTEX_PRIVATE;
	bool is_pi = command == FUTEX_LOCK_PI || command == FUTEX_LOCK_PI2;
	struct glibc_mutex mutex;
	__u32 type;

	if (!is_pi && command != FUTEX_WAIT && command != FUTEX_WAIT_BITSET)
		return false;
	holder->certainty = DEBOX_OWNER_EXACT;
	holder->own_number = true;
	if (task != bpf_get_current_task_btf())
		return holder_that_was_read(holder, task, regs) || is_pi || is_word_of_lock(word);
	if (is_pi) {
		if (bpf_probe_read_user(&mutex.lock, sizeof(mutex.lock), (void *)regs->di))
			return true;
		holder->pid = mutex.lock & FUTEX_TID;
		holder->tgid = is_private ? task->tgid : 0;
		return true;
	}
	if (word == RWLOCK_WORD_WAITED_FOR && writer_of_rwlock(holder, regs->di, is_private)) {
		holder->tgid = task->tgid;
		return true;
	}
	if (!is_word_of_lock(word))
		return false;
	if (bpf_probe_read_user(&mutex, sizeof(mutex), (void *)regs->di))
		return true;
	type = mutex.kind & GLIBC_KIND_TYPE;
	if (mutex.kind & ~(GLIBC_KIND_TYPE | GLIBC_KIND_ROBUST | GLIBC_KIND_OTHER))
		return true;
	if (mutex.lock != word || !mutex.users || mutex.owner <= 0)
		return true;
	if ((type == GLIBC_KIND_RECURSIVE) != (mutex.count != 0))
		return true;
	if (mutex.kind & GLIBC_KIND_ROBUST) {
		if ((mutex.lock & FUTEX_TID) != (__u32)mutex.owner)
			return true;
	} else if (mutex.lock != GLIBC_LOCKED_WITH_WAITERS) {
		return true;
	}
	holder->pid = mutex.owner;
	holder->tgid = task->tgid;
	return true;
}

/* A walk through the locks of a file, in search of one that the wanted lock has to wait for. */
struct lock_walk {
	__u64 at, head;
	__u64 file, files; /* the sleeper's own: their locks do not block it */
	__s64 start, end;
	__u32 wants_write;
	__u32 by_range; /* a POSIX lock, not flock() */
	__s32 pid;
};

static long next_file_lock(__u32 index, struct lock_walk *walk)
{
	__u64 owner, file;
	__u8 type;
	__s64 start, end;
	__s32 pid;

	if (!walk->at || walk->at == walk->head)
		return 1;
	if (bpf_core_type_exists(struct file_lock_core)) {
		struct file_lock_core *core =
			(void *)(walk->at - bpf_core_field_offset(struct file_lock_core, flc_list));
		struct file_lock___new *lock = (void *)core;

		owner = (__u64)BPF_CORE_READ(core, flc_owner);
		file = (__u64)BPF_CORE_READ(core, flc_file);
		type = BPF_CORE_READ(core, flc_type);
		pid = BPF_CORE_READ(core, flc_pid);
		start = BPF_CORE_READ(lock, fl_start);
		end = BPF_CORE_READ(lock, fl_end);
		walk->at = (__u64)BPF_CORE_READ(core, flc_list.next);
	} else {
		struct file_lock___old *lock =
			(void *)(walk->at - bpf_core_field_offset(struct file_lock___old, fl_list));

		owner = (__u64)BPF_CORE_READ(lock, fl_owner);
		file = (__u64)BPF_CORE_READ(lock, fl_file);
		type = BPF_CORE_READ(lock, fl_type);
		pid = BPF_CORE_READ(lock, fl_pid);
		start = BPF_CORE_READ(lock, fl_start);
		end = BPF_CORE_READ(lock, fl_end);
		walk->at = (__u64)BPF_CORE_READ(lock, fl_list.next);
	}
	if (!walk->wants_write && type != F_WRLCK)
		return 0;
	if (walk->by_range) {
		if (owner == walk->files || owner == walk->file || start > walk->end ||
		    end < walk->start)
			return 0;
	} else if (file == walk->file) {
		return 0;
	}
	walk->pid = pid;
	return 1;
}

/* The range that fcntl() asks for, from start to end, both inclusive. */
static __always_inline bool read_range(struct lock_walk *walk, struct file *file, __u64 argument)
{
	struct {
		__s16 type, whence;
		__s64 start, length;
	} wanted;
	__s64 end_of_file, from = 0;

	if (bpf_probe_read_user(&wanted, sizeof(wanted), (void *)argument))
		return false;
	if (wanted.whence == 1) {
		from = BPF_CORE_READ(file, f_pos);
	} else if (wanted.whence == 2) {
		end_of_file = BPF_CORE_READ(file, f_inode, i_size);
		from = end_of_file;
	}
	walk->wants_write = wanted.type == F_WRLCK;
	walk->start = from + wanted.start;
	walk->end = walk->start + wanted.length - 1;
	if (wanted.length == 0)
		walk->end = 0x7fffffffffffffffLL;
	if (wanted.length < 0) {
		walk->end = walk->start - 1;
		walk->start += wanted.length;
	}
	return wanted.type != F_UNLCK;
}

static __noinline int holder_of_file_lock(struct holder *holder, struct task_struct *task,
					  __u32 call)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct file_lock_context *context;
	struct lock_walk walk = {};
	struct list_head *head;
	struct file *file;

	if (!regs)
		return 0;
	file = file_of(task, regs->di);
	if (!file)
		return 0;
	context = BPF_CORE_READ(file, f_inode, i_flctx);
	if (!context)
		return 0;
	walk.file = (__u64)file;
	walk.files = (__u64)BPF_CORE_READ(task, files);
	if (call == NR_FLOCK) {
		walk.wants_write = (regs->si & LOCK_EX) != 0;
		head = &context->flc_flock;
	} else {
		walk.by_range = 1;
		head = &context->flc_posix;
		if (!read_range(&walk, file, regs->dx))
			return 0;
		/* A process's locks and those of its open files may block each other. */
		if (regs->si == F_OFD_SETLKW)
			walk.files = 0;
		else
			walk.file = 0;
	}
	walk.head = (__u64)head;
	walk.at = (__u64)BPF_CORE_READ(head, next);
	bpf_loop(FILE_LOCKS_MAX, next_file_lock, &walk, 0);
	if (walk.pid > 0) { /* -1: a lock of an open file description, which has no process */
		holder->pid = walk.pid;
		holder->certainty = DEBOX_OWNER_EXACT;
		holder->is_process = true;
	}
	return 0;
}

/* Time asleep in the thread's life, up to now. */
static __always_inline __u64 blocked_so_far(struct thread *thread, __u64 now)
{
	struct wait *wait = wait_at(thread->index);
	__u64 open = 0;

	if (thread->mode == MODE_BLOCKED) {
		open = part_began(thread);
		open = now > open ? now - open : 0;
	} else if (thread->mode == MODE_RUNQUEUE) {
		open = thread->sleep_ns; /* woken, but yet to run */
	}
	if (!wait || wait->tid != thread->tid)
		return open;
	return wait->blocked_ns + open;
}

/* The call that a task is in, whether the task is monitored or not. */
static __always_inline __u32 call_of(struct task_struct *task, struct thread *thread)
{
	struct pt_regs *regs;

	if (thread)
		return thread->call;
	if (task->flags & PF_KTHREAD)
		return CALL_NONE;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if (!regs || (long)regs->orig_ax < 0 || (long)regs->ax != -ENOSYS)
		return CALL_NONE;
	return call_number(task, regs->orig_ax);
}

/* What a task is doing now, and where it sleeps if it does. `aside`: called from an iterator. */
static __noinline int note_doing(struct owner *owner, struct task_struct *task, bool aside)
{
	struct contended *contended;
	struct thread *thread;
	__u64 site;
	bool queued;

	if (task->on_cpu) {
		owner->doing = DOING_ON_CPU;
		return 0;
	}
	queued = task->on_rq;
	if (queued && bpf_core_field_exists(task->se.sched_delayed) && task->se.sched_delayed)
		queued = false;
	if (queued || !task->__state) {
		owner->doing = DOING_WAITING_FOR_CPU;
		return 0;
	}
	thread = thread_with_storage(task);
	owner->call = call_of(task, thread);
	contended = contended_of(task);
	if (contended)
		owner->lock_flags = contended->flags;
	owner->stack = aside ? take_stack_aside(task, owner->call)
			     : take_kernel_stack(task, owner->call, &site);
	owner->doing = task->on_cpu ? DOING_ON_CPU : DOING_ASLEEP;
	return 0;
}

/* Of another user's task only its existence is shown. */
static __always_inline bool is_foreign(struct owner *owner, struct thread *sleeper,
				       struct task_struct *task)
{
	owner->tid = known_number(sleeper, task);
	show_comm(owner->comm, task, owner->tid);
	return for_others && !owner->tid;
}

/*
 * Before 6.2 a holder that is not monitored cannot be looked up: only the task to which the lock
 * itself points can be read.
 */
static __always_inline void describe_unasked(struct owner *owner, struct holder *holder,
					     struct thread *sleeper)
{
	struct task_struct *task = (struct task_struct *)holder->task;

	if (!task || holder->certainty != DEBOX_OWNER_EXACT)
		return;
	owner->certainty = DEBOX_OWNER_EXACT;
	if (!is_foreign(owner, sleeper, task) && BPF_CORE_READ(task, on_cpu))
		owner->doing = DOING_ON_CPU;
}

/* The live thread with this number, if it is monitored. */
static __always_inline struct thread *thread_numbered(__s32 pid)
{
	struct thread *thread = thread_at(task_index_cache[pid & (TASK_INDEX_CACHE - 1)] - 1);
	struct task_struct *task;

	if (!thread || !thread->task || thread->state != THREAD_LIVE)
		return 0;
	task = (struct task_struct *)thread->task;
	return BPF_CORE_READ(task, pid) == pid ? thread : 0;
}

/*
 * Describes a monitored holder without the kernel's help, from what the probes have seen of it.
 * They have not seen where a thread sleeps that has yet to wake up. Returns whether the holder is
 * monitored.
 */
static __always_inline bool describe_monitored(struct owner *owner, struct holder *holder,
					       struct task_struct *self, struct thread *sleeper,
					       __u64 now)
{
	struct thread *thread = thread_numbered(holder->pid);
	struct task_struct *task;

	if (!thread || (holder->task && holder->task != thread->task))
		return false;
	if (holder->own_number && BPF_CORE_READ(self, thread_pid, level))
		return false;
	task = (struct task_struct *)thread->task;
	if ((holder->tgid && holder->tgid != BPF_CORE_READ(task, tgid)) || holder->pid == self->pid)
		return false;
	owner->certainty = holder->certainty;
	if (is_foreign(owner, sleeper, task))
		return true;
	owner->index = thread->index + 1;
	owner->blocked_ns = blocked_so_far(thread, now);
	if (holder->is_process && BPF_CORE_READ(task, signal, nr_threads) != 1)
		return true;
	if (thread->mode == MODE_RUNNING)
		owner->doing = DOING_ON_CPU;
	else if (thread->mode != MODE_BLOCKED)
		owner->doing = DOING_WAITING_FOR_CPU;
	return true;
}

static __noinline int describe_holder(struct owner *owner, struct holder *holder,
				      struct task_struct *self, struct thread *sleeper, __u64 now)
{
	struct task_struct *task;
	struct thread *thread;

	if (holder->pid <= 0)
		return 0;
	if (!bpf_ksym_exists(bpf_task_from_pid)) {
		if (!describe_monitored(owner, holder, self, sleeper, now))
			describe_unasked(owner, holder, sleeper);
		return 0;
	}
	if (!holder->own_number || !BPF_CORE_READ(self, thread_pid, level))
		task = bpf_task_from_pid(holder->pid);
	else if (bpf_ksym_exists(bpf_task_from_vpid))
		task = bpf_task_from_vpid(holder->pid);
	else
		return 0;
	if (!task)
		return 0;
	if ((!holder->task || holder->task == (__u64)task) &&
	    (!holder->tgid || holder->tgid == task->tgid) && task->pid != self->pid) {
		owner->certainty = holder->certainty;
		if (is_foreign(owner, sleeper, task))
			goto out;
		thread = thread_with_storage(task);
		if (thread && thread->state == THREAD_LIVE) {
			owner->index = thread->index + 1;
			owner->blocked_ns = blocked_so_far(thread, now);
		}
		if (!holder->is_process || BPF_CORE_READ(task, signal, nr_threads) == 1)
			note_doing(owner, task, sleeper->state != THREAD_LIVE);
	}
out:
	bpf_task_release(task);
	return 0;
}

/* Finds who holds what the thread is about to wait for. `lock`: a contended kernel lock, or 0. */
static __noinline int find_owner(struct wait *wait, struct thread *thread, struct task_struct *task,
				 __u64 lock)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct holder holder = {};
	__u32 call = plain_call(thread);

	if (lock) {
		holder_of_lock(&holder, lock, thread->lock_flags);
	} else if (call == NR_FUTEX) {
		if (!regs || !holder_of_futex(&holder, regs, task))
			return 0;
	} else if (call == NR_FLOCK || (call == NR_FCNTL && regs &&
					(regs->si == F_SETLKW || regs->si == F_OFD_SETLKW))) {
		holder_of_file_lock(&holder, task, call);
	} else {
		return 0;
	}
	wait->ownable = 1;
	describe_holder(&wait->owner, &holder, task, thread, wait->begin_ns);
	return 0;
}

#endif
