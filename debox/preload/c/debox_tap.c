/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * debox_tap.c: the end of a tapped call, and the rare paths: calls made by signal handlers inside
 * others, and calls that are left by a jump.
 *
 * Everything here is async-signal-safe, and a signal may come between any two instructions. Two
 * others use the same data: the probes, which run on this thread whenever it leaves the CPU and
 * write to the open record while tap_call is not 0, and other threads, which check the record's
 * sequence.
 */
#include <errno.h>
#include <sys/syscall.h>

#include "buckets.h"
#include "attach.h"

/* CLOCK_MONOTONIC at a value of the time-stamp counter; `rate` is ns per tick, times 2^48. */
static inline __u64 monotonic(__u64 tsc, __u64 *rate)
{
	const volatile struct debox_tap_clock *clock = debox_tap_process.clock;
	__u64 base_tsc, base_ns;
	__u32 sequence;

	do {
		sequence = clock->sequence;
		base_tsc = clock->base_tsc;
		base_ns = clock->base_ns;
		*rate = clock->mult << 16;
	} while (DEBOX_UNLIKELY(sequence & 1 || sequence != clock->sequence));
	/* The counter may be from before the base, so the product is signed. */
	return base_ns + (__s64)(((__int128)(__s64)((tsc - base_tsc) << 16) * (__s64)*rate) >> 64);
}

_Static_assert(BUCKETS == DEBOX_TAP_BUCKETS, "one histogram");

/* debox_slot.tap_touched, as in debox/probe/usertap.h. */
enum tap_touched {
	TAP_TOUCHED = 1,
	TAP_ASLEEP = 2,
	TAP_PUSHED_OFF = 3,
	TAP_WOKEN = 4,
};

static int is_restart(__s64 ret)
{
	return ret == -512 || ret == -513 || ret == -514 || ret == -516;
}

static inline struct debox_record *record_at(struct debox_slot *slot, __u64 place)
{
	return &slot->history[place % DEBOX_HISTORY_MAX];
}

/* The record that the open call will complete. */
static struct debox_record *open_record(struct debox_slot *slot)
{
	return record_at(slot, slot->completed);
}

/*
 * The probes have closed every part between the first and the last time they saw the call; what
 * came before and after is added here. All stamps are of one clock, so the parts add up.
 */
static void close_budget(struct debox_slot *slot, struct debox_record *record, __u64 stop_ns)
{
	struct debox_budget *budget = &record->budget;
	struct debox_outside *outside = &record->outside;
	__s64 last = (__s64)(stop_ns - slot->tap_last_in_ns);
	__u64 *away = slot->tap_touched == TAP_ASLEEP  ? &budget->blocked_ns
		      : slot->tap_touched == TAP_WOKEN ? &budget->runqueue_ns
						       : &budget->preempted_ns;
	__s64 cpu = (__s64)(slot->tap_first_out_ns - record->start_ns) + (__s64)budget->cpu_ns;

	if (slot->tap_touched >= TAP_ASLEEP) {
		/* Off the CPU and not seen to come back. */
		*away += last > 0 ? last : 0;
		slot->tap_last_in_ns = stop_ns;
	} else if (slot->tap_handler)
		outside->handler_ns += last > 0 ? last : 0;
	else
		cpu += last;
	/*
	 * The two clocks agree only within some tens of nanoseconds, so keep this from going below
	 * zero.
	 */
	budget->cpu_ns = cpu > 0 ? cpu : 0;
	budget->outside_ns = outside->handler_ns + outside->stopped_ns + outside->exit_work_ns +
			     outside->preempted_ns + outside->other_ns;
	record->wall_ns = budget->cpu_ns + budget->blocked_ns + budget->runqueue_ns +
			  budget->preempted_ns + budget->outside_ns;
}

/* Resumes the call that was suspended; `nested_ns` does not count as its time. */
static __attribute__((noinline)) void resume(struct debox_slot *slot,
					     struct debox_tap_thread *thread, __u64 nested_ns)
{
	const struct debox_tap_saved *saved = &thread->saved[thread->depth - 1];
	__u64 start = saved->start;
	__u32 call = saved->call;

	if (saved->skipped)
		slot->completed--; /* the interrupted one counts its own place */
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
	slot->tap_call = call;
	DEBOX_BARRIER();
	thread->depth--;
	DEBOX_BARRIER();
	thread->start = start;
}

/*
 * The words of a record's header that are written together: separate stores for each field would
 * cost too much.
 */
#define WORDS(record, field) (*(word *)&(record)->field)
typedef __u64 __attribute__((may_alias)) word;
_Static_assert(__builtin_offsetof(struct debox_record, call) == 8, "call, abi, flags: one word");
_Static_assert(__builtin_offsetof(struct debox_record, sleeps_used) == 120, "and with trace, lost");

