/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * cpus.h: who had the CPU that a thread waited for, or what kept the thread off it.
 *
 * The gate notes the turns on each CPU (gate.h). When a wait has ended, it is divided among the
 * turns that overlap it. A wait caused by a quota shows in the clock that the kernel keeps of a
 * group's throttled time. Time that neither explains is counted as unknown.
 */
#ifndef PROBE_CPUS_H
#define PROBE_CPUS_H

#include "callcpu.h"
#include "state.h"

#define NO_QUOTA (~0ULL)
#define GROUP_DEPTH 16

#define CPU_ROWS 4096
#define OWN_ROWS_MAX                                                                               \
	(CPU_ROWS - 1024) /* for owners of their own; the rest are for CPU_OWNER_MANY */

__u32 cpu_rows_used;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CPU_ROWS);
	__type(key, struct cpu_key);
	__type(value, struct cpu_row);
} cpu_rows SEC(".maps");

/* The wait that is being attributed. Not on the stack, which is small. */
struct cpu_wait {
	__u64 from_ns, until_ns;
	__u64 told_ns; /* the part of the wait that is counted in rows */
	__u64 stolen_ns;
	__u64 last;	/* number of the last turn in it */
	__u64 begin_ns; /* of the call that waited */
	__u32 cpu;
	__u32 index, tid;
	__u32 own_tgid, shown_tgid; /* the waiting thread's, and how its reader knows it */
	struct cpu_key key;
	struct cpu_row add;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_wait);
} cpu_wait SEC(".maps");

static __always_inline struct cpu_wait *own_cpu_wait(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&cpu_wait, &zero);
}

static __always_inline bool has_quotas(void)
{
	return bpf_core_field_exists(struct sched_entity, cfs_rq) &&
	       bpf_core_field_exists(struct cfs_rq, throttle_count);
}

static __always_inline bool has_throttled_clock(void)
{
	return bpf_core_field_exists(struct cfs_rq, throttled_clock_self_time);
}

static __always_inline void note_queue(struct thread *thread, struct task_struct *task)
{
	struct cfs_rq *queue;

	thread->queue = 0;
	if (!has_quotas())
		return;
	queue = task->se.cfs_rq;
	thread->queue = (__u64)queue;
	thread->is_throttled = queue->throttle_count > 0;
	if (has_throttled_clock())
		thread->throttled_clock = queue->throttled_clock_self_time;
}

/* The thread is runnable, but another task takes its CPU. */
static __always_inline void note_pushed_off(struct thread *thread, struct task_struct *task,
					    struct task_struct *next)
{
	note_queue(thread, task);
	thread->left_cpu = bpf_get_smp_processor_id() + 1;
	thread->taker_tgid = next->tgid;
	thread->taker_flags = run_flags(next);
	copy_comm(thread->taker_comm, next->group_leader);
}

/* The CPU on which it will wait is not known yet. */
static __always_inline void note_woken(struct thread *thread, struct task_struct *task)
{
	note_queue(thread, task);
	thread->left_cpu = 0;
}

/* The kind of the owner as a reader of the call's record sees it. */
static __always_inline __u32 shown_kind(struct cpu_wait *wait)
{
	switch (wait->key.kind) {
	case CPU_OWNER_TASK:
		return wait->key.tgid == wait->shown_tgid ? DEBOX_CPU_OWNER_OWN
							  : DEBOX_CPU_OWNER_TASK;
	case CPU_OWNER_KERNEL:
		return DEBOX_CPU_OWNER_KERNEL;
	case CPU_OWNER_NONE:
		return DEBOX_CPU_OWNER_IDLE;
	case CPU_OWNER_STOLEN:
		return DEBOX_CPU_OWNER_STOLEN;
	}
	return DEBOX_CPU_OWNER_HIDDEN;
}

/* Adds `add` to the open call's wait for a CPU. Not static, so that it is verified once. */
__noinline int add_to_call(void)
{
	struct cpu_wait *wait = own_cpu_wait();
	struct call_cpu *of_call;
	__u64 ns;

	if (!wait)
		return 0;
	of_call = call_cpu_at(wait->index);
	if (!of_call)
		return 0;
	begin_call_cpu(of_call, wait->tid, wait->begin_ns);
	ns = wait->add.ns;
	of_call->told_ns += ns;
	if (wait->key.kind == CPU_OWNER_QUOTA)
		of_call->throttled_ns += ns;
	else if (wait->key.kind == CPU_OWNER_UNKNOWN)
		of_call->unknown_ns += ns;
	else
		add_holder(of_call, shown_kind(wait), wait->key.tgid, wait->add.comm, ns);
	return 0;
}

