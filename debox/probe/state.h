/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * state.h: the session's maps and settings, and how a task's state is found.
 *
 * A monitored task carries the index of its entry in `threads` in task storage. For all other tasks
 * the test of task->bpf_storage ends each probe before it calls any helper. Reading the storage
 * takes a helper, too, so the entry is first looked up by the task's id (task_index_cache).
 */
#ifndef PROBE_STATE_H
#define PROBE_STATE_H

#include "gate.h"
#include "kernel.h"
#include "events.h"

/* What the session asked for; constants by the time the verifier sees them. */
const volatile bool want_sleeps = true;
const volatile bool want_callsites = false;
const volatile bool want_irq = false;
const volatile bool want_io = false;
const volatile bool want_cpu = false; /* who has the CPU that a thread waits for */
const volatile bool want_triggers = false;
const volatile bool want_history = false; /* the kernel tap only */
const volatile bool want_live = false;
const volatile bool want_report = true;	  /* the engine reads the events and makes a report */
const volatile bool want_records = false; /* write records where the threads can read them */
const volatile bool user_tap = false;
const volatile bool adopt_sleeps = false; /* also those that began before enrolment */
const volatile bool want_steal = false; /* there is a hypervisor, and the kernel reports its time */
const volatile bool keep_cpu = false;	/* in the probes at calls, which may be preempted */
const volatile __u64 slow_ns = 0;	/* with want_callsites: shorter calls are ignored */
const volatile bool one_process = false;  /* child processes are not followed */
const volatile bool for_others = false;	  /* the broker's: for processes without privilege */
const volatile bool shared_slots = false; /* with many clients, each with slots of its own */
const volatile __u64 name_key[2] = {};	  /* the key for the names of kernel addresses */
const volatile __u32 gate_bit = 1;	  /* which of the gate's sessions this is */
const volatile __u32 max_threads = 1;
const volatile __u32 max_records = 1;

/*
 * The bits that rules for labels look at in the arguments of each call. The name of a stack depends
 * on these bits, so that each table of sleeps has a row for each label.
 */
const volatile __u64 label_arg_masks[ROWS][3];

/* Set by the engine before it runs the enrolment iterator. */
__u32 enrol_tgid;
__u32 enrol_tid; /* 0: every thread of the process */
__u32 enrol_client;
__u32 enrol_ancestor; /* 0, or the process that it must descend from */
bool enrol_armed;
bool enrol_learns; /* only learn the client's PID namespace, which is the task's */
/*
 * Set before the tasks are shown: of those that sleep in a monitored call, only whose wait began
 * then or later. 0: all.
 */
__u64 show_from_ns;
__u32 enrol_count; /* threads that were enrolled this way so far */
__u32 ids_changed; /* how often a thread no longer belonged to its client */
__u32 next_fresh;  /* entries of `threads` given out so far */

/* index + 1 of a task by the low bits of its id, if the entry confirms that it is that task's. */
#define TASK_INDEX_CACHE 65536
static __u32 task_index_cache[TASK_INDEX_CACHE] SEC(".bss.near");

/* Names the types of events, so that the skeleton generated from BTF has them. */
struct {
	struct thread_ended thread_ended;
	struct call_site_seen call_site_seen;
	struct in_flight in_flight;
	struct resource_seen resource_seen;
	struct directory_seen directory_seen;
	struct stack_ask stack_ask;
	struct site_asked site_asked;
	struct trigger_fired trigger_fired;
	struct undecided_call undecided_call;
	struct title_seen title_seen;
} event_types;

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32); /* index + 1 */
} task_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

/* What each thread waits for, by the index of its entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wait);
} waits SEC(".maps");

/* Entries of `threads` whose task has ended, to be used again. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct debox_slot);
} slots SEC(".maps");

/* The thread id of each entry of `slots`, close together, for threads that look for theirs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} slot_tids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ROWS);
	__type(key, __u32);
	__type(value, struct row);
} rows SEC(".maps");

/* Calls whose number is outside `rows`: 32-bit programs, and some numbers that do not exist. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct row);
} unlisted_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct row);
} empty_row SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lost);
} lost_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} events SEC(".maps");

/*
 * Without types, like the maps that take its place: 6.1 does not let a map with types stand for
 * those.
 */
struct client_slots {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct debox_slot));
};

/* The slots of each of the broker's clients: an array that only that client has mapped. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct client_slots);
} slots_of_clients SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct client);
} clients SEC(".maps");

/* Entries of `threads` that a probe may still look at; the broker frees them some time later. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} retired_threads SEC(".maps");

char LICENSE[] SEC("license") = "Dual MIT/GPL";

static __always_inline struct lost *lost(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&lost_counts, &zero);
}

#define COUNT_LOST(what)                                                                           \
	do {                                                                                       \
		struct lost *counts_ = lost();                                                     \
		if (counts_)                                                                       \
			counts_->what++;                                                           \
	} while (0)

static __always_inline struct thread *thread_at(__u32 index)
{
	return bpf_map_lookup_elem(&threads, &index);
}

static __always_inline struct wait *wait_at(__u32 index)
{
	return bpf_map_lookup_elem(&waits, &index);
}

/* The task's index + 1, or 0 when it is not monitored. */
static __always_inline __u32 index_of(struct task_struct *task)
{
	__u32 *index;

	index = bpf_task_storage_get(&task_index, task, 0, 0);
	return index ? *index : 0;
}

/*
 * The entry of a task, found by the index in its storage. Keeps the index at hand for the next
 * time.
 */
static __noinline struct thread *find_thread(struct task_struct *task)
{
	__u32 index = index_of(task);

	if (!index)
		return 0;
	task_index_cache[task->pid & (TASK_INDEX_CACHE - 1)] = index;
	return thread_at(index - 1);
}

/*
 * The entry of a task that has storage; for other tasks this takes longer. The verifier searches
 * all of the kernel's types at each read of a pointer, so a probe with many paths tests
 * task->bpf_storage once, at its beginning.
 */
static __always_inline struct thread *thread_with_storage(struct task_struct *task)
{
	struct thread *thread = thread_at(task_index_cache[task->pid & (TASK_INDEX_CACHE - 1)] - 1);

	if (LIKELY(thread && thread->task == (__u64)task))
		return thread;
	return find_thread(task);
}

static __always_inline struct thread *thread_of(struct task_struct *task)
{
	return task->bpf_storage ? thread_with_storage(task) : 0;
}

/* Makes the gate pass the task's events to this session. */
static __always_inline bool join_gate(struct task_struct *task)
{
	struct gate_task fresh = {};
	struct gate_task *at_gate;

	at_gate = bpf_task_storage_get(&gate_tasks, task, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!at_gate)
		return false;
	__sync_fetch_and_or(&at_gate->sessions, gate_bit);
	return true;
}

/* The storage element stays: another session may be joining at this moment. */
static __always_inline void leave_gate(struct task_struct *task)
{
	struct gate_task *at_gate = bpf_task_storage_get(&gate_tasks, task, 0, 0);

	if (at_gate)
		__sync_fetch_and_and(&at_gate->sessions, ~gate_bit);
}

static __always_inline void copy_comm(char *to, struct task_struct *task)
{
	BPF_CORE_READ_STR_INTO((char(*)[DEBOX_COMM_LEN])to, task, comm);
}

static __always_inline bool is_restart(long ret)
{
	return ret == -ERESTARTSYS || ret == -ERESTARTNOINTR || ret == -ERESTARTNOHAND ||
	       ret == -ERESTART_RESTARTBLOCK;
}

static __always_inline bool is_error(long ret)
{
	return ret < 0 && ret >= -4095;
}

#endif
