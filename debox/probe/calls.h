/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * calls.h: opening and closing a call, and the time between calls.
 *
 * A thread is always in exactly one of the two; closing one opens the other with the same stamp, so
 * that calls and time between them add up to the thread's life.
 */
#ifndef PROBE_CALLS_H
#define PROBE_CALLS_H

#include "state.h"
#include "buckets.h"
#include "record.h"
#include "totals.h"
#include "callsites.h"
#include "usertap.h"
#include "history.h"

static __noinline struct row *unlisted_row(__u32 call)
{
	__u32 zero = 0, last = ROWS - 1;
	struct row *row, *empty;

	if (call == NO_SUCH_CALL)
		return bpf_map_lookup_elem(&rows, &last);
	row = bpf_map_lookup_elem(&unlisted_rows, &call);
	if (row)
		return row;
	empty = bpf_map_lookup_elem(&empty_row, &zero);
	if (!empty)
		return 0;
	/*
	 * The kernel may have no memory for a new element for a moment, until its own interrupt
	 * work has fetched more.
	 */
	if (bpf_map_update_elem(&unlisted_rows, &call, empty, BPF_NOEXIST))
		bpf_map_update_elem(&unlisted_rows, &call, empty, BPF_NOEXIST);
	return bpf_map_lookup_elem(&unlisted_rows, &call);
}

static __always_inline struct row *row_of(__u32 call)
{
	if (LIKELY(call < ROWS - 1))
		return bpf_map_lookup_elem(&rows, &call);
	return unlisted_row(call);
}

static __always_inline __u32 call_number(struct task_struct *task, long id)
{
	if (task->thread_info.status & TS_COMPAT)
		return ((__u32)id & 0xffff) | CALL_IA32;
	return (unsigned long)id < NO_SUCH_CALL ? id : NO_SUCH_CALL; /* shown as one row */
}

/* Ends the part that has been open since the last stamp, and opens the next one. */
static __always_inline void close_part(struct thread *thread, enum part part, __u64 now)
{
	__u64 from = thread->has_parts ? thread->stamp_ns : thread->begin_ns;

	if (user_tap) {
		close_tapped_part(thread, part, now);
		return;
	}
	if (now < from)
		now = from; /* the last stamp was taken on another CPU */
	thread->parts[part] += now - from;
	thread->stamp_ns = now;
	thread->has_parts = 1;
}

/*
 * Between begin_work() and end_work() interrupts leave the thread's entry alone (see irq.h), and so
 * do the events of locks that the probes' own maps take (locks.h).
 */
static __always_inline void begin_work(struct thread *thread)
{
	if (want_irq || want_sleeps) {
		thread->busy = 1;
		barrier();
	}
}

static __always_inline void end_work(struct thread *thread)
{
	if (want_irq || want_sleeps) {
		barrier();
		thread->busy = 0;
	}
}

/* When the open part began. */
static __always_inline __u64 part_began(struct thread *thread)
{
	return user_tap || thread->has_parts ? thread->stamp_ns : thread->begin_ns;
}

/* The task's own counters at the start of a call or a life. */
static __always_inline void snapshot(struct thread *thread, struct task_struct *task)
{
	thread->faults_minor = task->min_flt;
	thread->faults_major = task->maj_flt;
	if (want_io) {
		thread->read_bytes = task->ioac.read_bytes;
		thread->write_bytes = task->ioac.write_bytes;
	}
}

/* How long the task has waited for a CPU in its life, as the scheduler counts it. */
static __always_inline __u64 run_delay(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return 0;
	return task->sched_info.run_delay;
}

static __always_inline void begin_life(struct thread *thread, struct task_struct *task, __u64 now,
				       enum mode mode)
{
	thread->birth_ns = now;
	thread->begin_ns = now;
	thread->stamp_ns = now;
	thread->came_ns = now;
	thread->came_cpu = 0;
	thread->mode = mode;
	thread->run_delay_ns = mode == MODE_RUNQUEUE ? RUN_DELAY_UNKNOWN : run_delay(task);
	thread->birth_faults_minor = task->min_flt;
	thread->birth_faults_major = task->maj_flt;
	snapshot(thread, task);
	if (want_records)
		write_totals(thread, now, false);
	barrier();
	/* Last: the thread may be running on another CPU and make a call at this moment. */
	thread->state = THREAD_LIVE;
}

static __always_inline void clear_parts(struct thread *thread)
{
	for (int i = 0; i < PARTS; i++)
		thread->parts[i] = 0;
	thread->spin_ns = 0;
	thread->spin_lock = 0;
	thread->slept_used = 0;
	thread->has_parts = 0;
}

