/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * usertap.h: the kernel's side of the user tap.
 *
 * The thread says in its slot that its stamps are open; the probes here add its switches, sleeps,
 * faults and signal handlers to the open record. The saved registers show where the thread is:
 * orig_ax is -1 when user mode was interrupted, and ax still holds -ENOSYS until the call has
 * returned, which distinguishes the call itself from work on the way out.
 */
#ifndef PROBE_USERTAP_H
#define PROBE_USERTAP_H

#include "state.h"
#include "record.h"

#define SA_ONSTACK 0x08000000
#define TASK_STOPPED_OR_TRACED (0x4 | 0x8) /* __TASK_STOPPED, __TASK_TRACED */

/* debox_slot.tap_touched: whether the thread was seen to come back. The same as in debox_tap.c. */
enum tap_touched {
	TAP_TOUCHED = 1,
	TAP_ASLEEP = 2,
	TAP_PUSHED_OFF = 3,
	TAP_WOKEN = 4,
};

/* In calls.h. */
static __always_inline struct row *row_of(__u32 call);
static __always_inline __u32 bucket_of(__u64 ns);

static __always_inline enum tap_where tap_where(struct debox_slot *slot, long call, bool inside,
						unsigned int state)
{
	if (!slot->tap_call)
		return inside ? TAP_UNTAPPED : TAP_BETWEEN;
	if (slot->tap_handler)
		return TAP_HANDLER;
	if (inside)
		return TAP_IN_CALL;
	if (state & TASK_STOPPED_OR_TRACED)
		return TAP_STOPPED;
	return call >= 0 ? TAP_EXIT_WORK : TAP_PREEMPTED;
}

/*
 * Prepares the open record for an addition. The first one notes the time; the thread itself adds
 * what came before.
 */
static __always_inline struct debox_record *touch(struct debox_slot *slot, __u64 now)
{
	struct debox_record *record = open_record(slot);

	if (slot->tap_touched >= TAP_ASLEEP) {
		/* It came back unseen. */
		if (slot->tap_touched == TAP_ASLEEP)
			record->budget.blocked_ns += now - slot->tap_last_in_ns;
		else if (slot->tap_touched == TAP_WOKEN)
			record->budget.runqueue_ns += now - slot->tap_last_in_ns;
		else
			record->budget.preempted_ns += now - slot->tap_last_in_ns;
		slot->tap_touched = TAP_TOUCHED;
		slot->tap_last_in_ns = now;
		return record;
	}
	if (slot->tap_touched) {
		if (slot->tap_handler)
			record->outside.handler_ns += now - slot->tap_last_in_ns;
		else
			record->budget.cpu_ns += now - slot->tap_last_in_ns;
		return record;
	}
	begin_write(record);
	__builtin_memset(&record->budget, 0, sizeof(record->budget));
	__builtin_memset(&record->outside, 0, sizeof(record->outside));
	slot->tap_first_out_ns = now;
	slot->tap_touched = TAP_TOUCHED;
	return record;
}

/* Adds time off the CPU to the open record: to the call's budget, or to what is outside it. */
static __always_inline void add_to_open_record(struct thread *thread, enum part part, __u64 ns)
{
	struct debox_slot *slot = slot_of(thread, thread->index);
	struct debox_record *record;

	if (!slot || !slot->tap_touched)
		return;
	record = open_record(slot);
	switch (thread->tap_where) {
	case TAP_IN_CALL:
		if (part == PART_BLOCKED)
			record->budget.blocked_ns += ns;
		else if (part == PART_RUNQUEUE)
			record->budget.runqueue_ns += ns;
		else if (part == PART_PREEMPTED)
			record->budget.preempted_ns += ns;
		return;
	case TAP_HANDLER:
		record->outside.handler_ns += ns;
		break;
	case TAP_STOPPED:
		record->outside.stopped_ns += ns;
		break;
	case TAP_EXIT_WORK:
		record->outside.exit_work_ns += ns;
		break;
	default:
		record->outside.preempted_ns += ns;
	}
	thread->outside[part] += ns;
}

/* The user tap's close_part: the thread's whole life is kept in `between` until it ends. */
static __always_inline void close_tapped_part(struct thread *thread, enum part part, __u64 now)
{
	__u64 ns = now > thread->stamp_ns ? now - thread->stamp_ns : 0;

	thread->stamp_ns += ns;
	thread->between[part] += ns;
	if (part != PART_CPU && thread->tap_where >= TAP_IN_CALL)
		add_to_open_record(thread, part, ns);
}

