/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * gate.bpf.c: the programs that are attached to the tracepoints, for all sessions together.
 *
 * A task that no session monitors has no task storage, and that test is all that its events cost,
 * however many sessions there are. For other tasks the gate calls the sessions' own programs (by
 * tail calls, of which the last does not return). State that belongs to the machine and not to one
 * session is kept here: how deep interrupts are nested, and who contends for which lock.
 */
#include "../include/debox.h"
#include "gate.h"

/* Mapped by every process that has a session at the gate (debox/engine/src/gate). */
struct gate_control {
	__u64 magic;
	__u32 version;
	__u32 lock; /* the token of the session that changes what is below */
	__u32 tasks_id, contended_id, waiters_id, runs_id; /* maps, by the kernel's numbers */
	__u32 accounting; /* the sessions that ask who has the CPUs */
	__u32 reserved;
	__u32 tokens[GATE_SESSIONS];	  /* a map that exists as long as the session */
	__u32 last_tokens[GATE_SESSIONS]; /* another one, with the session's highest descriptor */
	__u32 held[GATE_EVENTS_COUNT];	  /* the sessions that keep the event attached */
	__u32 wanted[GATE_EVENTS_COUNT];  /* those that have a program for the event */
	__u32 programs_id[GATE_EVENTS_COUNT]; /* the map of these programs */
	__u32 program_id[GATE_EVENTS_COUNT];  /* the gate's own program, and what attaches it */
	__u32 link_id[GATE_EVENTS_COUNT];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate_control);
} debox_gate SEC(".maps");

/* Interrupts on top of each other, on each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} irq_depth SEC(".maps");

/* For the engine: the events' names in the order of their numbers, and the layout of the map. */
#define GATE_NAME(event) #event "\n"
const volatile char event_names[] = GATE_EVENTS(GATE_NAME);
struct {
	struct gate_control control;
} gate_types;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Identifies the gate: a program that is never attached, and that uses one map. */
SEC("?raw_tp")
int gate_is_here(void *ctx)
{
	__u32 zero = 0;
	struct gate_control *control = bpf_map_lookup_elem(&debox_gate, &zero);

	return control ? control->version : 0;
}

static __always_inline __u32 wanted_for(__u32 event)
{
	__u32 zero = 0;
	struct gate_control *control = bpf_map_lookup_elem(&debox_gate, &zero);

	return control ? *(volatile __u32 *)&control->wanted[event] : 0;
}

static __always_inline __u32 sessions_of(struct task_struct *task)
{
	struct gate_task *at_gate = bpf_task_storage_get(&gate_tasks, task, 0, 0);

	return at_gate ? *(volatile __u32 *)&at_gate->sessions : 0;
}

/*
 * A single session checks the task itself, which is faster than looking up the task's sessions
 * here.
 */
static __always_inline bool is_for_one(__u32 sessions)
{
	return !(sessions & (sessions - 1));
}

static __always_inline __u32 wanted_by(__u32 event, struct task_struct *task)
{
	__u32 wanted = wanted_for(event);

	return is_for_one(wanted) ? wanted : wanted & sessions_of(task);
}

/*
 * The number of the lowest session. Not static, so that it is verified once, not for each set of
 * sessions.
 */
__noinline __u32 lowest(__u32 sessions)
{
	__u32 number = 0;

	sessions &= -sessions;
	number |= (sessions & 0xaaaaaaaa) ? 1 : 0;
	number |= (sessions & 0xcccccccc) ? 2 : 0;
	number |= (sessions & 0xf0f0f0f0) ? 4 : 0;
	number |= (sessions & 0xff00ff00) ? 8 : 0;
	number |= (sessions & 0xffff0000) ? 16 : 0;
	return number;
}

