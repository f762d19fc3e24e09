/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * callsites.h: rows for the places in the program where calls and sleeps came from.
 */
#ifndef PROBE_CALLSITES_H
#define PROBE_CALLSITES_H

#include "title.h"
#include "userstack.h"

#define NR_MMAP 9
#define NR_RT_SIGRETURN 15
#define NR_EXECVE 59
#define NR_EXIT_GROUP 231
#define NR_EXECVEAT 322
#define PROT_EXEC 4

/* These calls leave the kernel on another stack than the one they were made on. */
static __always_inline bool changes_stack(__u32 call)
{
	return call == NR_RT_SIGRETURN || call == NR_EXECVE || call == NR_EXECVEAT;
}

/* For these calls the process's state is looked at before they are made. */
static __always_inline bool is_looked_at(__u32 call)
{
	return changes_stack(call) || call == NR_EXIT_GROUP;
}

/* The immediate call site of the current thread, in a call, and the words above it. */
__noinline __u64 take_shallow_stack(struct thread *thread)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct user_stack *stack;
	__u32 zero = 0;
	__u64 hash;

	if (!regs || !thread)
		return 0;
	stack = bpf_map_lookup_elem(&user_stack_scratch, &zero);
	if (!stack)
		return 0;
	stack->tgid = thread->tgid;
	hash = take_immediate_site(thread, stack, regs);
	keep_user_stack(hash, stack);
	return hash;
}

/*
 * The user stack of the current thread, in a call. Inline: 6.1 has no room for another stack frame
 * on this path.
 */
static __always_inline __u64 take_user_stack(struct thread *thread, bool deep)
{
	__u64 hash = deep ? take_deep_stack(thread, 0) : 0;

	return hash ? hash : take_shallow_stack(thread);
}

/* For calls whose stack, or process, is gone when they end. */
static __noinline int look_at_entry(struct thread *thread)
{
	if (thread->call == NR_EXIT_GROUP)
		return send_title(thread, TITLE_AT_END);
	/* The call by which DeBox begins the program is not the program's. */
	thread->entry_stack = 0;
	if (want_report && (want_sleeps || want_callsites) && !(thread->flags & THREAD_BEGINNING))
		thread->entry_stack = take_user_stack(thread, want_callsites || want_triggers);
	return 0;
}

/*
 * For a sleep between calls: when the sleep is written to the tables, the program is elsewhere.
 * Most such sleeps are faults; what the thread does on its way out of a call is attributed to that
 * call's place in the program.
 */
static __noinline int note_sleeping_stack(struct thread *thread)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

	thread->entry_stack = 0;
	if (!regs)
		return 0;
	thread->entry_stack = take_deep_stack(thread, (long)regs->orig_ax < 0);
	if (!thread->entry_stack)
		thread->entry_stack = take_fault_site(thread->tgid, regs->ip);
	return 0;
}

/* Where the call that ends now was made. */
static __always_inline __u64 user_stack_of_call(struct thread *thread)
{
	if (changes_stack(thread->call))
		return thread->entry_stack;
	return take_user_stack(thread, want_callsites);
}

/*
 * The places in the program of the sleeps since the last stamp, for each site slept at.
 * `user_stack`: where the call that ends now was made.
 */
__noinline int write_slept_sites(struct thread *thread, __u64 user_stack)
{
	struct site_key key = {.user_stack = user_stack};

	if (!thread)
		return 0;
	key.call = thread->call;
	for (__u32 i = 0; i < SLEPT_MAX && i < thread->slept_used; i++) {
		key.stack = thread->slept[i].stack;
		if (!key.stack)
			continue; /* it would count as a call: such rows have no kernel stack */
		key.lock_flags = thread->slept[i].lock_flags;
		if (thread->call == CALL_NONE)
			key.user_stack =
				want_callsites ? thread->slept[i].at
					       : take_fault_site(thread->tgid, thread->slept[i].at);
		add_site(&key, thread->slept[i].count, thread->slept[i].blocked_ns, 0);
	}
	return 0;
}

/*
 * Under the user tap the thread itself has noted the caller, and the place is written when the
 * sleep ends: there is no probe at the end of the call.
 */
static __noinline int write_tapped_site(struct thread *thread, struct task_struct *task,
					__u64 kernel_stack, __u64 caller)
{
	struct site_key key = {
		.stack = kernel_stack, .call = thread->call, .lock_flags = thread->lock_flags};
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct call_site_seen *seen;
	struct user_stack *stack;
	__u32 zero = 0;

	if (!want_report)
		return 0;
	stack = bpf_map_lookup_elem(&user_stack_scratch, &zero);
	if (!stack || !regs)
		return 0;
	stack->tgid = thread->tgid;
	stack->frames[0] = regs->ip;
	stack->frames[1] = caller;
	stack->depth = caller ? 2 : 1;
	key.user_stack = mix(mix(mix(5, regs->ip), caller), thread->tgid);
	if (keep_user_stack(key.user_stack, stack)) {
		seen = fresh_call_site(thread->tgid, regs->ip);
		if (!seen || bpf_ringbuf_output(&events, seen, sizeof(*seen), 0))
			COUNT_LOST(stacks);
	}
	add_site(&key, 1, thread->sleep_ns, 0);
	return 0;
}

static __always_inline void note_mapped_code(struct thread *thread, struct pt_regs *regs)
{
	__u32 call = thread->call;

	if (is_error(regs->ax))
		return;
	if (call == NR_MMAP && regs->dx & PROT_EXEC) {
		send_mapping(thread, regs->ax);
	} else if (call == NR_EXECVE || call == NR_EXECVEAT) {
		send_mapping(thread, 0);
		send_mapping(thread, regs->ip); /* its loader, if it has one */
	}
}

/* Returns the name of the user stack. */
static __noinline __u64 write_call_site(struct thread *thread, __u64 wall)
{
	struct site_key key = {.call = thread->call};

	key.user_stack = user_stack_of_call(thread);
	add_site(&key, 1, thread->parts[PART_BLOCKED], wall);
	return key.user_stack;
}

#endif
