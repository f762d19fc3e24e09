/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * trigger.h: predicates over the record, evaluated at the end of each call before the program goes
 * on, and what is done if one holds.
 *
 * A predicate is compiled to a few steps for a stack machine
 * (debox/engine/src/predicate/compile.rs). Its values are true, false or unknown; the stack is two
 * words of bits, and the last bit is its top. Only the engine knows what a label means: it is asked
 * once for each new place of sleep, and answers with the tests that hold there. Until then a call
 * whose predicate depends on that place goes to the engine, which decides later. A program that
 * looks at its own calls has no engine: the call is left in its thread's slot, and in its signal
 * handler the thread finds out the label and decides (debox/engine/src/inband/decide.rs).
 */
#ifndef PROBE_TRIGGER_H
#define PROBE_TRIGGER_H

#include "callcpu.h"
#include "callsites.h"

const volatile __u32 trigger_count = 0;
const volatile bool trigger_sites = false; /* some predicate asks for labels */

#define LIMIT_TRIES 8
#define LIMIT_BITS 24 /* of the word that counts a second's firings; the second is above */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trigger);
} triggers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* threads that decide count there, too */
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trigger_counts);
} trigger_counts SEC(".maps");

/* Where the open call of each entry of `threads` has slept. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call_sleeps);
} call_sleeps SEC(".maps");

/* The engine's answers about places of sleep. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct sleep_key);
	__type(value, struct site_answer);
} site_answers SEC(".maps");

/* Used only at the end of calls, where nothing else on the same CPU comes in between. */
struct trigger_scratch {
	__u64 values[TRIGGER_VALUES];
	__u64 comm[2];
	__u64 cpu_owner_comm[2];
	__u64 sites; /* tests that hold for some site of the call */
	__u64 now, begin_ns;
	__u64 yes, unknown; /* the stack of values: true, unknown */
	__u32 is_site_unknown;
	__u32 call;
	__u32 trigger;	   /* the trigger whose steps run */
	__u32 is_site_new; /* the label of some place is not known yet */
	__u32 cpu_owner;   /* enum trigger_owner */
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trigger_scratch);
} trigger_scratch SEC(".maps");

static __always_inline struct call_sleeps *sleeps_of(struct thread *thread)
{
	__u32 index = thread->index;

	return bpf_map_lookup_elem(&call_sleeps, &index);
}

/* Whether these are the sleeps of the call that is open now. */
static __always_inline bool is_of_open_call(struct call_sleeps *sleeps, struct thread *thread)
{
	return sleeps->tid == thread->tid && sleeps->number == thread->calls;
}

/* Notes a sleep that has ended. Few sleeps are in calls that have slept before. */
__noinline int note_call_sleep(__u32 index, __u64 stack)
{
	struct thread *thread = thread_at(index);
	struct call_sleeps *sleeps;
	__u32 used, flags;

	if (!thread || thread->call == CALL_NONE)
		return 0;
	sleeps = sleeps_of(thread);
	if (!sleeps)
		return 0;
	if (!is_of_open_call(sleeps, thread)) {
		sleeps->tid = thread->tid;
		sleeps->number = thread->calls;
		sleeps->count = 0;
		sleeps->longest_ns = 0;
		sleeps->longest_stack = 0;
		sleeps->used = 0;
		sleeps->is_incomplete = 0;
	}
	flags = thread->lock_flags;
	sleeps->count++;
	if (thread->sleep_ns >= sleeps->longest_ns) {
		sleeps->longest_ns = thread->sleep_ns;
		sleeps->longest_stack = stack;
		sleeps->longest_flags = flags;
	}
	if (!stack) {
		sleeps->is_incomplete = 1;
		return 0;
	}
	used = sleeps->used;
	for (__u32 i = 0; i < CALL_SITES_MAX; i++) {
		if (i >= used) {
			sleeps->sites[i].stack = stack;
			sleeps->sites[i].lock_flags = flags;
			sleeps->used = i + 1;
			return 0;
		}
		if (sleeps->sites[i].stack == stack && sleeps->sites[i].lock_flags == flags)
			return 0;
	}
	sleeps->is_incomplete = 1;
	return 0;
}

/* Asks the engine about a place, once. */
static __noinline int ask_for_site(struct sleep_key *of)
{
	struct site_answer asked = {};
	struct site_asked event = {.kind = EVENT_SITE,
				   .call = of->call,
				   .stack = of->stack,
				   .lock_flags = of->lock_flags};
	struct sleep_key key = *of;

	if (bpf_map_update_elem(&site_answers, &key, &asked, BPF_NOEXIST))
		return 0;
	if (bpf_ringbuf_output(&events, &event, sizeof(event), 0))
		bpf_map_delete_elem(&site_answers, &key);
	return 0;
}

