/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * record.h: writes the record of a call where its thread can read it.
 *
 * Only the kernel tap completes records here; under the user tap the thread does so itself and the
 * probes add sleeps and parts.
 */
#ifndef PROBE_RECORD_H
#define PROBE_RECORD_H

#include "state.h"
#include "callcpu.h"
#include "client.h"

/* The slot of the thread whose entry has this index. */
static __always_inline struct debox_slot *slot_of(struct thread *thread, __u32 index)
{
	__u32 number;
	void *own;

	if (!shared_slots)
		return bpf_map_lookup_elem(&slots, &index);
	number = thread->client;
	own = bpf_map_lookup_elem(&slots_of_clients, &number);
	if (!own)
		return 0;
	number = thread->slot;
	return bpf_map_lookup_elem(own, &number);
}

static __always_inline struct debox_record *open_record(struct debox_slot *slot)
{
	return &slot->history[slot->completed % DEBOX_HISTORY_MAX];
}

static __always_inline void name_slot(__u32 index, __u32 tid)
{
	__u32 *named;

	if (shared_slots)
		return;
	named = bpf_map_lookup_elem(&slot_tids, &index);
	if (named)
		*named = tid;
}

/* The calls that the thread has to decide itself (trigger.h). */
static __always_inline struct undecided_call *undecided_of(struct debox_slot *slot)
{
	return (struct undecided_call *)slot->triggers_undecided;
}

static __always_inline void begin_slot(struct thread *thread, __u32 index)
{
	struct debox_slot *slot = slot_of(thread, index);

	if (!slot) {
		COUNT_LOST(records);
		return;
	}
	name_slot(index, thread->tid);
	slot->version = DEBOX_VERSION;
	slot->size = sizeof(*slot);
	slot->tgid = thread->tgid;
	slot->paused = 0;
	slot->max_sleeps = DEBOX_SLEEPS_MAX;
	slot->max_trace = 0;
	slot->gone = 0;
	slot->trace_open = 0;
	slot->trace_open_lost = 0;
	slot->completed = 0;
	slot->tap_call = 0;
	slot->tap_touched = 0;
	slot->tap_foreign = 0;
	slot->tap_handler = 0;
	slot->tap_faults = 0;
	slot->tap_abandoned = 0;
	slot->tap_unstamped = 0;
	for (int i = 0; i < PARTS; i++)
		slot->tap_totals_ns[i] = 0;
	slot->totals.birth_ns = 0; /* the rest is written when its life begins */
	slot->totals.sleeps = 0;
	slot->totals.unseen = 0;
	slot->totals.unseen_ns = 0;
	slot->triggers_fired = 0;
	for (int i = 0; i < UNDECIDED_MAX; i++)
		undecided_of(slot)[i].number = 0;
	for (int i = 0; i < DEBOX_HISTORY_MAX; i++) {
		/*
		 * A reader that still looks at the slot's previous thread must notice: the sequence
		 * never goes back.
		 */
		slot->history[i].sequence = (slot->history[i].sequence | 1) + 1;
		slot->history[i].number = 0;
		slot->history[i].sleeps_used = 0;
		slot->history[i].sleeps_lost = 0;
	}
	barrier();
	slot->tid = thread->tid; /* last: a reader that finds it reads the rest */
}

/* The thread has ended: its id may be used again, and must not be found here. */
static __always_inline void end_slot(struct thread *thread, __u32 index)
{
	struct debox_slot *slot = slot_of(thread, index);

	if (slot)
		slot->tid = 0;
	name_slot(index, 0);
	if (shared_slots)
		give_slot_back(thread);
}

/* Odd while the record is being written. */
static __always_inline void begin_write(struct debox_record *record)
{
	if (!(record->sequence & 1)) {
		record->sequence++;
		record->sleeps_used = 0;
		record->sleeps_lost = 0;
	}
	barrier();
}