/* The thread leaves the CPU; called after its CPU part was closed. */
static __always_inline void tap_out(struct thread *thread, struct task_struct *task,
				    unsigned int state, __u64 now)
{
	struct debox_slot *slot = slot_of(thread, thread->index);
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	bool inside;
	long call;

	thread->tap_where = TAP_BETWEEN;
	thread->call = CALL_NONE;
	if (!slot || !regs)
		return;
	call = (long)regs->orig_ax;
	inside = call >= 0 && (long)regs->ax == -ENOSYS;
	if (slot->tap_call)
		touch(slot, now);
	/* Back inside the call that a handler interrupted: it was restarted. */
	if (slot->tap_handler && inside && (__u32)call + 1 == slot->tap_call)
		slot->tap_handler = 0;
	thread->tap_where = tap_where(slot, call, inside, state);
	if (thread->tap_where == TAP_IN_CALL)
		thread->call = call & 0xffff;
	else if (thread->tap_where == TAP_UNTAPPED)
		thread->call = (call & 0xffff) | CALL_UNTAPPED;
	if (slot->tap_call) {
		slot->tap_last_in_ns = now; /* until it is back */
		slot->tap_touched = state ? TAP_ASLEEP : TAP_PUSHED_OFF;
	}
}

static __always_inline void tap_in(struct thread *thread, __u64 now)
{
	struct debox_slot *slot;

	if (thread->tap_where < TAP_IN_CALL)
		return;
	slot = slot_of(thread, thread->index);
	if (slot && slot->tap_touched) {
		slot->tap_last_in_ns = now;
		slot->tap_touched = TAP_TOUCHED;
	}
}

/* The sleep is over; called after its part was closed. */
static __always_inline void tap_woken(struct thread *thread, __u64 now)
{
	struct debox_slot *slot;

	if (thread->tap_where < TAP_IN_CALL)
		return;
	slot = slot_of(thread, thread->index);
	if (slot && slot->tap_touched == TAP_ASLEEP) {
		slot->tap_last_in_ns = now;
		slot->tap_touched = TAP_WOKEN;
	}
}

/*
 * When a thread came back whose return was not seen. If it has ended its call since, that is when
 * it did: it has counted the time until then as the call's.
 */
static __always_inline __u64 tap_resumed(struct thread *thread, __u64 now)
{
	struct debox_slot *slot = slot_of(thread, thread->index);
	__u64 ended;

	if (!slot || thread->tap_where < TAP_IN_CALL || slot->tap_touched)
		return now;
	ended = slot->tap_last_in_ns;
	return ended > thread->stamp_ns && ended < now ? ended : now;
}

/* Where the program made the open call, 0 when the thread is not in one. */
static __always_inline __u64 tap_caller(struct thread *thread)
{
	struct debox_slot *slot;

	if (thread->tap_where != TAP_IN_CALL)
		return 0;
	slot = slot_of(thread, thread->index);
	return slot ? slot->tap_caller : 0;
}

static __always_inline __u64 less(__u64 value, __u64 by)
{
	return value > by ? value - by : 0;
}

/*
 * The thread ends inside its stamps: killed, cancelled, or by a handler. It can no longer count the
 * call, so that is done here, except for the CPU time before the call first left the CPU, which
 * stays between calls.
 */
static __always_inline void close_open_tapped_call(struct debox_slot *slot)
{
	__u32 call = slot->tap_call - 1, bucket;
	struct debox_record *record = open_record(slot);
	struct row *row = row_of(call < ROWS ? call : NO_SUCH_CALL);
	__u64 outside, wall, parts[PARTS] = {};

	slot->tap_call = 0;
	slot->completed++;
	if (slot->tap_touched) {
		outside = record->outside.handler_ns + record->outside.stopped_ns +
			  record->outside.exit_work_ns + record->outside.preempted_ns;
		parts[PART_CPU] = record->budget.cpu_ns;
		parts[PART_BLOCKED] = record->budget.blocked_ns;
		parts[PART_RUNQUEUE] = record->budget.runqueue_ns;
		parts[PART_PREEMPTED] = record->budget.preempted_ns;
		parts[PART_OUTSIDE] = outside;
	}
	wall = 0;
	for (int i = 0; i < PARTS; i++) {
		slot->tap_totals_ns[i] += parts[i];
		wall += parts[i];
	}
	if (!row) {
		COUNT_LOST(rows);
		return;
	}
	row->calls++;
	for (int i = 0; i < PARTS; i++)
		row->parts[i] += parts[i];
	if (wall > row->max_ns)
		row->max_ns = wall;
	bucket = bucket_of(wall);
	if (bucket < BUCKETS)
		row->histogram[bucket]++;
}

