/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * life.h: how threads come under monitoring (enrolment, fork) and how they end.
 */
#ifndef PROBE_LIFE_H
#define PROBE_LIFE_H

#include "calls.h"
#include "context.h"
#include "sleepers.h"
#include "usertap.h"

static __always_inline void forget_task(struct task_struct *task)
{
	leave_gate(task);
	bpf_task_storage_delete(&task_index, task);
}

/* Gives the task a cleared entry in `threads`. `client` is for sessions of the broker. */
static __always_inline struct thread *new_thread(struct task_struct *task, __u32 client,
						 __u32 *index_out)
{
	struct client *owner = shared_slots ? client_at(client) : 0;
	__u32 zero = 0, index;
	struct thread *thread;
	__u32 *stored;

	if (bpf_map_pop_elem(&free_threads, &index)) {
		index = __sync_fetch_and_add(&next_fresh, 1);
		if (index >= max_threads) {
			__sync_fetch_and_add(&next_fresh, -1);
			goto none;
		}
	}
	thread = thread_at(index);
	if (!thread)
		goto none;
	stored = bpf_task_storage_get(&task_index, task, &zero, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!stored || !join_gate(task)) {
		bpf_task_storage_delete(&task_index, task); /* if it is there */
		bpf_map_push_elem(&free_threads, &index, 0);
		goto none;
	}
	__builtin_memset(thread, 0, THREAD_PART);
	barrier(); /* else clang merges them into one again */
	__builtin_memset((char *)thread + THREAD_PART, 0, THREAD_PART);
	barrier();
	__builtin_memset((char *)thread + 2 * THREAD_PART, 0, sizeof(*thread) - 2 * THREAD_PART);
	thread->task = (__u64)task;
	thread->client = client;
	if (shared_slots && (!owner || !take_slot(owner, thread))) {
		forget_task(task);
		bpf_map_push_elem(&free_threads, &index, 0);
		goto none;
	}
	number_thread(thread, task);
	thread->call = CALL_NONE;
	thread->index = index;
	thread->ids_seen = ids_changed;
	copy_comm(thread->comm, task);
	if (want_records || want_stamps)
		begin_slot(thread, index);
	*stored = index + 1;
	*index_out = index;
	return thread;
none:
	COUNT_LOST(threads);
	return 0;
}

/*
 * The thread has left the CPU for the last time, or its session for good (`leaves`): everything
 * that is open ends here.
 */
static __always_inline void end_life(struct thread *thread, struct task_struct *task, void *ctx,
				     __u64 now, bool leaves)
{
	__u32 index = thread->index, before;
	struct thread_ended *event;

	if (shared_slots) {
		/* Only once: the client may be released at this moment. */
		before = __sync_lock_test_and_set(&thread->state, THREAD_ENDED);
		if (before == THREAD_FREE || before == THREAD_ENDED)
			return;
	}

	if (want_stamps)
		return_memory(thread);
	if (user_tap) {
		return_memory(thread);
		close_tapped_life(thread);
	} else if (thread->call == CALL_NONE)
		close_between(thread, 0, now);
	else
		close_call(thread, task, 0, 0, now, 0); /* exit never returns */
	if (!for_others)
		thread->tid = task->pid;
	copy_comm(thread->comm, task);
	thread->end_ns = now;
	thread->end_faults_minor = task->min_flt;
	thread->end_faults_major = task->maj_flt;
	thread->state = THREAD_ENDED;
	event = want_report ? bpf_ringbuf_reserve(&events, sizeof(*event), 0) : 0;
	if (event) {
		event->kind = EVENT_THREAD_ENDED;
		event->reserved = 0;
		__builtin_memcpy(&event->thread, thread, THREAD_PART);
		barrier();
		__builtin_memcpy((char *)&event->thread + THREAD_PART, (char *)thread + THREAD_PART,
				 THREAD_PART);
		barrier();
		__builtin_memcpy((char *)&event->thread + 2 * THREAD_PART,
				 (char *)thread + 2 * THREAD_PART,
				 sizeof(*thread) - 2 * THREAD_PART);
		/* No wake-up from inside the scheduler: the engine polls. */
		bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	} else if (want_report) {
		struct lost *counts = lost();

		if (counts) {
			counts->threads++;
			counts->calls += thread->calls;
			counts->faults_minor += task->min_flt - thread->birth_faults_minor -
						thread->call_faults_minor;
			counts->faults_major += task->maj_flt - thread->birth_faults_major -
						thread->call_faults_major;
			for (int i = 0; i < PARTS; i++) {
				counts->between[i] += thread->between[i];
				counts->in_calls[i] += thread->in_calls[i];
			}
		}
	}
	thread->task = 0; /* the entry cannot be found any more */
	thread->state = THREAD_FREE;
	if (want_records || want_stamps)
		end_slot(thread, index);
	/* A probe on another CPU may be using the entry of a thread that lives on. */
	if (leaves && for_others)
		bpf_map_push_elem(&retired_threads, &index, 0);
	else
		bpf_map_push_elem(&free_threads, &index, 0);
}

