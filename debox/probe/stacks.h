/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * stacks.h: the kernel stack of a task that is about to run again, which shows where it slept.
 *
 * Unwinding is half the cost of a recorded sleep, and programs sleep at the same few places. So the
 * slots in which a stack's return addresses lie are remembered by the depth of the stack pointer
 * and the call. If each slot still holds its address, unwinding would find the same frames again,
 * as the position of a frame follows from the addresses before it. An address that occurs twice in
 * the words looked at could be a stale copy, so such stacks are not remembered.
 *
 * Kernels that randomize the stack leave up to 1 KB of old words between the outermost frame, which
 * is at the entry to the kernel, and the others. Those words are not looked at, as they are full of
 * stale copies.
 */
#ifndef PROBE_STACKS_H
#define PROBE_STACKS_H

#include "state.h"
#include "client.h"

#define KERNEL_STACK_SIZE                                                                          \
	16384 /* THREAD_SIZE of x86-64 without KASAN; a wrong value costs time                     \
	       */
#define SHAPE_WORDS 256

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct kernel_stack);
} kernel_stacks SEC(".maps");

struct shape_key {
	__u32 depth; /* of the stack pointer */
	__u32 call;
	__u64 args; /* a hash of those that labels look at */
};

/* Where in the stack the return addresses of a known stack are. */
struct shape {
	__u64 name, site;
	__u32 frames;
	__u32 bytes; /* from the stack pointer to the last but the outermost frame */
	__u64 address[STACK_DEPTH];
	__u32 word[STACK_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct shape_key);
	__type(value, struct shape);
} shapes SEC(".maps");

/* Working space, too large for the BPF stack; used with interrupts off, inside the scheduler. */
struct stack_scratch {
	struct kernel_stack stack;
	struct shape shape;
	__u64 words[SHAPE_WORDS];
	__u32 found, repeated;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_scratch);
} stack_scratch SEC(".maps");

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash ^= word;
	hash *= 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 29);
}

/* The number of frames that lie close together: all, if the outermost ones were not captured. */
static __always_inline __u32 inner_frames(__u32 frames)
{
	return frames < STACK_DEPTH ? frames - 1 : frames;
}

/* One word of the stack: the next frame's return address, or a second copy of an earlier one? */
static long learn_word(__u32 index, struct stack_scratch **holder)
{
	__u32 zero = 0;
	struct stack_scratch *scratch = bpf_map_lookup_elem(&stack_scratch, &zero);
	__u32 found, inner, word = index;
	__u64 value;

	if (!scratch || word >= SHAPE_WORDS)
		return 1;
	value = scratch->words[word];
	found = scratch->found;
	inner = inner_frames(scratch->shape.frames);
	if (found >= inner) {
		/*
		 * The outermost frame: its last copy, above which there are only the program's
		 * registers.
		 */
		found = inner;
		if (found >= STACK_DEPTH || value != scratch->stack.frames[found])
			return 0;
	} else {
		for (__u32 i = 0; i < STACK_DEPTH; i++) {
			if (i >= found)
				break;
			if (scratch->shape.address[i] == value)
				scratch->repeated = 1;
		}
		if (found >= STACK_DEPTH || value != scratch->stack.frames[found])
			return 0;
		scratch->shape.bytes = (word + 1) * sizeof(__u64);
	}
	scratch->shape.address[found] = value;
	scratch->shape.word[found] = word;
	scratch->found = found + 1;
	return 0;
}

static __always_inline void learn_shape(struct stack_scratch *scratch, struct shape_key *key,
					__u64 sp, __u64 name, __u64 site, __u32 frames)
{
	__u32 words = (KERNEL_STACK_SIZE - key->depth) / sizeof(__u64);

	if (frames < 2)
		return;
	if (words > SHAPE_WORDS)
		words = SHAPE_WORDS;
	if (bpf_probe_read_kernel(scratch->words, words * sizeof(__u64), (void *)sp))
		return;
	scratch->found = 0;
	scratch->repeated = 0;
	scratch->shape.name = name;
	scratch->shape.site = site;
	scratch->shape.frames = frames;
	bpf_loop(words, learn_word, &scratch, 0);
	if (scratch->found == frames && !scratch->repeated)
		bpf_map_update_elem(&shapes, key, &scratch->shape, BPF_ANY);
}