/* Which tests hold for the places at which the call slept. */
static __always_inline void ask_for_sites(struct trigger_scratch *scratch,
					  struct call_sleeps *sleeps)
{
	struct sleep_key key = {.call = scratch->call};
	struct site_answer *answer;
	__u32 used = sleeps->used;

	scratch->is_site_unknown = !!sleeps->is_incomplete;
	for (__u32 i = 0; i < CALL_SITES_MAX; i++) {
		if (i >= used)
			break;
		key.stack = sleeps->sites[i].stack;
		key.lock_flags = sleeps->sites[i].lock_flags;
		answer = bpf_map_lookup_elem(&site_answers, &key);
		if (answer && answer->is_known) {
			scratch->sites |= answer->holds;
			continue;
		}
		scratch->is_site_unknown = 1;
		scratch->is_site_new = 1;
		if (!answer && want_report)
			ask_for_site(&key);
	}
}

/* The name of the process that had the CPU for most of what the call waited for one. */
static __always_inline void take_cpu_owner(struct trigger_scratch *scratch, struct thread *thread)
{
	struct call_cpu *of_call = keeps_call_cpu() ? sum_up_call_cpu(thread) : 0;

	scratch->values[VALUE_THROTTLED] = 0;
	scratch->cpu_owner = OWNER_NOBODY;
	scratch->cpu_owner_comm[0] = scratch->cpu_owner_comm[1] = 0;
	if (!of_call)
		return;
	scratch->values[VALUE_THROTTLED] = of_call->throttled_ns;
	switch (of_call->result.kind) {
	case DEBOX_CPU_OWNER_NONE:
	case DEBOX_CPU_OWNER_IDLE:
	case DEBOX_CPU_OWNER_STOLEN:
		return;
	case DEBOX_CPU_OWNER_TASK:
	case DEBOX_CPU_OWNER_OWN:
	case DEBOX_CPU_OWNER_KERNEL:
		scratch->cpu_owner = OWNER_NAMED;
		__builtin_memcpy(scratch->cpu_owner_comm, of_call->result.comm, DEBOX_COMM_LEN);
		return;
	}
	scratch->cpu_owner = OWNER_UNNAMED;
}

static __always_inline void take_values(struct trigger_scratch *scratch, struct thread *thread,
					struct task_struct *task, struct pt_regs *regs, __u64 now,
					long ret)
{
	struct call_sleeps *sleeps = want_sleeps ? sleeps_of(thread) : 0;
	__u64 *values = scratch->values;
	__u64 wall = now - thread->begin_ns;

	scratch->now = now;
	scratch->begin_ns = thread->begin_ns;
	scratch->call = thread->call;
	scratch->sites = 0;
	scratch->is_site_unknown = 0;
	scratch->is_site_new = 0;
	scratch->comm[0] = scratch->comm[1] = 0;
	copy_comm((char *)scratch->comm, task);
	values[VALUE_RET] = (__u64)ret ^ (1ULL << 63);
	values[VALUE_WALL] = wall;
	values[VALUE_CPU] = thread->has_parts ? thread->parts[PART_CPU] : wall;
	values[VALUE_BLOCKED] = thread->parts[PART_BLOCKED];
	values[VALUE_RUNQUEUE] = thread->parts[PART_RUNQUEUE];
	values[VALUE_PREEMPTED] = thread->parts[PART_PREEMPTED];
	values[VALUE_IRQ] = thread->parts[PART_IRQ];
	values[VALUE_SPIN] = thread->spin_ns;
	values[VALUE_LONGEST] = 0;
	values[VALUE_SLEEPS] = 0;
	values[VALUE_FAULTS_MINOR] = task->min_flt - thread->faults_minor;
	values[VALUE_FAULTS_MAJOR] = task->maj_flt - thread->faults_major;
	values[VALUE_PID] = thread->tgid;
	values[VALUE_TID] = thread->tid;
	values[VALUE_ARG0] = regs->di;
	values[VALUE_ARG1] = regs->si;
	values[VALUE_ARG2] = regs->dx;
	values[VALUE_ERROR] = is_error(ret) ? -ret : 0;
	take_cpu_owner(scratch, thread);
	if (!sleeps || !is_of_open_call(sleeps, thread))
		return;
	values[VALUE_LONGEST] = sleeps->longest_ns;
	values[VALUE_SLEEPS] = sleeps->count;
	if (trigger_sites)
		ask_for_sites(scratch, sleeps);
}