/* Ends the monitoring of a task: its client may not see what it does from here on. */
static __noinline int leave(struct thread *thread, struct task_struct *task, __u64 now)
{
	if (user_tap)
		close_tapped_part(thread, PART_CPU, now);
	else if (thread->has_parts)
		close_part(thread, PART_CPU, now);
	thread->flags |= THREAD_LEFT;
	end_life(thread, task, 0, now, true);
	forget_task(task);
	return 0;
}

/* How many seccomp filters a task is under. */
static __always_inline __u32 filters_of(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->seccomp.filter_count))
		return 0;
	return task->seccomp.filter_count.counter;
}

#define NR_PRCTL 157

/* Calls by which a thread changes who may look into it. */
static __always_inline bool changes_ids(__u32 call)
{
	switch (call) {
	case 105:
	case 106: /* setuid, setgid */
	case 113:
	case 114: /* setreuid, setregid */
	case 117:
	case 119: /* setresuid, setresgid */
	case 122:
	case 123: /* setfsuid, setfsgid */
	case NR_PRCTL:
		return true;
	}
	return call & CALL_IA32;
}

/*
 * Whether the ids of a thread have to be checked at the end of a call. One thread's call can forbid
 * others to look into the process, and this holds for all of its threads: each finds out at the end
 * of its next call. Until then the probes pass nothing of its memory on (may_be_read()).
 */
static __always_inline bool may_have_changed_ids(struct thread *thread, __u32 call)
{
	return for_others &&
	       (changes_ids(call) || thread->ids_seen != *(volatile __u32 *)&ids_changed);
}

/* Whether the thread no longer belongs to its client. */
static __always_inline bool has_other_ids(struct thread *thread, struct task_struct *task)
{
	thread->ids_seen = *(volatile __u32 *)&ids_changed;
	if (is_clients_own(task, client_of(thread)))
		return false;
	__sync_fetch_and_add(&ids_changed, 1);
	return true;
}

/*
 * seccomp refused the call before the entry tracepoint, so only its return is seen. It counts as a
 * call without time; its time stays in the time between calls.
 */
static __always_inline void refused_call(struct thread *thread, struct task_struct *task,
					 struct pt_regs *regs, long ret, __u64 now)
{
	long id = regs->orig_ax;
	struct row *row = row_of(call_number(task, id));

	if (!row)
		return;
	row->calls++;
	if (is_error(ret))
		row->errors++;
	row->histogram[0]++;
	thread->calls++;
	if (want_records)
		write_totals(thread, part_began(thread), false);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct thread *of_parent = thread_of(parent);
	struct thread *thread;
	__u32 index;