/* If set, called for each recorded call. */
static void (*volatile watcher)(struct debox_slot *slot);

void debox_tap_watch(void (*on_end)(struct debox_slot *slot))
{
	watcher = on_end;
}

static __attribute__((noinline)) void end_rare(struct debox_slot *slot,
					       struct debox_tap_thread *thread, __u64 wall)
{
	if (thread->depth)
		resume(slot, thread, wall);
	else
		thread->start = 0;
	if (watcher)
		watcher(slot);
}

/* The record is complete: counts it, and ends the call's use of the slot. */
static inline void publish(struct debox_slot *slot, struct debox_tap_thread *thread,
			   struct debox_record *record, struct debox_tap_row *row, __u64 wall,
			   int all_cpu)
{
	if (row) {
		if (all_cpu)
			row->parts_ns[0] += wall;
		row->histogram[bucket_of(wall)]++;
		if (wall > row->max_ns)
			row->max_ns = wall;
		row->calls++;
	}
	DEBOX_BARRIER();
	record->sequence++;
	slot->completed++;
	DEBOX_BARRIER();
	if (DEBOX_UNLIKELY(watcher || thread->depth))
		end_rare(slot, thread, wall);
	else
		thread->start = 0;
}

/* The rest of debox_tap_finish for a call that the probes have touched or that faulted. */
static __attribute__((noinline)) void finish_touched(struct debox_slot *slot,
						     struct debox_record *record,
						     struct debox_tap_row *row, __u64 stop)
{
	const __u64 *parts = &record->budget.cpu_ns;
	__u64 rate, stop_ns = monotonic(stop, &rate);
	int i;

	if (slot->tap_touched) {
		close_budget(slot, record, stop_ns);
		slot->tap_touched = 0;
		slot->tap_handler = 0;
	} else {
		record->wall_ns =
			((unsigned __int128)((stop - debox_tap_thread.start) << 16) * rate) >> 64;
		record->budget = (struct debox_budget){.cpu_ns = record->wall_ns};
		record->outside = (struct debox_outside){0};
	}
	for (i = 0; i < 6; i++) {
		slot->tap_totals_ns[i] += parts[i];
		if (row)
			row->parts_ns[i] += parts[i];
	}
	if (row)
		row->faults += record->faults_minor;
	publish(slot, &debox_tap_thread, record, row, record->wall_ns, 0);
}