static __noinline int add_parts_between(struct thread *thread, void *ctx)
{
	for (int i = 0; i < PARTS; i++)
		thread->between[i] += thread->parts[i];
	thread->between_spin_ns += thread->spin_ns;
	if (want_report && want_sleeps && thread->slept_used && ctx)
		write_slept_sites(thread, 0);
	clear_parts(thread);
	return 0;
}

/* Closes the time between calls. The caller has closed the open part, if there is one. */
static __always_inline void close_between(struct thread *thread, void *ctx, __u64 now)
{
	__u64 wall = now - thread->begin_ns;

	if (want_history && thread->has_parts)
		keep_between(thread, wall);
	thread->begin_ns = now;
	if (wall > thread->between_max_ns)
		thread->between_max_ns = wall;
	if (LIKELY(!thread->has_parts))
		thread->between[PART_CPU] += wall;
	else
		add_parts_between(thread, ctx);
}

static __noinline int add_parts_of_call(struct thread *thread, struct row *row, void *ctx,
					__u64 user_stack)
{
	for (int i = 0; i < PARTS; i++) {
		thread->in_calls[i] += thread->parts[i];
		if (row)
			row->parts[i] += thread->parts[i];
	}
	if (row)
		row->spin_ns += thread->spin_ns;
	if (want_report && want_sleeps && thread->slept_used && ctx) {
		/* Not in a function further down: 6.1 limits the depth of the stack. */
		if (!user_stack)
			user_stack = user_stack_of_call(thread);
		write_slept_sites(thread, user_stack);
	}
	clear_parts(thread);
	return 0;
}

static __always_inline void count_error(struct row *row, __u32 call, long ret)
{
	if (call == NR_RT_SIGRETURN) /* "returns" the interrupted call's register */
		return;
	if (is_restart(ret))
		row->restarts++;
	else
		row->errors++;
}

static __noinline int count_faults(struct thread *thread, struct row *row, struct task_struct *task)
{
	__u64 minor = task->min_flt - thread->faults_minor;
	__u64 major = task->maj_flt - thread->faults_major;

	thread->call_faults_minor += minor;
	thread->call_faults_major += major;
	if (row) {
		row->faults_minor += minor;
		row->faults_major += major;
	}
	return 0;
}

/*
 * Closes the open call: adds it to its row and the thread's totals, and completes the thread's
 * record. `regs` is 0 if the end of the call was not seen.
 */
static __always_inline void close_call(struct thread *thread, struct task_struct *task,
				       struct pt_regs *regs, void *ctx, __u64 now, long ret)
{
	__u64 minor = task->min_flt - thread->faults_minor;
	__u64 major = task->maj_flt - thread->faults_major;
	__u64 wall = now - thread->begin_ns;
	__u32 call = thread->call, bucket;
	struct row *row = want_report ? row_of(call) : 0;
	bool is_plain = !thread->has_parts && !(minor | major);
	__u64 user_stack = 0;

	if (row) {
		bucket = bucket_of(wall);
		if (bucket < BUCKETS)
			row->histogram[bucket]++;
		row->calls++;
		if (wall > row->max_ns)
			row->max_ns = wall;
		if (LIKELY(!thread->has_parts))
			row->parts[PART_CPU] += wall;
		if (UNLIKELY(is_error(ret)))
			count_error(row, call, ret);
		if (want_io) {
			row->read_bytes += task->ioac.read_bytes - thread->read_bytes;
			row->write_bytes += task->ioac.write_bytes - thread->write_bytes;
		}
	} else if (want_report) {
		COUNT_LOST(rows);
	}
	if (minor | major)
		count_faults(thread, row, task);
	thread->calls++;
	if (want_report && (want_callsites || want_triggers) && ctx && regs) {
		note_mapped_code(thread, regs);
		if (want_callsites && wall >= slow_ns)
			user_stack = write_call_site(thread, wall);
	}
	if (want_records)
		complete_record(thread, thread->index, regs, wall,
				call == NR_RT_SIGRETURN ? 0 : ret, minor, major);
	if (want_history) {
		thread->entry_stack = user_stack;
		keep_call(thread, task, regs, wall, ret);
	}
	if (LIKELY(!thread->has_parts))
		thread->in_calls[PART_CPU] += wall;
	else
		add_parts_of_call(thread, row, ctx, user_stack);
	if (UNLIKELY(thread->flags & THREAD_PARTIAL))
		thread->flags &= ~THREAD_PARTIAL;
	thread->call = CALL_NONE;
	thread->begin_ns = now;
	if (want_records && is_plain)
		total_plain_call(thread, now);
	else if (want_records)
		write_totals(thread, now, false);
}

#endif