	if (!of_parent || of_parent->state != THREAD_LIVE)
		return 0;
	if (one_process && child->tgid != parent->tgid)
		return 0;
	note_preemption(parent);
	if (for_others && !is_clients_own(child, client_of(of_parent))) {
		COUNT_LOST(threads);
		return 0;
	}
	thread = new_thread(child, of_parent->client, &index);
	if (!thread)
		return 0;
	begin_life(thread, child, bpf_ktime_get_ns(), MODE_RUNQUEUE);
	thread->run_delay_ns = 0; /* it has not waited yet */
	thread->flags |= THREAD_BORN | (of_parent->flags & (THREAD_FILTERED | THREAD_ELSEWHERE));
	if (want_triggers && child->tgid != parent->tgid &&
	    BPF_CORE_READ(parent, mm) == BPF_CORE_READ(child, mm))
		thread->flags |= THREAD_ELSEWHERE;
	thread->filters = of_parent->filters;
	if (user_tap || want_stamps)
		lend_memory(of_parent, thread, parent, child);
	if (child->tgid != parent->tgid)
		send_birth(thread, of_parent);
	return 0;
}

/*
 * Notes whether the program runs under more seccomp filters than the session's first process. If
 * so, the shim does not ask for the session: the program may not survive the calls that this takes.
 */
static __always_inline void note_filters(struct thread *thread, struct task_struct *task)
{
	thread->flags &= ~THREAD_FILTERED;
	if (filters_of(task) > thread->filters)
		thread->flags |= THREAD_FILTERED;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_number, struct linux_binprm *program)
{
	struct thread *thread = thread_of(task);
	struct debox_slot *slot;

	if (!thread || thread->state == THREAD_FREE)
		return 0;
	note_preemption(task);
	if (want_triggers)
		thread->flags |= THREAD_ELSEWHERE;
	if (user_tap || want_stamps) {
		return_memory(thread);
		note_filters(thread, task);
		if (user_tap && thread->state == THREAD_ARMED)
			begin_life(thread, task, bpf_ktime_get_ns(), MODE_RUNNING);
	}
	if (for_others && (BPF_CORE_READ_BITFIELD_PROBED(program, secureexec) ||
			   !is_clients_own(task, client_of(thread)))) {
		leave(thread, task, bpf_ktime_get_ns());
		return 0;
	}
	/* If the thread was not the leader, it has taken the leader's place and id. */
	number_thread(thread, task);
	if (want_live)
		copy_comm(thread->comm, task);
	thread->flags &= ~THREAD_BEGINNING;
	send_title(thread, TITLE_OF_PROGRAM);
	slot = slot_of(thread, thread->index);
	if (slot) {
		slot->tap_call = 0; /* the image that opened it is gone */
		slot->tid = thread->tid;
		name_slot(thread->index, thread->tid);
	}
	return 0;
}

/*
 * Releases a thread that its client no longer looks at. Unlike a life that ends it is not closed: a
 * probe on another CPU may be using the entry.
 */
static __always_inline void release(struct task_struct *task, struct thread *thread)
{
	__u32 before = __sync_lock_test_and_set(&thread->state, THREAD_FREE);
	__u32 index = thread->index;

	if (before == THREAD_FREE || before == THREAD_ENDED)
		return;
	thread->task = 0;
	forget_task(task);
	end_slot(thread, index);
	bpf_map_push_elem(&retired_threads, &index, 0);
}

#define GENERATIONS 64

/* A process whose parent has ended no longer descends from any process of the client. */
static __always_inline bool descends_from(struct task_struct *task, __u32 tgid)
{
	struct task_struct *above = task;
	__u32 number;

	for (int i = 0; i < GENERATIONS; i++) {
		above = BPF_CORE_READ(above, real_parent);
		number = BPF_CORE_READ(above, tgid);
		if (number == tgid)
			return true;
		if (number <= 1)
			break;
	}
	return false;
}

static __always_inline enum mode mode_of(struct task_struct *task)
{
	return task->on_cpu ? MODE_RUNNING : task->__state ? MODE_BLOCKED : MODE_RUNQUEUE;
}

/*
 * Enrols the tasks that the engine named. If a task is inside a call, that call is opened as
 * partial, so that what it waits on is known from the start.
 */