static __always_inline __u64 has_call(struct trigger_calls *set, __u32 call)
{
	__u32 number = call & 0xffff;
	__u64 word;

	if (number >= ROWS)
		return !!(set->others & (call & CALL_IA32 ? 2 : 1));
	if (call & CALL_IA32)
		word = set->ia32[(number >> 6) & 7];
	else
		word = set->native[(number >> 6) & 7];
	return (word >> (number & 63)) & 1;
}

static __always_inline __u64 compare(__u32 operation, __u64 left, __u64 right)
{
	switch (operation) {
	case TRIGGER_EQUAL:
		return left == right;
	case TRIGGER_NOT_EQUAL:
		return left != right;
	case TRIGGER_LESS:
		return left < right;
	case TRIGGER_LESS_OR_EQUAL:
		return left <= right;
	case TRIGGER_GREATER:
		return left > right;
	case TRIGGER_GREATER_OR_EQUAL:
		return left >= right;
	}
	return 0;
}

static __always_inline bool has_name(__u64 *comm, struct trigger_name *name)
{
	return !((comm[0] ^ name->words[0]) & name->masks[0]) &&
	       !((comm[1] ^ name->words[1]) & name->masks[1]);
}

/* Puts a value on the stack. */
static __always_inline void push(struct trigger_scratch *scratch, __u64 yes, __u64 unknown)
{
	scratch->yes = scratch->yes << 1 | (yes & 1);
	scratch->unknown = scratch->unknown << 1 | (unknown & 1);
}

/* Replaces the two values on top of the stack by the result of `&&` or `||`. */
static __always_inline void join(struct trigger_scratch *scratch, bool is_and)
{
	__u64 yes = scratch->yes, unknown = scratch->unknown;
	__u64 no = ~(yes | unknown);
	__u64 is_yes, is_no;

	if (is_and) {
		is_yes = yes & (yes >> 1) & 1;
		is_no = (no | (no >> 1)) & 1;
	} else {
		is_yes = (yes | (yes >> 1)) & 1;
		is_no = no & (no >> 1) & 1;
	}
	scratch->yes = yes >> 2;
	scratch->unknown = unknown >> 2;
	push(scratch, is_yes, ~(is_yes | is_no));
}

static long run_step(__u32 at, void *unused)
{
	__u32 zero = 0, number, index, operation;
	struct trigger_scratch *scratch = bpf_map_lookup_elem(&trigger_scratch, &zero);
	struct trigger_step *step;
	struct trigger *trigger;
	struct trigger_name *name;

	if (!scratch)
		return 1;
	number = scratch->trigger;
	trigger = bpf_map_lookup_elem(&triggers, &number);
	if (!trigger)
		return 1;
	step = &trigger->code.steps[at & (TRIGGER_STEPS - 1)];
	operation = step->operation;
	index = step->index;
	switch (operation) {
	case TRIGGER_AND:
		join(scratch, true);
		return 0;
	case TRIGGER_OR:
		join(scratch, false);
		return 0;
	case TRIGGER_NOT:
		scratch->yes ^= ~scratch->unknown & 1;
		return 0;
	case TRIGGER_CALL:
		push(scratch,
		     has_call(&trigger->code.calls[index & (TRIGGER_SETS - 1)], scratch->call), 0);
		return 0;
	case TRIGGER_COMM:
		name = &trigger->code.names[index & (TRIGGER_SETS - 1)];
		push(scratch, has_name(scratch->comm, name), 0);
		return 0;
	case TRIGGER_CPU_OWNER:
		name = &trigger->code.names[index & (TRIGGER_SETS - 1)];
		push(scratch,
		     scratch->cpu_owner == OWNER_NAMED && has_name(scratch->cpu_owner_comm, name),
		     scratch->cpu_owner == OWNER_UNNAMED);
		return 0;
	case TRIGGER_SITE:
		index = (number * TRIGGER_SITE_TESTS + index) & 63;
		if (scratch->sites >> index & 1)
			push(scratch, 1, 0);
		else
			push(scratch, 0, scratch->is_site_unknown);
		return 0;
	case TRIGGER_RESTARTED: /* restarted calls are not looked at */
		push(scratch, 0, 0);
		return 0;
	}
	push(scratch,
	     compare(operation, scratch->values[step->field & (TRIGGER_VALUES - 1)], step->value),
	     0);
	return 0;
}