/* Adds `add` to the row of `key`, and to the open call. */
static __noinline int add_cpu_row(void)
{
	struct cpu_wait *wait = own_cpu_wait();
	struct cpu_row *row;
	__u64 ns;

	if (!wait || !wait->add.ns)
		return 0;
	ns = wait->add.ns;
	wait->told_ns += ns;
	if (keeps_call_cpu())
		add_to_call();
	if (!want_report)
		return 0;
	if (want_live) { /* sums by process; those that are not read for long are forgotten */
		wait->key.call = 0;
		wait->key.part = 0;
	}
	row = bpf_map_lookup_elem(&cpu_rows, &wait->key);
	if (!row && !want_live && cpu_rows_used >= OWN_ROWS_MAX &&
	    wait->key.kind != CPU_OWNER_QUOTA && wait->key.kind != CPU_OWNER_STOLEN) {
		wait->key.kind = CPU_OWNER_MANY;
		wait->key.tgid = 0;
		wait->key.group = 0;
		__builtin_memset(wait->add.comm, 0, sizeof(wait->add.comm));
		row = bpf_map_lookup_elem(&cpu_rows, &wait->key);
	}
	if (!row) {
		wait->add.turns = 1;
		wait->add.max_ns = ns;
		if (!bpf_map_update_elem(&cpu_rows, &wait->key, &wait->add, BPF_NOEXIST)) {
			__sync_fetch_and_add(&cpu_rows_used, 1);
			return 0;
		}
		row = bpf_map_lookup_elem(&cpu_rows, &wait->key); /* another CPU was first */
	}
	if (!row) {
		COUNT_LOST(rows);
		return 0;
	}
	__sync_fetch_and_add(&row->turns, 1);
	__sync_fetch_and_add(&row->ns, ns);
	if (ns > row->max_ns)
		row->max_ns = ns;
	if (wait->add.cpus_allowed < row->cpus_allowed)
		row->cpus_allowed = wait->add.cpus_allowed;
	row->flags |= wait->add.flags;
	return 0;
}

/* Sets who had the CPU in the next part of the wait: a task of this process, with these flags. */
static __always_inline void set_owner(struct cpu_wait *wait, __u32 tgid, __u32 flags, __u64 ns)
{
	wait->add.ns = ns;
	wait->add.flags = flags & CPU_RUN_REAL_TIME;
	wait->key.tgid = tgid;
	if (flags & CPU_RUN_IDLE)
		wait->key.kind = CPU_OWNER_NONE;
	else if (flags & CPU_RUN_KERNEL)
		wait->key.kind = CPU_OWNER_KERNEL;
	else
		wait->key.kind = CPU_OWNER_TASK;
	if (tgid == wait->own_tgid) {
		wait->key.tgid = wait->shown_tgid;
	} else if (for_others && wait->key.kind == CPU_OWNER_TASK) {
		/* Other processes are not shown to a broker's client. */
		wait->key.kind = CPU_OWNER_HIDDEN;
		wait->key.tgid = 0;
		wait->add.flags = 0;
	}
}

static __always_inline bool is_shown(struct cpu_wait *wait)
{
	return wait->key.kind == CPU_OWNER_TASK || wait->key.kind == CPU_OWNER_KERNEL;
}

/*
 * How much the hypervisor took within the wait, which overlaps the turn from `begin` to `end` by
 * `ns`. It is not known when in the turn the time was stolen: as much as there is room outside of
 * the wait may have been stolen there.
 */
static __always_inline __u64 stolen_in_wait(__u64 stolen, __u64 begin, __u64 end, __u64 ns)
{
	__u64 outside = end - begin - ns;

	if (stolen <= outside)
		return 0;
	stolen -= outside;
	return stolen < ns ? stolen : ns;
}

static long add_turn(__u64 step, void *unused)
{
	struct cpu_wait *wait = own_cpu_wait();
	struct cpu_runs *on_cpu;
	struct cpu_run *run, *before;
	__u64 begin, end, from, until, stolen;
	__u32 cpu;

	if (!wait)
		return 1;
	cpu = wait->cpu;
	on_cpu = bpf_map_lookup_elem(&cpu_runs, &cpu);
	if (!on_cpu || wait->last < step + 1)
		return 1;
	run = &on_cpu->runs[(wait->last - step) & (CPU_RUNS - 1)];
	before = &on_cpu->runs[(wait->last - step - 1) & (CPU_RUNS - 1)];
	from = begin = before->until_ns;
	end = run->until_ns;
	if (end <= wait->from_ns || begin >= end) /* overwritten meanwhile */
		return 1;
	/* This switch ends the wait; the clock for the wait was read a moment later. */
	if (!step && cpu == bpf_get_smp_processor_id())
		end = wait->until_ns;
	until = end;
	if (until > wait->until_ns)
		until = wait->until_ns;
	if (from < wait->from_ns)
		from = wait->from_ns;
	if (from >= until)
		return 0;
	stolen = want_steal ? stolen_in_wait(run->stolen - before->stolen, begin, end, until - from)
			    : 0;
	wait->stolen_ns += stolen;
	set_owner(wait, run->tgid, run->flags, until - from - stolen);
	if (is_shown(wait))
		__builtin_memcpy(wait->add.comm, run->comm, sizeof(wait->add.comm));
	else
		__builtin_memset(wait->add.comm, 0, sizeof(wait->add.comm));
	add_cpu_row();
	return from <= wait->from_ns;
}

