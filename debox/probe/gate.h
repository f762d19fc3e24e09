/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * gate.h: what all sessions on the machine share, so that processes that are not monitored pay for
 * only one of them.
 *
 * The gate's programs (gate.bpf.c) are attached to the tracepoints, once for all sessions. They
 * find out which sessions monitor the task of an event, and call each of these sessions' program
 * for the event. A session has a number below GATE_SESSIONS; sets of sessions are bit masks.
 */
#ifndef PROBE_GATE_H
#define PROBE_GATE_H

#include "kernel.h"
#include "waiters.h"

/*
 * The list of events is a part of the gate's version by itself. What else depends on the layout of
 * what sessions share (struct gate_control in gate.bpf.c, and the maps gate_tasks, contended_lock,
 * lock_waiters and cpu_runs) has a number that changes with it: FORMAT in
 * debox/engine/src/gate/control.rs.
 */
#define GATE_SESSIONS 32 /* the kernel lets one program call 33 others at most */

#define GATE_EVENTS(X)                                                                             \
	X(sys_enter)                                                                               \
	X(sys_enter_spare)                                                                         \
	X(sys_exit)                                                                                \
	X(sys_exit_spare)                                                                          \
	X(switch)                                                                                  \
	X(waking)                                                                                  \
	X(fork)                                                                                    \
	X(exec)                                                                                    \
	X(contention_begin)                                                                        \
	X(contention_end)                                                                          \
	X(bio_queue)                                                                               \
	X(signal_deliver)                                                                          \
	X(kernel_fault)                                                                            \
	X(irq_handler_entry)                                                                       \
	X(irq_handler_exit)                                                                        \
	X(softirq_entry)                                                                           \
	X(softirq_exit)                                                                            \
	X(local_timer_entry)                                                                       \
	X(local_timer_exit)                                                                        \
	X(reschedule_entry)                                                                        \
	X(reschedule_exit)                                                                         \
	X(call_function_entry)                                                                     \
	X(call_function_exit)                                                                      \
	X(call_function_single_entry)                                                              \
	X(call_function_single_exit)

#define GATE_NUMBER(event) GATE_##event,
enum gate_event { GATE_EVENTS(GATE_NUMBER) GATE_EVENTS_COUNT };

/*
 * The last turns on each CPU, with who had it. Noted at every switch on the machine while a session
 * asks who had the CPU that its threads waited for.
 */
#define CPU_RUNS 128

enum cpu_run_flag {
	CPU_RUN_IDLE = 1 << 0,
	CPU_RUN_KERNEL = 1 << 1,
	CPU_RUN_REAL_TIME = 1 << 2,
};

struct cpu_run {
	__u64 until_ns;
	__u64 stolen;	   /* what the hypervisor had taken from the CPU by then */
	__u32 tgid, flags; /* enum cpu_run_flag */
	char comm[16];	   /* of the process */
};

struct cpu_runs {
	__u64 written; /* turns noted so far; modulo CPU_RUNS, the next one's place */
	struct cpu_run runs[CPU_RUNS];
};

/*
 * How much the hypervisor has taken so far from the CPU of a task that comes or leaves. The CPU's
 * run queue has the sum, brought up to date before the event. (The per-CPU variable would be more
 * direct, but probes cannot read it on a kernel without CONFIG_KALLSYMS_ALL.)
 */
static __always_inline __u64 stolen_so_far(struct task_struct *task)
{
	if (!bpf_core_field_exists(struct rq, prev_steal_time_rq) ||
	    !bpf_core_field_exists(struct cfs_rq, rq))
		return 0;
	return task->se.cfs_rq->rq->prev_steal_time_rq;
}

static __always_inline __u32 run_flags(struct task_struct *task)
{
	__u32 flags = 0;

	if (!task->pid)
		flags = CPU_RUN_IDLE;
	else if (task->flags & PF_KTHREAD)
		flags = CPU_RUN_KERNEL;
	return task->prio < MAX_RT_PRIO ? flags | CPU_RUN_REAL_TIME : flags;
}

/* One for each possible CPU. Not a per-CPU map: a waiting thread may be moved to another CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_runs);
} cpu_runs SEC(".maps");

/* The sessions that monitor a task. In task storage, so it goes with the task. */
struct gate_task {
	__u32 sessions;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct gate_task);
} gate_tasks SEC(".maps");

/*
 * The lock that a task contends for. contention_begin (5.19) is repeated without an end when a
 * mutex goes from spinning to sleeping and back, so the lock is kept with the task. All tasks are
 * followed, in order to count waiters that are not monitored.
 */
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

/* How many tasks contend for each lock. */
struct waiter_table lock_waiters SEC(".maps");

/* The lock that the task is waiting for, if any. */
static __always_inline struct contended *contended_of(struct task_struct *task)
{
	struct contended *contended = bpf_task_storage_get(&contended_lock, task, 0, 0);

	return contended && contended->lock ? contended : 0;
}

#endif
