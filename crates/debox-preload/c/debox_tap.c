/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * debox_tap.c: the end of a tapped call, and the rare paths: calls made by signal handlers inside
 * others, and calls that are left by a jump.
 *
 * Everything here is async-signal-safe, and a signal may come between any two instructions. Two
 * others look on: the probes, which run on this thread whenever it leaves the CPU and write to the
 * open record while tap_call is not 0, and other threads, which look at the record's sequence.
 */
#include <errno.h>
#include <sys/syscall.h>

#include "attach.h"

/* CLOCK_MONOTONIC at a value of the time-stamp counter. */
static __u64 monotonic(const volatile struct debox_tap_clock *clock, __u64 tsc)
{
	__u64 base_tsc, base_ns, mult;
	__u32 sequence;

	do {
		sequence = clock->sequence;
		base_tsc = clock->base_tsc;
		base_ns = clock->base_ns;
		mult = clock->mult;
	} while (DEBOX_UNLIKELY(sequence & 1 || sequence != clock->sequence));
	/* The counter may be of before the base: a signed product. */
	return base_ns + (__s64)(((__int128)(__s64)(tsc - base_tsc) * (__s64)mult) >> 32);
}

static __u32 bucket_of(__u64 ns)
{
	int log;
	__u32 bucket;

	if (ns < 32)
		return 0;
	log = 63 - __builtin_clzll(ns);
	bucket = ((log - 5) << 3) + ((ns >> (log - 3)) & 7) + 1;
	return bucket < DEBOX_TAP_BUCKETS ? bucket : DEBOX_TAP_BUCKETS - 1;
}

static int is_restart(__s64 ret)
{
	return ret == -512 || ret == -513 || ret == -514 || ret == -516;
}

/* The record that the open call will complete. */
static struct debox_record *open_record(struct debox_slot *slot)
{
	return &slot->history[slot->completed % DEBOX_HISTORY_MAX];
}

/*
 * The probes have closed every part between the first and the last time they saw the call; what
 * came before and after is added here. The stamps are all of one clock, so the parts add up.
 */
static void close_budget(struct debox_slot *slot, struct debox_record *record, __u64 stop_ns)
{
	struct debox_budget *budget = &record->budget;
	struct debox_outside *outside = &record->outside;
	__s64 last = (__s64)(stop_ns - slot->tap_last_in_ns);
	__s64 cpu = (__s64)(slot->tap_first_out_ns - record->start_ns) + (__s64)budget->cpu_ns;

	if (slot->tap_handler)
		outside->handler_ns += last > 0 ? last : 0;
	else
		cpu += last;
	/* The two clocks agree within some tens of nanoseconds only: never below zero. */
	budget->cpu_ns = cpu > 0 ? cpu : 0;
	budget->outside_ns = outside->handler_ns + outside->stopped_ns + outside->exit_work_ns +
			     outside->preempted_ns + outside->other_ns;
	record->wall_ns = budget->cpu_ns + budget->blocked_ns + budget->runqueue_ns +
			  budget->preempted_ns + budget->outside_ns;
}

/* What a call that the probes touched has beyond the common case. */
static __attribute__((noinline)) void add_touched(struct debox_slot *slot,
						  struct debox_record *record,
						  struct debox_tap_row *row, __u64 stop)
{
	const __u64 *parts = &record->budget.cpu_ns;
	int i;

	close_budget(slot, record, monotonic(debox_tap_process.clock, stop));
	slot->tap_touched = 0;
	slot->tap_handler = 0;
	for (i = 0; i < 6; i++) {
		slot->tap_totals_ns[i] += parts[i];
		if (row)
			row->parts_ns[i] += parts[i];
	}
}

static __attribute__((noinline)) void count_error(struct debox_tap_row *row, __s64 ret)
{
	if (is_restart(ret))
		row->restarts++;
	else
		row->errors++;
}

/* Goes back to the call that was suspended; `nested_ns` is not its time. */
static __attribute__((noinline)) void resume(struct debox_slot *slot,
					     struct debox_tap_thread *thread, __u64 nested_ns)
{
	const struct debox_tap_saved *saved = &thread->saved[thread->depth - 1];
	__u64 start = saved->start;
	__u32 call = saved->call;