/* What the call's arguments say it waits on, for sleeps that were not on a kernel lock. */
static __always_inline __u32 resource_kind_of(__u32 call)
{
	switch (call) {
	case 202: /* futex */
		return DEBOX_RESOURCE_FUTEX;
	case 35:  /* nanosleep */
	case 230: /* clock_nanosleep */
		return DEBOX_RESOURCE_TIMER;
	case 61: /* wait4 */
		return DEBOX_RESOURCE_CHILD;
	case 0:
	case 1: /* read, write */
	case 17:
	case 18: /* pread64, pwrite64 */
	case 19:
	case 20: /* readv, writev */
	case 42:
	case 43:
	case 288: /* connect, accept, accept4 */
	case 44:
	case 45:
	case 46:
	case 47: /* sendto, recvfrom, sendmsg, recvmsg */
	case 72:
	case 73: /* fcntl, flock */
	case 74:
	case 75: /* fsync, fdatasync */
	case 232:
	case 281:
	case 441: /* epoll_wait, epoll_pwait, epoll_pwait2 */
		return DEBOX_RESOURCE_FD;
	}
	return DEBOX_RESOURCE_NONE;
}

/* What the sleep that has just ended was for, in the caller's own terms. */
static __always_inline void record_resource(struct debox_sleep *sleep, struct thread *thread,
					    struct task_struct *task, struct wait *wait)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

	if (wait && wait->resource.kind == DEBOX_RESOURCE_DISK) {
		sleep->resource = wait->resource.device;
		sleep->resource_kind = DEBOX_RESOURCE_DISK;
		return;
	}
	if (thread->flags & THREAD_LOCK) {
		sleep->resource = shown_object(thread, thread->resource);
		sleep->resource_kind = DEBOX_RESOURCE_LOCK;
		sleep->lock_flags = thread->lock_flags;
		return;
	}
	sleep->lock_flags = thread->lock_flags & DEBOX_LOCK_TIMED_OUT;
	sleep->resource_kind = resource_kind_of(thread->call);
	if (regs && sleep->resource_kind != DEBOX_RESOURCE_NONE &&
	    sleep->resource_kind != DEBOX_RESOURCE_TIMER)
		sleep->resource = regs->di;
}

/* Adds the sleep that has just ended to the open record. */
static __always_inline void record_sleep(struct thread *thread, struct task_struct *task,
					 struct wait *wait, __u64 stack, __u64 site,
					 __u32 waiters_exit)
{
	struct debox_slot *slot = slot_of(thread, thread->index);
	struct debox_record *record;
	struct debox_sleep *sleep;
	__u32 used, limit;

	if (!slot || slot->paused || thread->call == CALL_NONE)
		return;
	record = open_record(slot);
	begin_write(record);
	used = record->sleeps_used;
	limit = slot->max_sleeps < DEBOX_SLEEPS_MAX ? slot->max_sleeps : DEBOX_SLEEPS_MAX;
	for (__u32 i = 0; i < DEBOX_SLEEPS_MAX; i++) {
		if (i >= limit) {
			record->sleeps_lost++;
			return;
		}
		sleep = &record->sleeps[i];
		if (i >= used) {
			__builtin_memset(sleep, 0, sizeof(*sleep));
			sleep->site = site;
			sleep->stack = stack;
			record->sleeps_used = i + 1;
		} else if (sleep->stack != stack) {
			continue;
		}
		sleep->count++;
		sleep->blocked_ns += thread->sleep_ns;
		if (thread->sleep_ns > sleep->longest_ns)
			sleep->longest_ns = thread->sleep_ns;
		record_resource(sleep, thread, task, wait);
		if (wait && wait->ownable) {
			sleep->owner_tid = wait->owner.tid;
			sleep->owner_certainty = wait->owner.certainty;
			__builtin_memcpy(sleep->owner_comm, wait->owner.comm, DEBOX_COMM_LEN);
		}
		sleep->waker_kind = thread->waker_kind;
		sleep->waker_tid = thread->waker_tid;
		__builtin_memcpy(sleep->waker_comm, thread->waker_comm, DEBOX_COMM_LEN);
		/* A broker's client is not shown how many other tasks wait for a lock. */
		if (thread->flags & (for_others ? THREAD_COUNTED : THREAD_LOCK | THREAD_COUNTED)) {
			if (thread->waiters_entry > sleep->waiters_entry)
				sleep->waiters_entry = thread->waiters_entry;
			if (waiters_exit > sleep->waiters_exit)
				sleep->waiters_exit = waiters_exit;
			sleep->waiters_scope = thread->flags & THREAD_COUNTED
						       ? DEBOX_WAITERS_MONITORED
						       : DEBOX_WAITERS_ALL;
		}
		return;
	}
	record->sleeps_lost++;
}

