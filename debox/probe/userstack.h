/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * userstack.h: the whole user stack of a call (detail `callsites`).
 *
 * Most programs are built without frame pointers, so only their unwinding tables say where return
 * addresses lie. The engine reads those: a stack that is not known is sent to it, with the
 * registers, and it answers with the words by which this stack is recognized (`user_shapes`). The
 * position of each frame follows from the addresses before it, so a stack in which all of these
 * words are in place would be unwound to the same frames.
 *
 * A call cannot wait for the answer. It is counted under a name made of all words that could be an
 * address of code or of the stack itself: calls with the same name have the same frames.
 */
#ifndef PROBE_USERSTACK_H
#define PROBE_USERSTACK_H

#include "mapped.h"

#define SHAPE_WAYS 4
#define WAY_INTERRUPTED 0x80 /* the address is that of an instruction, not of the next */
#define WORDS_AT_ONCE 16
#define ASK_AGAIN_NS 1000000000ULL

/* The range of a program's addresses: below it are small numbers, above it is the kernel. */
#define USER_BEGIN 0x10000ULL
#define USER_END 0x800000000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct user_shape_key);
	__type(value, struct user_shape);
} user_shapes SEC(".maps");

/* Stacks that have been sent to the engine, by name, and when. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, __u64);
	__type(value, __u64);
} asked_stacks SEC(".maps");

/* Not static: global functions are verified once, static ones at each call. */
__noinline int same_user_stack(struct user_shape *shape, __u64 sp, __u64 bp)
{
	__u32 checks;

	if (!shape)
		return 0;
	checks = shape->checks;
	for (__u32 i = 0; i < STACK_CHECKS; i++) {
		__u64 word = bp;
		__u32 at;

		if (i >= checks)
			break;
		at = shape->at[i];
		if (at & CHECK_STACK_POINTER)
			word = sp;
		else if (!(at & CHECK_FRAME_POINTER) &&
			 bpf_probe_read_user(&word, sizeof(word),
					     (void *)(sp + (at & CHECK_OFFSET))))
			return 0;
		if (at & CHECK_RELATIVE)
			word -= sp;
		if (word != shape->value[i])
			return 0;
	}
	return 1;
}

/* Copies as much of the stack as can be read, page by page, up to the end of what is mapped. */
static __always_inline __u32 copy_user_stack(struct ask_scratch *scratch, __u64 sp)
{
	__u32 copied = 0;

	for (int i = 0; i <= STACK_ASK_BYTES / PAGE_BYTES; i++) {
		__u32 size = PAGE_BYTES - ((sp + copied) & (PAGE_BYTES - 1));

		if (copied >= STACK_ASK_BYTES || size > PAGE_BYTES)
			break;
		if (bpf_probe_read_user((char *)scratch->words + (copied & (STACK_ASK_BYTES - 1)),
					size, (void *)(sp + copied)))
			break;
		copied += size;
	}
	return copied < STACK_ASK_BYTES ? copied : STACK_ASK_BYTES;
}

static long hash_words(__u32 index, void *unused)
{
	__u32 which = SCRATCH_OF_CALLS, first = index * WORDS_AT_ONCE;
	struct ask_scratch *scratch = bpf_map_lookup_elem(&ask_scratch, &which);
	__u64 hash;

	if (!scratch)
		return 1;
	hash = scratch->hash;
	for (__u32 i = 0; i < WORDS_AT_ONCE; i++) {
		__u32 at = (first + i) & (STACK_ASK_BYTES / sizeof(__u64) - 1);
		__u64 word = scratch->words[at];

		if (word - USER_BEGIN < USER_END - USER_BEGIN)
			hash = mix(hash, word ^ ((__u64)at << 48));
	}
	scratch->hash = hash;
	return 0;
}

static __always_inline void note_registers(struct stack_ask *ask, struct pt_regs *regs)
{
	ask->ip = regs->ip;
	ask->sp = regs->sp;
	ask->bp = regs->bp;
	ask->bx = regs->bx;
	ask->di = regs->di;
	ask->r10 = regs->r10;
	ask->r12 = regs->r12;
	ask->r13 = regs->r13;
	ask->r14 = regs->r14;
	ask->r15 = regs->r15;
}

/* The registers with which the task entered the kernel, and the stack from there on. */
static __always_inline void note_stack(struct ask_scratch *scratch, struct task_struct *task,
				       struct pt_regs *regs, bool is_interrupted)
{
	struct stack_ask *ask = &scratch->ask;

	note_registers(ask, regs);
	ask->is_compat = (task->thread_info.status & TS_COMPAT) != 0;
	ask->is_interrupted = is_interrupted;
	ask->bytes = copy_user_stack(scratch, ask->sp);
}

/*
 * Sends the stack to the engine unless that was done in the last second. False: it could not be
 * sent.
 */
static __always_inline bool ask_for_stack(struct ask_scratch *scratch, struct thread *thread,
					  struct task_struct *task, __u64 name)
{
	__u64 *asked = bpf_map_lookup_elem(&asked_stacks, &name);
	__u64 now = bpf_ktime_get_ns();

	if (asked && now - *asked < ASK_AGAIN_NS)
		return true;
	note_mappings(scratch, thread, task);
	if (send_ask(scratch, name, &stack_asks, 0))
		return false;
	bpf_map_update_elem(&asked_stacks, &name, &now, BPF_ANY);
	return true;
}

/*
 * A name for a stack that is not known. 0: it may not be read, or could not be sent to the engine.
 */
__noinline __u64 take_new_stack(struct thread *thread, __u32 is_interrupted)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct ask_scratch *scratch;
	__u32 which = SCRATCH_OF_CALLS;
	__u64 name;

	scratch = bpf_map_lookup_elem(&ask_scratch, &which);
	if (!scratch || !regs || !thread)
		return 0;
	note_stack(scratch, task, regs, is_interrupted);
	if (!may_be_read(task))
		return 0;
	name = mix(6 + is_interrupted, scratch->ask.ip);
	name = mix(mix(name, scratch->ask.sp), scratch->ask.bp);
	scratch->hash = mix(mix(name, thread->tgid), task->self_exec_id);
	bpf_loop(scratch->ask.bytes / sizeof(__u64) / WORDS_AT_ONCE, hash_words, 0, 0);
	name = scratch->hash;
	return ask_for_stack(scratch, thread, task, name) ? name : 0;
}

/*
 * The name of the current task's user stack; 0: it could not be captured, and was counted as lost.
 * `is_interrupted`: 1 if a fault brought the task into the kernel, 0 if a call did.
 */
__noinline __u64 take_deep_stack(struct thread *thread, __u32 is_interrupted)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct user_shape_key key = {.image = task->self_exec_id};
	struct user_shape *shape;
	__u64 name, sp, bp;

	if (!regs || !thread)
		return 0;
	sp = regs->sp;
	bp = regs->bp;
	key.tgid = thread->tgid;
	key.ip = regs->ip;
	key.depth = sp / sizeof(__u64);
	for (int way = 0; way < SHAPE_WAYS; way++) {
		key.way = way | (is_interrupted ? WAY_INTERRUPTED : 0);
		shape = bpf_map_lookup_elem(&user_shapes, &key);
		if (shape && same_user_stack(shape, sp, bp))
			return shape->name;
	}
	name = take_new_stack(thread, is_interrupted);
	if (!name && may_be_read(task)) /* else the thread is released, and the report says so */
		COUNT_LOST(stacks);
	return name;
}

#endif