SEC("iter/task")
int enrol_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct client *client;
	struct thread *thread;
	struct pt_regs *regs;
	__u32 index;
	enum mode mode;
	__u64 now;

	if (!task || task->tgid != enrol_tgid || task->exit_state)
		return 0;
	if (enrol_tid && task->pid != enrol_tid)
		return 0;
	if (enrol_learns) {
		client = client_at(enrol_client);
		if (client && !client->namespace)
			learn_namespace(client, task);
		return 0;
	}
	thread = thread_of(task);
	if (thread && (!shared_slots || thread->client == enrol_client))
		return 0;
	if (for_others) {
		client = client_at(enrol_client);
		if (!client)
			return 0;
		if ((enrol_ancestor && !descends_from(task, enrol_ancestor)) ||
		    !is_clients_own(task, client)) {
			client->refused++;
			return 0;
		}
		if (!client->namespace)
			learn_namespace(client, task);
		if (thread) /* enrolled with its parent, or before it left */
			release(task, thread);
	}
	thread = new_thread(task, enrol_client, &index);
	if (!thread)
		return 0;
	enrol_count++;
	thread->filters = filters_of(task);
	if (enrol_armed) {
		thread->state = THREAD_ARMED;
		return 0;
	}
	mode = mode_of(task);
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if (regs && (long)regs->orig_ax >= 0 && (long)regs->ax == -ENOSYS) {
		thread->call = call_number(task, regs->orig_ax);
		thread->flags |= THREAD_PARTIAL;
	}
	now = bpf_ktime_get_ns();
	if (want_sleeps && adopt_sleeps && mode == MODE_BLOCKED) {
		adopt_sleep(thread, task, now);
		mode = mode_of(task);
		if (mode != MODE_BLOCKED)
			forget_sleep(thread);
	}
	if (mode == MODE_BLOCKED)
		thread->flags |= THREAD_SLEPT;
	begin_life(thread, task, now, mode);
	return 0;
}

/* Releases the threads of clients that have left. */
SEC("iter/task")
int release_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct thread *thread;
	struct client *client;

	if (!task || !shared_slots)
		return 0;
	thread = thread_of(task);
	client = thread ? client_of(thread) : 0;
	if (client && client->state != CLIENT_LIVE)
		release(task, thread);
	return 0;
}

/*
 * Removes the session's remaining tasks from the gate, before another session may get its number.
 */
SEC("iter/task")
int leave_gate_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task)
		leave_gate(task);
	return 0;
}

/* What is printed next: too large for the stack. Only one reader at a time uses the iterator. */
struct in_flight in_flight_out;

static __always_inline void show_call(struct in_flight *out, struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct thread *thread = thread_of(task);

	if (!regs || !thread || thread->state != THREAD_LIVE || thread->call == CALL_NONE)
		return;
	out->call = thread->call;
	out->ordinal = thread->calls + 1;
	out->args[0] = regs->di;
	out->args[1] = regs->si;
	out->args[2] = regs->dx;
	out->faults_minor = task->min_flt - thread->faults_minor;
	out->faults_major = task->maj_flt - thread->faults_major;
	note_registers(&out->ask, regs);
	out->ask.is_compat = (task->thread_info.status & TS_COMPAT) != 0;
	out->ask.tgid = task->tgid;
	out->ask.parent = BPF_CORE_READ(task, real_parent, tgid);
	out->ask.image = task->self_exec_id;
	out->ask.code_pages = mm ? BPF_CORE_READ(mm, exec_vm) : 0;
}

/* Prints each monitored task with the kernel stack it sleeps at, for calls still in flight. */
SEC("iter/task")
int show_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct in_flight *out = &in_flight_out;
	struct thread *thread;
	__u32 index;
	long bytes;

	if (!task)
		return 0;
	index = index_of(task);
	if (!index)
		return 0;
	thread = thread_at(index - 1);
	if (show_from_ns && thread && thread->mode == MODE_BLOCKED &&
	    part_began(thread) < show_from_ns)
		return 0;
	__builtin_memset(out, 0, sizeof(*out));
	out->index = index;
	if (!task->on_cpu) {
		bytes = task_stack(task, out->frames, sizeof(out->frames));
		if (bytes > 0)
			out->depth = bytes / sizeof(__u64);
		show_call(out, task);
	}
	bpf_seq_write(ctx->meta->seq, out, sizeof(*out));
	return 0;
}

#endif