/*
 * What the thread counted for its calls is taken out of its life; the rest was between calls. Of
 * the time outside its calls the probes know how much was off the CPU, and the remainder was on it.
 * What was outside a call that the thread never counted does not fit, and stays between calls.
 */
static __always_inline void close_tapped_life(struct thread *thread)
{
	struct debox_slot *slot = slot_of(thread, thread->index);
	__u64 outside, owed = 0, taken;

	if (!slot)
		return;
	if (slot->tap_call)
		close_open_tapped_call(slot);
	thread->calls = slot->completed;
	thread->unstamped = slot->tap_unstamped;
	thread->call_faults_minor = slot->tap_faults;
	outside = slot->tap_totals_ns[PART_OUTSIDE];
	thread->in_calls[PART_OUTSIDE] = outside;
	for (int i = PART_BLOCKED; i < PART_OUTSIDE; i++) {
		if (thread->outside[i] > outside)
			thread->outside[i] = outside;
		outside -= thread->outside[i];
	}
	thread->outside[PART_CPU] = outside;
	for (int i = PART_OUTSIDE - 1; i >= 0; i--) {
		thread->in_calls[i] = slot->tap_totals_ns[i];
		taken = thread->in_calls[i] + thread->outside[i] + owed;
		owed = less(taken, thread->between[i]);
		thread->between[i] = less(thread->between[i], taken);
	}
}

/*
 * A vfork child, and any that shares its parent's memory and thread pointer, must not write to the
 * parent's slot.
 */
static __always_inline void lend_memory(struct thread *of_parent, struct thread *of_child,
					struct task_struct *parent, struct task_struct *child)
{
	struct debox_slot *slot;

	if (BPF_CORE_READ(parent, mm) != BPF_CORE_READ(child, mm) ||
	    BPF_CORE_READ(parent, thread.fsbase) != BPF_CORE_READ(child, thread.fsbase))
		return;
	slot = slot_of(of_parent, of_parent->index);
	if (!slot)
		return;
	__sync_fetch_and_add(&slot->tap_foreign, 1);
	of_child->lender = of_parent->index + 1;
}

static __always_inline void return_memory(struct thread *thread)
{
	struct debox_slot *slot;
	struct thread *lender;

	if (!thread->lender)
		return;
	lender = thread_at(thread->lender - 1);
	slot = lender ? slot_of(lender, thread->lender - 1) : 0;
	if (slot && slot->tap_foreign)
		__sync_fetch_and_add(&slot->tap_foreign, -1);
	thread->lender = 0;
}

/*
 * A handler is about to run: the time from here to the call's end, or to its restart, is not the
 * call's.
 */
SEC("tp_btf/signal_deliver")
int BPF_PROG(on_signal_deliver, int signal, void *info, struct k_sigaction *action)
{
	struct thread *thread = thread_of(bpf_get_current_task_btf());
	struct debox_slot *slot;
	__u64 handler, now;

	if (!thread || thread->state != THREAD_LIVE)
		return 0;
	handler = (__u64)BPF_CORE_READ(action, sa.sa_handler);
	if (handler < 2) /* SIG_DFL, SIG_IGN */
		return 0;
	slot = slot_of(thread, thread->index);
	if (!slot || !slot->tap_call)
		return 0;
	now = bpf_ktime_get_ns();
	touch(slot, now);
	slot->tap_last_in_ns = now;
	slot->tap_handler = BPF_CORE_READ(action, sa.sa_flags) & SA_ONSTACK ? 2 : 1;
	return 0;
}

/*
 * Faults taken in kernel mode: when calls copy to and from the program. The exception alone proves
 * nothing: bad pointers are refused, and some virtual machines take each fault twice. So a fault
 * counts if the task's own counters have moved since the one before.
 */
SEC("tp_btf/page_fault_kernel")
int BPF_PROG(on_kernel_fault)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = thread_of(task);
	struct debox_slot *slot;
	__u64 served;

	if (!thread)
		return 0;
	served = task->min_flt + task->maj_flt + 1;
	if (thread->faults_minor == served)
		return 0;
	thread->faults_minor = served;
	slot = slot_of(thread, thread->index);
	if (slot && slot->tap_call)
		slot->tap_faults++;
	return 0;
}

#endif