/* Each session's program for an event, and a function that calls it and returns. */
#define GATE_MAP(event)                                                                            \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY);                                             \
		__uint(max_entries, GATE_SESSIONS);                                                \
		__uint(key_size, sizeof(__u32));                                                   \
		__uint(value_size, sizeof(__u32));                                                 \
	} to_##event SEC(".maps");                                                                 \
	static __noinline int call_##event(unsigned long long *ctx, __u32 session)                 \
	{                                                                                          \
		bpf_tail_call(ctx, &to_##event, session);                                          \
		return 0;                                                                          \
	}
GATE_EVENTS(GATE_MAP)

/*
 * No session's number is a constant index here: the kernel would wait for all CPUs when the session
 * leaves.
 */
#define LET_THROUGH(event, ctx, set)                                                               \
	do {                                                                                       \
		__u32 sessions_ = (set), number_;                                                  \
		for (int i_ = 0; i_ < GATE_SESSIONS && sessions_; i_++) {                          \
			number_ = lowest(sessions_);                                               \
			sessions_ &= sessions_ - 1;                                                \
			if (!sessions_)                                                            \
				bpf_tail_call(ctx, &to_##event, number_);                          \
			else                                                                       \
				call_##event(ctx, number_);                                        \
		}                                                                                  \
	} while (0)

#define GATE_OF(event, tracepoint, of_task)                                                        \
	SEC("?tp_btf/" #tracepoint) int gate_##event(unsigned long long *ctx)                      \
	{                                                                                          \
		struct task_struct *task = of_task;                                                \
		if (LIKELY(!task->bpf_storage))                                                    \
			return 0;                                                                  \
		LET_THROUGH(event, ctx, wanted_by(GATE_##event, task));                            \
		return 0;                                                                          \
	}

#define CURRENT bpf_get_current_task_btf()
#define NAMED_FIRST (struct task_struct *)ctx[0]

GATE_OF(sys_enter, sys_enter, CURRENT)
GATE_OF(sys_enter_spare, sys_enter, CURRENT)
GATE_OF(sys_exit, sys_exit, CURRENT)
GATE_OF(sys_exit_spare, sys_exit, CURRENT)
GATE_OF(bio_queue, block_bio_queue, CURRENT)
GATE_OF(signal_deliver, signal_deliver, CURRENT)
GATE_OF(kernel_fault, page_fault_kernel, CURRENT)
GATE_OF(waking, sched_waking, NAMED_FIRST)
GATE_OF(fork, sched_process_fork, NAMED_FIRST)
GATE_OF(exec, sched_process_exec, NAMED_FIRST)

static __always_inline bool is_accounting(void)
{
	__u32 zero = 0;
	struct gate_control *control = bpf_map_lookup_elem(&debox_gate, &zero);

	return control && *(volatile __u32 *)&control->accounting;
}

/* The task leaves the CPU that it had. */
static __always_inline void note_run(struct task_struct *task)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu_runs *on_cpu = bpf_map_lookup_elem(&cpu_runs, &cpu);
	struct cpu_run *run;

	if (!on_cpu)
		return;
	run = &on_cpu->runs[on_cpu->written & (CPU_RUNS - 1)];
	run->tgid = task->tgid;
	run->flags = run_flags(task);
	BPF_CORE_READ_INTO(&run->comm, task, group_leader, comm);
	run->stolen = stolen_so_far(task);
	run->until_ns = bpf_ktime_get_ns();
	barrier();
	on_cpu->written++;
}

SEC("?tp_btf/sched_switch")
int gate_switch(unsigned long long *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx[1];
	struct task_struct *next = (struct task_struct *)ctx[2];
	bool leaves = prev->bpf_storage, comes = next->bpf_storage;
	__u32 wanted, sessions;

	/* Else the compiler would test both pointers at once, which the verifier does not allow. */
	asm volatile("" : "+r"(leaves), "+r"(comes));
	if (UNLIKELY(is_accounting()))
		note_run(prev);
	if (LIKELY(!leaves && !comes))
		return 0;
	wanted = wanted_for(GATE_switch);
	if (!is_for_one(wanted)) {
		sessions = leaves ? sessions_of(prev) : 0;
		if (comes)
			sessions |= sessions_of(next);
		wanted &= sessions;
	}
	LET_THROUGH(switch, ctx, wanted);
	return 0;
}

SEC("?tp_btf/contention_begin")
int gate_contention_begin(unsigned long long *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 lock = ctx[0];
	__u32 flags = ctx[1];
	struct contended *contended;

	/* Waiters for spinlocks and rwlocks are not counted. */
	if (!(flags & LCB_F_SPIN) || flags & LCB_F_MUTEX) {
		if (!flags) /* down() alone passes none */
			flags = DEBOX_LOCK_SEMAPHORE;
		contended = bpf_task_storage_get(&contended_lock, task, 0,
						 BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!contended)
			return 0;
		if (contended->lock != lock) {
			if (contended->lock) /* its end was not seen */
				take_from_waiters(&lock_waiters, contended->lock);
			contended->lock = lock;
			contended->waiters = add_to_waiters(&lock_waiters, lock);
		}
		contended->flags = flags & ~LCB_F_SPIN;
	}
	if (task->bpf_storage)
		LET_THROUGH(contention_begin, ctx, wanted_by(GATE_contention_begin, task));
	return 0;
}

SEC("?tp_btf/contention_end")
int gate_contention_end(unsigned long long *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 lock = ctx[0];
	struct contended *contended;

	if (!task->bpf_storage)
		return 0;
	contended = contended_of(task);
	if (contended && contended->lock == lock) {
		contended->lock = 0;
		take_from_waiters(&lock_waiters, lock);
	}
	LET_THROUGH(contention_end, ctx, wanted_by(GATE_contention_end, task));
	return 0;
}

/* At an interrupt's beginning: whether it interrupts no other one. */
static __always_inline bool is_first_interrupt(void)
{
	__u32 zero = 0, *depth = bpf_map_lookup_elem(&irq_depth, &zero);

	return depth && !(*depth)++;
}

/*
 * The same at an interrupt's end. The depth is 0 if the gate was attached in the middle of the
 * interrupt.
 */
static __always_inline bool is_last_interrupt(void)
{
	__u32 zero = 0, *depth = bpf_map_lookup_elem(&irq_depth, &zero);

	return depth && *depth && !--(*depth);
}

#define GATE_OF_INTERRUPT(event, counts)                                                           \
	SEC("?tp_btf/" #event) int gate_##event(unsigned long long *ctx)                           \
	{                                                                                          \
		struct task_struct *task = bpf_get_current_task_btf();                             \
		if (!counts() || !task->bpf_storage)                                               \
			return 0;                                                                  \
		LET_THROUGH(event, ctx, wanted_by(GATE_##event, task));                            \
		return 0;                                                                          \
	}

#define GATE_INTERRUPTS(name)                                                                      \
	GATE_OF_INTERRUPT(name##_entry, is_first_interrupt)                                        \
	GATE_OF_INTERRUPT(name##_exit, is_last_interrupt)

GATE_INTERRUPTS(irq_handler)
GATE_INTERRUPTS(softirq)
GATE_INTERRUPTS(local_timer)
GATE_INTERRUPTS(reschedule)
GATE_INTERRUPTS(call_function)
GATE_INTERRUPTS(call_function_single)