void debox_tap_finish(__u32 number, __u64 stop, __s64 ret)
{
	struct debox_tap_thread *thread = &debox_tap_thread;
	struct debox_slot *slot = thread->slot;
	__u64 completed = slot->completed, start = thread->start, rate, wall, header = number;
	struct debox_record *record = record_at(slot, completed);
	struct debox_tap_row *row;
	__u32 sequence, faults;

	/*
	 * The call was already ended by a jump that came back here, or was begun by the parent of
	 * this process.
	 */
	if (DEBOX_UNLIKELY(slot->tap_call != number + 1 || !*debox_tap_process.mine))
		return;
	__asm__("" : "+r"(record)); /* keep the address, do not compute it for each field */
	sequence = record->sequence;
	if (__builtin_expect(!(sequence & 1), 1)) {
		WORDS(record, sleeps_used) = 0;
		record->sequence = sequence | 1;
	}
	record->number = completed + 1; /* tells a handler that this place is taken */
	DEBOX_BARRIER();
	slot->tap_call = 0; /* from here on the probes leave the record alone */
	DEBOX_BARRIER();
	if (DEBOX_UNLIKELY(slot->completed != completed)) {
		/* Calls of a handler have moved the record meanwhile. */
		record = open_record(slot);
		record->number = slot->completed + 1;
	}
	__asm__("" : "+r"(record));
	row = thread->rows;
	if (row)
		row += number < DEBOX_TAP_ROWS ? number : DEBOX_TAP_ROWS - 1;
	__asm__("" : "+r"(row));

	header |= (__u64)DEBOX_ABI_X86_64 << 32 | (__u64)DEBOX_USER_TAP << 48;
	if (DEBOX_UNLIKELY(thread->depth != 0))
		header |= (__u64)DEBOX_NESTED << 48;
	if (DEBOX_UNLIKELY((__u64)ret >= (__u64)-4095LL)) {
		if (is_restart(ret))
			header |= (__u64)DEBOX_RESTARTED << 48;
		if (row)
			*(is_restart(ret) ? &row->restarts : &row->errors) += 1;
	}
	WORDS(record, call) = header;
	record->ret = ret;
	record->args[0] = thread->args[0];
	record->args[1] = thread->args[1];
	record->args[2] = thread->args[2];
	record->start_ns = monotonic(start, &rate);
	faults = slot->tap_faults - thread->faults;
	WORDS(record, faults_minor) = faults;
	if (DEBOX_UNLIKELY((slot->tap_touched | faults) != 0)) {
		finish_touched(slot, record, row, stop);
		return;
	}
	wall = ((unsigned __int128)((stop - start) << 16) * rate) >> 64;
	if (DEBOX_UNLIKELY(record->budget.outside_ns != 0))
		record->outside = (struct debox_outside){0};
	record->budget = (struct debox_budget){.cpu_ns = wall};
	record->wall_ns = wall;
	slot->tap_totals_ns[0] += wall;
	publish(slot, thread, record, row, wall, 1);
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
 * A handler inside another call, which is open or being recorded, is about to make a call. The
 * records of the open calls move one place on in the ring, which leaves a place before them for the
 * handler's call. Another signal may come at any point here, too. It finds the call open or being
 * recorded; if it counts a call twice it moves the records once too often, which costs the ring an
 * old record.
 */
static int suspend(struct debox_slot *slot, struct debox_tap_thread *thread)
{
	struct debox_tap_saved *saved = &thread->saved[thread->depth];
	__u32 i, moved = 0;

	if (thread->depth >= DEBOX_TAP_DEPTH)
		return -1;
	saved->call = slot->tap_call;
	saved->skipped = 0;
	DEBOX_BARRIER();
	thread->depth++;
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
	slot->tap_touched = 0;
	slot->tap_handler = 0;
	/* A call that is being recorded keeps its place if it has not been counted yet. */
	if (!saved->call && open_record(slot)->number == slot->completed + 1) {
		saved->skipped = 1;
		slot->completed++;
	}
	for (i = 0; i < thread->depth; i++)
		moved += thread->saved[i].call != 0;
	for (i = moved; i > 0; i--)
		move_record(record_at(slot, slot->completed + i),
			    record_at(slot, slot->completed + i - 1));
	return 0;
}

/* The open call will not return: it ends now, as interrupted. */
static void end_open_call(struct debox_slot *slot, struct debox_tap_thread *thread)
{
	struct debox_record *record;

	if (slot->tap_call && thread->start) {
		debox_tap_finish(slot->tap_call - 1, debox_tap_now(), -EINTR);
		return;
	}
	/*
	 * It had not begun, or was being recorded; in the latter case it counts if it was counted
	 * in its row.
	 */
	slot->tap_call = 0;
	DEBOX_BARRIER();
	slot->tap_touched = 0;
	slot->tap_handler = 0;
	record = open_record(slot);
	if (thread->start && !thread->depth && record->number == slot->completed + 1 &&
	    !(record->sequence & 1) && !(record->flags & DEBOX_NESTED)) {
		slot->completed++;
	} else {
		record->sequence = (record->sequence | 1) + 1;
		record->number = 0;
	}
	DEBOX_BARRIER();
	if (thread->depth)
		resume(slot, thread, 0);
	else
		thread->start = 0;
}

/*
 * Whether the calling thread is the slot's, and not a vfork child on the same stack and thread
 * data.
 */
static int is_owner(const struct debox_slot *slot)
{
	return (__u32)debox_raw(SYS_gettid, 0, 0, 0, 0, 0, 0) == slot->tid;
}

/* The call is made but not recorded. A process that shares this memory may run at the same time. */
static struct debox_slot *unstamped(struct debox_slot *slot)
{
	__atomic_fetch_add(&slot->tap_unstamped, 1, __ATOMIC_RELAXED);
	return 0;
}

struct debox_slot *debox_tap_begin_slow(__u64 frame)
{
	struct debox_tap_thread *thread = &debox_tap_thread;
	struct debox_slot *slot = thread->slot;
	int nested;

	if (!debox_tap_is_attached())
		slot = debox_tap_attach();
	if (slot->paused)
		return 0;
	if (slot->tap_foreign && !is_owner(slot))
		return unstamped(slot);
	if (slot->tap_call) {
		/* On the same stack a handler's frame is below that of what it interrupted. */
		nested = slot->tap_handler && (slot->tap_handler == 2 || frame < slot->tap_frame);
		slot->tap_abandoned += !nested;
		if (nested && suspend(slot, thread))
			return unstamped(slot);
		if (!nested)
			end_open_call(slot, thread);
	} else if (thread->start && suspend(slot, thread)) {
		return unstamped(slot);
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
		 * Jumps go up the stack. A jump that begins above the call's frame is on a signal
		 * stack: it leaves the call if it goes to a frame below it.
		 */
		left = slot->tap_frame;
		if (here > left ? to > here : to < left)
			return;
		slot->tap_abandoned++;
		end_open_call(slot, thread);
	}
}