/* Names the group that had used up its quota, found through its threads' run queue. */
static __noinline int name_group(struct thread *thread)
{
	struct cpu_wait *wait = own_cpu_wait();
	struct cfs_rq *queue = (struct cfs_rq *)thread->queue;
	struct task_group *group;
	const char *name;

	if (!wait || !has_quotas())
		return 0;
	group = BPF_CORE_READ(queue, tg);
	for (int i = 0; i < GROUP_DEPTH && group; i++) {
		if (BPF_CORE_READ(group, cfs_bandwidth.quota) != NO_QUOTA)
			break;
		group = BPF_CORE_READ(group, parent);
	}
	if (!group)
		return 0;
	wait->add.quota_ns = BPF_CORE_READ(group, cfs_bandwidth.quota);
	wait->add.period_ns = BPF_CORE_READ(group, cfs_bandwidth.period);
	if (for_others)
		return 0;
	wait->key.group = BPF_CORE_READ(group, css.cgroup, kn, id);
	name = BPF_CORE_READ(group, css.cgroup, kn, name);
	bpf_probe_read_kernel_str(wait->add.group, sizeof(wait->add.group), name);
	return 0;
}

/*
 * How much of the wait the group's quota caused. On kernels without the clock: all of it if the
 * queue was throttled when the wait began.
 */
static __always_inline __u64 throttled_ns(struct thread *thread, __u64 waited)
{
	struct cfs_rq *queue = (struct cfs_rq *)thread->queue;
	__s64 ns;

	if (!has_quotas() || !queue)
		return 0;
	if (!has_throttled_clock())
		return thread->is_throttled ? waited : 0;
	ns = BPF_CORE_READ(queue, throttled_clock_self_time) - thread->throttled_clock;
	if (ns <= 0)
		return 0;
	return (__u64)ns < waited ? ns : waited;
}

/* Attributes the wait of a thread that has a CPU again. Not static, so that it is verified once. */
__noinline int account_cpu_wait(struct thread *thread, __u64 from_ns, __u64 until_ns, __u32 part)
{
	struct cpu_wait *wait = own_cpu_wait();
	struct cpu_runs *on_cpu;
	__u64 throttled;
	__u32 cpu;

	if (!thread || !wait || until_ns <= from_ns)
		return 0;
	__builtin_memset(wait, 0, sizeof(*wait));
	cpu = part == PART_PREEMPTED && thread->left_cpu ? thread->left_cpu - 1
							 : bpf_get_smp_processor_id();
	wait->from_ns = from_ns;
	wait->until_ns = until_ns;
	wait->cpu = cpu;
	wait->begin_ns = thread->begin_ns;
	wait->index = thread->index;
	wait->tid = thread->tid;
	wait->own_tgid = thread->own_tgid;
	wait->shown_tgid = thread->tgid;
	wait->key.call = thread->call;
	wait->key.part = part;
	wait->add.cpus_allowed = thread->cpus_allowed;
	throttled = throttled_ns(thread, until_ns - from_ns);
	if (throttled) {
		wait->key.kind = CPU_OWNER_QUOTA;
		wait->add.ns = throttled;
		if (want_report)
			name_group(thread);
		add_cpu_row();
		/*
		 * The throttled time comes first: a task that has the CPU meanwhile does not keep
		 * the thread from running.
		 */
		wait->from_ns += throttled;
		wait->key.group = 0;
		wait->add.quota_ns = wait->add.period_ns = 0;
		__builtin_memset(wait->add.group, 0, sizeof(wait->add.group));
	}
	on_cpu = bpf_map_lookup_elem(&cpu_runs, &cpu);
	if (on_cpu && on_cpu->written && wait->from_ns < until_ns) {
		wait->last = on_cpu->written - 1;
		bpf_loop(CPU_RUNS - 1, add_turn, 0, 0);
		wait->key.kind = CPU_OWNER_STOLEN;
		wait->key.tgid = 0;
		wait->add.flags = 0;
		wait->add.ns = wait->stolen_ns;
		__builtin_memset(wait->add.comm, 0, sizeof(wait->add.comm));
		add_cpu_row();
	}
	if (wait->told_ns >= until_ns - from_ns)
		return 0;
	/*
	 * The thread was moved to another CPU while the task that took its CPU still has it: no
	 * task has left that CPU since.
	 */
	if (part == PART_PREEMPTED && wait->told_ns == throttled && on_cpu &&
	    cpu != bpf_get_smp_processor_id()) {
		set_owner(wait, thread->taker_tgid, thread->taker_flags,
			  until_ns - from_ns - throttled);
		__builtin_memset(wait->add.comm, 0, sizeof(wait->add.comm));
		if (is_shown(wait))
			__builtin_memcpy(wait->add.comm, thread->taker_comm,
					 sizeof(wait->add.comm));
		add_cpu_row();
		return 0;
	}
	wait->key.kind = CPU_OWNER_UNKNOWN;
	wait->key.tgid = 0;
	wait->add.flags = 0;
	wait->add.ns = until_ns - from_ns - wait->told_ns;
	__builtin_memset(wait->add.comm, 0, sizeof(wait->add.comm));
	add_cpu_row();
	return 0;
}

#endif