	slot->tap_first_out_ns = saved->first_out_ns;
	slot->tap_last_in_ns = saved->last_in_ns + (call ? nested_ns : 0);
	slot->tap_frame = saved->frame;
	slot->tap_caller = saved->caller;
	slot->tap_handler = saved->handler;
	slot->tap_touched = saved->touched;
	thread->args[0] = saved->args[0];
	thread->args[1] = saved->args[1];
	thread->args[2] = saved->args[2];
	thread->faults = saved->faults;
	DEBOX_BARRIER();
	thread->depth--;
	slot->tap_call = call;
	DEBOX_BARRIER();
	thread->start = start;
}

void debox_tap_finish(struct debox_slot *slot, __u32 number, __u64 stop, __s64 ret)
{
	struct debox_tap_thread *thread = &debox_tap_thread;
	const struct debox_tap_clock *clock = debox_tap_process.clock;
	struct debox_record *record = open_record(slot);
	struct debox_tap_row *row = 0;
	__u64 start = thread->start, wall, ordinal;
	__u32 sequence;

	if (DEBOX_UNLIKELY(slot->tap_call != number + 1))
		return; /* ended already, by a jump that came back here */
	sequence = record->sequence;
	ordinal = slot->tap_calls + 1;
	if (!(sequence & 1)) {
		record->sleeps_used = 0;
		record->trace_used = 0;
		record->sleeps_lost = 0;
		record->sequence = sequence | 1;
	}
	record->number = ordinal; /* tells a handler that this place is taken; see suspend() */
	DEBOX_BARRIER();
	slot->tap_call = 0; /* from here on the probes leave the record alone */
	DEBOX_BARRIER();
	/* Again: a handler's calls until then have moved it. */
	record = open_record(slot);
	record->version = DEBOX_VERSION;
	record->size = sizeof(*record);
	record->call = number;
	record->abi = DEBOX_ABI_X86_64;
	record->flags = DEBOX_USER_TAP;
	record->ret = ret;
	record->args[0] = thread->args[0];
	record->args[1] = thread->args[1];
	record->args[2] = thread->args[2];
	record->start_ns = monotonic(clock, start);
	record->faults_minor = slot->tap_faults - thread->faults;
	record->faults_major = 0;
	if (thread->rows && number < DEBOX_TAP_ROWS)
		row = &thread->rows[number];
	if (DEBOX_UNLIKELY(slot->tap_touched != 0)) {
		add_touched(slot, record, row, stop);
		wall = record->wall_ns;
	} else {
		wall = ((unsigned __int128)(stop - start) * clock->mult) >> 32;
		if (DEBOX_UNLIKELY(record->budget.outside_ns != 0))
			record->outside = (struct debox_outside){0};
		record->budget = (struct debox_budget){.cpu_ns = wall};
		record->wall_ns = wall;
		slot->tap_totals_ns[0] += wall;
		if (row)
			row->parts_ns[0] += wall;
	}
	if (row) {
		row->histogram[bucket_of(wall)]++;
		if (wall > row->max_ns)
			row->max_ns = wall;
		if (DEBOX_UNLIKELY(record->faults_minor != 0))
			row->faults += record->faults_minor;
		if (DEBOX_UNLIKELY((__u64)ret >= (__u64)-4095))
			count_error(row, ret);
		row->calls++;
	}
	if (DEBOX_UNLIKELY(is_restart(ret)))
		record->flags |= DEBOX_RESTARTED;
	if (DEBOX_UNLIKELY(thread->depth != 0))
		record->flags |= DEBOX_NESTED;
	slot->tap_calls++;
	DEBOX_BARRIER();
	record->sequence++;
	slot->completed++;
	DEBOX_BARRIER();
	if (DEBOX_UNLIKELY(thread->depth != 0))
		resume(slot, thread, wall);
	else
		thread->start = 0;
}

static void move_record(struct debox_record *to, struct debox_record *from)
{
	__u32 sequence = to->sequence | 1;
	__u32 sleeps = from->sleeps_used;

	to->sequence = sequence;
	DEBOX_BARRIER();
	__builtin_memcpy(to, from,
			 __builtin_offsetof(struct debox_record, sleeps) +
				 sizeof(struct debox_sleep) * sleeps);
	to->sequence = sequence;
	to->number = 0;
	DEBOX_BARRIER();
	from->sequence = (from->sequence | 1) + 1; /* the next call begins it afresh */
}