/* Whether every return address of a known stack is still where it was. */
__noinline int same_shape(struct shape *shape, __u64 sp)
{
	struct stack_scratch *scratch;
	__u32 bytes, inner, zero = 0;
	__u64 outermost;

	scratch = bpf_map_lookup_elem(&stack_scratch, &zero);
	if (!scratch || !shape)
		return false;
	bytes = shape->bytes;
	inner = inner_frames(shape->frames);
	if (bytes > sizeof(scratch->words))
		return false;
	if (bpf_probe_read_kernel(scratch->words, bytes, (void *)sp))
		return false;
	for (__u32 i = 0; i < STACK_DEPTH; i++) {
		if (i >= inner)
			break;
		if (scratch->words[shape->word[i] & (SHAPE_WORDS - 1)] != shape->address[i])
			return false;
	}
	if (inner >= STACK_DEPTH)
		return true;
	return !bpf_probe_read_kernel(&outermost, sizeof(outermost),
				      (void *)(sp + shape->word[inner] * sizeof(__u64))) &&
	       outermost == shape->address[inner];
}

/*
 * Takes the arguments that rules for labels look at. Returns a hash of them; 0 if there are none.
 */
static __always_inline __u64 take_label_args(struct task_struct *task, __u32 call, __u64 *args)
{
	const volatile __u64 *masks;
	struct pt_regs *regs;

	args[0] = args[1] = args[2] = 0;
	if (call != CALL_NONE)
		call &= ~CALL_UNTAPPED;
	if (call >= ROWS)
		return 0;
	masks = label_arg_masks[call];
	if (!(masks[0] | masks[1] | masks[2]))
		return 0;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if (!regs)
		return 0;
	args[0] = regs->di & masks[0];
	args[1] = regs->si & masks[1];
	args[2] = regs->dx & masks[2];
	return mix(mix(mix(6, args[0]), args[1]), args[2]) | 1;
}

/* Keeps a stack, which contains its arguments, for the report, and returns its name. */
static __always_inline __u64 keep_stack(struct kernel_stack *stack, __u64 args_name)
{
	__u64 hash = 1;

	for (int i = 0; i < STACK_DEPTH; i++)
		hash = mix(hash, stack->frames[i]);
	if (args_name)
		hash = mix(hash, args_name);
	stack->has_args = args_name != 0;
	hash = shown_address(hash);
	if (!bpf_map_lookup_elem(&kernel_stacks, &hash) &&
	    bpf_map_update_elem(&kernel_stacks, &hash, stack, BPF_NOEXIST) == -7)
		COUNT_LOST(stacks); /* E2BIG: the table is full */
	return hash;
}

/*
 * Takes the kernel stack of a task that is not running, and returns its name; 0 if it could not be
 * captured.
 */
static __always_inline __u64 take_kernel_stack(struct task_struct *task, __u32 call, __u64 *site)
{
	__u64 sp = task->thread.sp, hash;
	struct shape_key key = {
		.depth = sp & (KERNEL_STACK_SIZE - 1),
		.call = call,
	};
	struct stack_scratch *scratch;
	struct shape *shape;
	__u32 zero = 0;
	long bytes;

	scratch = bpf_map_lookup_elem(&stack_scratch, &zero);
	if (!scratch)
		return 0;
	key.args = take_label_args(task, call, scratch->stack.args);
	shape = bpf_map_lookup_elem(&shapes, &key);
	if (shape && same_shape(shape, sp)) {
		*site = shape->site;
		return shape->name;
	}
	__builtin_memset(scratch->stack.frames, 0, sizeof(scratch->stack.frames));
	bytes = bpf_get_task_stack(task, scratch->stack.frames, sizeof(scratch->stack.frames), 0);
	if (bytes <= 0) {
		if (!task->on_cpu) /* else the holder of a lock runs again */
			COUNT_LOST(stacks);
		return 0;
	}
	*site = shown_address(scratch->stack.frames[0]);
	hash = keep_stack(&scratch->stack, key.args);
	learn_shape(scratch, &key, sp, hash, *site, bytes / sizeof(__u64));
	return hash;
}

/* For the iterators, which a probe on the same CPU may interrupt while they use their scratch. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kernel_stack);
} iterator_scratch SEC(".maps");

/*
 * For iterators, which may be preempted: while one is in the middle of this, the kernel has no room
 * for another task's stack on that CPU, and the stack of a thread that goes to sleep there could
 * not be captured.
 */
static __always_inline long task_stack(struct task_struct *task, void *frames, __u32 size)
{
	long bytes;

	preempt_disable();
	bytes = bpf_get_task_stack(task, frames, size, 0);
	preempt_enable();
	return bytes;
}

static __noinline __u64 take_stack_aside(struct task_struct *task, __u32 call)
{
	struct kernel_stack *stack;
	__u64 args_name;
	__u32 zero = 0;

	stack = bpf_map_lookup_elem(&iterator_scratch, &zero);
	if (!stack)
		return 0;
	__builtin_memset(stack->frames, 0, sizeof(stack->frames));
	if (task_stack(task, stack->frames, sizeof(stack->frames)) <= 0) {
		COUNT_LOST(stacks);
		return 0;
	}
	args_name = take_label_args(task, call, stack->args);
	return keep_stack(stack, args_name);
}

#endif