/* Whether the trigger may fire once more in this second. */
static __always_inline bool is_within_limit(struct trigger_counts *counts, __u64 limit, __u64 now)
{
	__u64 second = now / 1000000000ULL, word, next;

	if (!limit)
		return true;
	for (int i = 0; i < LIMIT_TRIES; i++) {
		word = *(volatile __u64 *)&counts->window;
		if (word >> LIMIT_BITS == second) {
			if ((word & ((1 << LIMIT_BITS) - 1)) >= limit)
				return false;
			next = word + 1;
		} else {
			next = second << LIMIT_BITS | 1;
		}
		if (__sync_val_compare_and_swap(&counts->window, word, next) == word)
			return true;
	}
	return false;
}

static __always_inline void note_sites(struct trigger_fired *event, struct thread *thread)
{
	struct call_sleeps *sleeps = want_sleeps ? sleeps_of(thread) : 0;

	if (!sleeps || !is_of_open_call(sleeps, thread))
		return;
	event->kernel_stack = sleeps->longest_stack;
	event->lock_flags = sleeps->longest_flags;
	event->is_incomplete = sleeps->is_incomplete;
	event->sites_used = sleeps->used;
	__builtin_memcpy(event->sites, sleeps->sites, sizeof(event->sites));
}

/* Whether the thread wants no records now, and so no callbacks. */
static __always_inline bool is_paused(struct thread *thread)
{
	struct debox_slot *slot = slot_of(thread, thread->index);

	return !slot || slot->paused;
}

/* Tells the library's signal handler, through the slot, which triggers the signal is for. */
static __always_inline void mark_trigger_fired(struct thread *thread, __u32 index)
{
	struct debox_slot *slot = slot_of(thread, thread->index);

	if (slot)
		__sync_fetch_and_or(&slot->triggers_fired, 1ULL << (index & (TRIGGERS_MAX - 1)));
}

static __always_inline void copy_sleeps(struct undecided_call *to, struct thread *thread)
{
	struct call_sleeps *sleeps = want_sleeps ? sleeps_of(thread) : 0;

	to->sites_used = 0;
	to->is_incomplete = 0;
	if (!sleeps || !is_of_open_call(sleeps, thread))
		return;
	to->sites_used = sleeps->used;
	to->is_incomplete = sleeps->is_incomplete;
	__builtin_memcpy(to->sites, sleeps->sites, sizeof(to->sites));
}

/*
 * Leaves the call that ends for its thread to decide. Returns whether there was room: a thread that
 * blocks the signal does not take any calls out.
 */
__noinline int ask_thread(__u32 index)
{
	struct thread *thread = thread_with_storage(bpf_get_current_task_btf());
	__u32 zero = 0, bit = 1U << (index & (TRIGGERS_MAX - 1));
	struct trigger_scratch *scratch = bpf_map_lookup_elem(&trigger_scratch, &zero);
	struct debox_slot *slot = thread ? slot_of(thread, thread->index) : 0;
	struct undecided_call *undecided;
	__u64 number;

	if (!scratch || !slot)
		return 0;
	number = thread->calls + 1; /* of its record, when the call has been closed */
	for (int i = 0; i < UNDECIDED_MAX; i++) {
		undecided = &undecided_of(slot)[i];
		if (undecided->number == number) {
			undecided->triggers |= bit;
			return 1;
		}
		if (undecided->number)
			continue;
		undecided->at_ns = scratch->now;
		undecided->call = scratch->call;
		undecided->triggers = bit;
		__builtin_memcpy(undecided->values, scratch->values, sizeof(undecided->values));
		__builtin_memcpy(undecided->comm, scratch->comm, sizeof(undecided->comm));
		undecided->cpu_owner = scratch->cpu_owner;
		__builtin_memcpy(undecided->cpu_owner_comm, scratch->cpu_owner_comm,
				 sizeof(undecided->cpu_owner_comm));
		copy_sleeps(undecided, thread);
		barrier();
		undecided->number = number;
		return 1;
	}
	return 0;
}

/* No engine decides: the thread does, if it can find out more than is known here. */
static __always_inline void leave_undecided(__u32 index, struct trigger *trigger,
					    struct trigger_counts *counts)
{
	__u32 zero = 0;
	struct trigger_scratch *scratch = bpf_map_lookup_elem(&trigger_scratch, &zero);

	if (!scratch || !scratch->is_site_new || !ask_thread(index)) {
		__sync_fetch_and_add(&counts->undecided_lost, 1);
		return;
	}
	if (bpf_send_signal_thread(trigger->signal))
		__sync_fetch_and_add(&counts->unsent, 1);
}