/* Who had the CPU that the call waited for. */
static __always_inline void record_call_cpu(struct debox_record *record, struct thread *thread)
{
	struct call_cpu *of_call = sum_up_call_cpu(thread);

	if (!of_call) {
		record->throttled_ns = 0;
		record->cpu_owner_ns = 0;
		record->cpu_owner_kind = DEBOX_CPU_OWNER_NONE;
		record->cpu_owner_pid = 0;
		__builtin_memset(record->cpu_owner_comm, 0, DEBOX_COMM_LEN);
		return;
	}
	record->throttled_ns = of_call->throttled_ns;
	record->cpu_owner_ns = of_call->result.ns;
	record->cpu_owner_kind = of_call->result.kind;
	record->cpu_owner_pid = of_call->result.tgid;
	__builtin_memcpy(record->cpu_owner_comm, of_call->result.comm, DEBOX_COMM_LEN);
}

static __always_inline void complete_record(struct thread *thread, __u32 index,
					    struct pt_regs *regs, __u64 wall, long ret, __u64 minor,
					    __u64 major)
{
	struct debox_slot *slot = slot_of(thread, index);
	struct debox_record *record;
	__u16 flags = 0;

	if (!slot || slot->paused)
		return;
	record = open_record(slot);
	begin_write(record);
	record->version = DEBOX_VERSION;
	record->size = sizeof(*record);
	record->call = thread->call & 0xffff;
	record->abi = thread->call & CALL_IA32 ? DEBOX_ABI_IA32 : DEBOX_ABI_X86_64;
	if (is_error(ret) && is_restart(ret))
		flags |= DEBOX_RESTARTED;
	if (thread->flags & THREAD_PARTIAL)
		flags |= DEBOX_PARTIAL;
	if (want_irq)
		flags |= DEBOX_IRQ_MEASURED;
	if (keeps_call_cpu())
		flags |= DEBOX_CPU_MEASURED;
	if (UNLIKELY(!regs))
		flags |= DEBOX_END_UNSEEN;
	record->flags = flags;
	record->ret = ret;
	record->args[0] = regs ? regs->di : 0;
	record->args[1] = regs ? regs->si : 0;
	record->args[2] = regs ? regs->dx : 0;
	record->start_ns = thread->begin_ns;
	record->wall_ns = wall;
	record->budget.cpu_ns = thread->has_parts ? thread->parts[PART_CPU] : wall;
	record->budget.blocked_ns = thread->parts[PART_BLOCKED];
	record->budget.runqueue_ns = thread->parts[PART_RUNQUEUE];
	record->budget.preempted_ns = thread->parts[PART_PREEMPTED];
	record->budget.irq_ns = thread->parts[PART_IRQ];
	record->budget.outside_ns = 0;
	if (keeps_call_cpu())
		record_call_cpu(record, thread);
	record->faults_minor = minor;
	record->faults_major = major;
	record->trace_used = slot->trace_open;
	record->trace_lost = slot->trace_open_lost;
	record->trace_first = slot->trace_written - slot->trace_open;
	slot->trace_open = 0;
	slot->trace_open_lost = 0;
	record->number = thread->calls;
	barrier();
	record->sequence++;
	barrier();
	slot->completed++;
}

#endif