/*
 * A handler inside another call, open or being recorded, is about to make a call. The open ones'
 * records move one place on in the ring, which leaves a place for the handler's call before them.
 */
static int suspend(struct debox_slot *slot, struct debox_tap_thread *thread)
{
	struct debox_tap_saved *saved = &thread->saved[thread->depth];
	struct debox_record *record = open_record(slot);
	__u32 i, moved = 0;

	if (thread->depth >= DEBOX_TAP_DEPTH)
		return -1;
	saved->call = slot->tap_call;
	DEBOX_BARRIER();
	slot->tap_call = 0;
	DEBOX_BARRIER();
	saved->touched = slot->tap_touched;
	saved->handler = slot->tap_handler;
	saved->faults = thread->faults;
	saved->start = thread->start;
	saved->args[0] = thread->args[0];
	saved->args[1] = thread->args[1];
	saved->args[2] = thread->args[2];
	saved->frame = slot->tap_frame;
	saved->caller = slot->tap_caller;
	saved->first_out_ns = slot->tap_first_out_ns;
	saved->last_in_ns = slot->tap_last_in_ns;
	thread->depth++;
	slot->tap_touched = 0;
	slot->tap_handler = 0;
	/* One being recorded keeps its place, if it has not been given up yet. */
	if (!saved->call && record->number && record->number >= slot->tap_calls)
		slot->completed++;
	for (i = 0; i < thread->depth; i++)
		moved += thread->saved[i].call != 0;
	for (i = moved; i > 0; i--)
		move_record(&slot->history[(slot->completed + i) % DEBOX_HISTORY_MAX],
			    &slot->history[(slot->completed + i - 1) % DEBOX_HISTORY_MAX]);
	return 0;
}

/* The open call will not come back: it ends now, as interrupted. */
static void end_open_call(struct debox_slot *slot, struct debox_tap_thread *thread)
{
	struct debox_record *record;

	if (slot->tap_call && thread->start) {
		debox_tap_finish(slot, slot->tap_call - 1, debox_tap_now(), -EINTR);
		return;
	}
	/* It had not begun, or was being recorded. */
	slot->tap_call = 0;
	DEBOX_BARRIER();
	slot->tap_touched = 0;
	slot->tap_handler = 0;
	record = open_record(slot);
	record->sequence = (record->sequence | 1) + 1;
	record->number = 0;
	DEBOX_BARRIER();
	if (thread->depth)
		resume(slot, thread, 0);
	else
		thread->start = 0;
}

/* Whether the calling thread is the slot's, and not a vfork child on the same stack and words. */
static int is_owner(const struct debox_slot *slot)
{
	return (__u32)debox_raw(SYS_gettid, 0, 0, 0, 0, 0, 0) == slot->tid;
}

struct debox_slot *debox_tap_begin_slow(__u64 frame)
{
	struct debox_tap_thread *thread = &debox_tap_thread;
	struct debox_slot *slot = thread->slot;
	int nested;

	if (!*debox_tap_process.mine || slot == &debox_tap_nowhere)
		slot = debox_tap_attach();
	if (slot->paused || (slot->tap_foreign && !is_owner(slot)))
		return 0;
	if (slot->tap_call) {
		/* On the same stack a handler is below what it interrupted. */
		nested = slot->tap_handler && (slot->tap_handler == 2 || frame < slot->tap_frame);
		slot->tap_abandoned += !nested;
		if (nested && suspend(slot, thread))
			return 0;
		if (!nested)
			end_open_call(slot, thread);
	} else if (thread->start && suspend(slot, thread)) {
		return 0;
	}
	return slot;
}

void debox_tap_leave(__u64 to)
{
	struct debox_tap_thread *thread = &debox_tap_thread;
	struct debox_slot *slot = thread->slot;
	__u64 here = (__u64)__builtin_frame_address(0);
	__u64 left;

	if (slot->paused || !*debox_tap_process.mine || (slot->tap_foreign && !is_owner(slot)))
		return;
	while (slot->tap_call || thread->start) {
		/*
		 * Jumps go up the stack. One that begins above the call's frame is on a signal stack:
		 * it leaves the call if it goes down from there.
		 */
		left = slot->tap_frame;
		if (here > left ? to > here : to < left)
			return;
		slot->tap_abandoned++;
		end_open_call(slot, thread);
	}
}