/*
 * The call itself may have given the thread other rights: then its client may neither signal it nor
 * learn more of it. Nothing can change them before the signal is sent. Not inline: fire() has
 * little stack left.
 */
static __noinline bool is_still_clients(struct thread *thread, struct task_struct *task)
{
	return is_clients_own(task, client_of(thread));
}

/*
 * The predicate of a trigger holds (or, with `undecided`, it is not known yet). Does what has to be
 * done before the program goes on, and reports to the engine.
 */
__noinline int fire(__u32 index, __u32 undecided)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 zero = 0, key = index;
	struct trigger_scratch *scratch = bpf_map_lookup_elem(&trigger_scratch, &zero);
	struct trigger *trigger = bpf_map_lookup_elem(&triggers, &key);
	struct trigger_counts *counts = bpf_map_lookup_elem(&trigger_counts, &key);
	struct thread *thread = thread_with_storage(task);
	struct trigger_fired *event;
	long failed = 0;
	__u64 stack;

	if (!scratch || !trigger || !counts || !thread)
		return 0;
	if (for_others && !is_still_clients(thread, task))
		return 0;
	if (want_records && !want_report && is_paused(thread))
		return 0;
	if (undecided && !want_report) {
		leave_undecided(index, trigger, counts);
		return 0;
	}
	if (!undecided) {
		if (!is_within_limit(counts, trigger->limit, scratch->now)) {
			__sync_fetch_and_add(&counts->suppressed, 1);
			return 0;
		}
		__sync_fetch_and_add(&counts->fired, 1);
		if (want_records && !want_report)
			mark_trigger_fired(thread, index);
		if (trigger->signal) {
			failed = bpf_send_signal_thread(trigger->signal);
			if (failed)
				__sync_fetch_and_add(&counts->unsent, 1);
		}
	}
	if (!want_report)
		return 0;
	stack = changes_stack(thread->call) ? thread->entry_stack : take_user_stack(thread, true);
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(undecided ? &counts->undecided_lost : &counts->unlisted, 1);
		return 0;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->kind = EVENT_TRIGGER;
	event->trigger = index;
	event->undecided = undecided;
	event->failed = failed;
	event->call = scratch->call;
	event->at_ns = scratch->now;
	event->begin_ns = scratch->begin_ns;
	__builtin_memcpy(event->values, scratch->values, sizeof(event->values));
	__builtin_memcpy(event->comm, scratch->comm, sizeof(event->comm));
	event->cpu_owner = scratch->cpu_owner;
	__builtin_memcpy(event->cpu_owner_comm, scratch->cpu_owner_comm,
			 sizeof(event->cpu_owner_comm));
	event->user_stack = stack;
	note_sites(event, thread);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

static __always_inline bool is_signal_return(__u32 call)
{
	return call == NR_RT_SIGRETURN || call == (119 | CALL_IA32) || call == (173 | CALL_IA32);
}

/*
 * Evaluates the triggers at the end of a call whose parts have been closed. Parts of restarted
 * calls are left out, and so are calls whose beginning was not seen. Returns from signal handlers
 * are left out, too: they "return" what the interrupted call did, so that a trigger would fire
 * again for what its own signal interrupted.
 */
static __noinline int check_triggers(struct thread *thread, struct task_struct *task,
				     struct pt_regs *regs, __u64 now, long ret)
{
	struct trigger_scratch *scratch;
	struct trigger *trigger;
	__u32 zero = 0, key;

	if (is_restart(ret) || is_signal_return(thread->call) || (thread->flags & THREAD_PARTIAL))
		return 0;
	if (want_records && !want_report && (thread->flags & THREAD_ELSEWHERE))
		return 0; /* the signal would kill the program */
	scratch = bpf_map_lookup_elem(&trigger_scratch, &zero);
	if (!scratch)
		return 0;
	take_values(scratch, thread, task, regs, now, ret);
	for (__u32 i = 0; i < TRIGGERS_MAX; i++) {
		if (i >= trigger_count)
			break;
		key = i;
		trigger = bpf_map_lookup_elem(&triggers, &key);
		if (!trigger)
			break;
		scratch->trigger = i;
		scratch->yes = 0;
		scratch->unknown = 0;
		bpf_loop(trigger->code.used & (2 * TRIGGER_STEPS - 1), run_step, 0, 0);
		if (scratch->yes & 1)
			fire(i, 0);
		else if (scratch->unknown & 1)
			fire(i, 1);
	}
	return 0;
}

#endif
