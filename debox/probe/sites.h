/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * sites.h: tables of where calls sleep: kernel stacks, wakers, and places in the program.
 *
 * A stack is named by a hash of its frames. Rows are kept in hash maps of fixed size; what does not
 * fit is counted in `lost`.
 */
#ifndef PROBE_SITES_H
#define PROBE_SITES_H

#include "state.h"
#include "stacks.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct sleep_key);
	__type(value, struct sleep_row);
} sleep_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct waker_key);
	__type(value, struct waker_row);
} waker_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u64);
	__type(value, struct user_stack);
} user_stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct site_key);
	__type(value, struct site_row);
} site_rows SEC(".maps");

/*
 * Where the return address of a system call wrapper lies, by process and instruction pointer: the
 * engine reads it from the unwinding tables when a call site is first seen.
 */
struct wrapper_key {
	__u64 ip;
	__u32 tgid, reserved;
};
enum wrapper_rule {
	WRAPPER_UNKNOWN, /* no unwinding information there */
	WRAPPER_FROM_SP,
	WRAPPER_FROM_BP,
	WRAPPER_ASKED, /* the engine has yet to answer */
};
/* Functions of a library that call each other below the program's own, at most. */
#define LIBRARY_FRAMES_MAX 6
struct wrapper {
	__s32 offset; /* from the stack pointer, or the frame pointer */
	__u32 rule;   /* enum wrapper_rule */
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct wrapper_key);
	__type(value, struct wrapper);
} wrappers SEC(".maps");

/*
 * Too large for the BPF stack, which is 512 bytes for a probe and all functions that it calls
 * together. Kernels from 6.13 on give each function a stack of its own, so a probe that loads there
 * need not load on older kernels.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct user_stack);
} user_stack_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call_site_seen);
} seen_scratch SEC(".maps");

static __always_inline void add_waker(struct thread *thread, struct sleep_key *sleep)
{
	struct waker_key key = {
		.stack = sleep->stack,
		.call = sleep->call,
		.lock_flags = sleep->lock_flags,
		.kind = thread->waker_kind,
		.tid = thread->waker_tid,
	};
	struct waker_row *row = bpf_map_lookup_elem(&waker_rows, &key);
	struct waker_row fresh = {.count = 1};

	if (row) {
		__sync_fetch_and_add(&row->count, 1);
		return;
	}
	__builtin_memcpy(fresh.comm, thread->waker_comm, sizeof(fresh.comm));
	if (!bpf_map_update_elem(&waker_rows, &key, &fresh, BPF_NOEXIST))
		return;
	row = bpf_map_lookup_elem(&waker_rows, &key); /* another CPU was first, or it is full */
	if (row)
		__sync_fetch_and_add(&row->count, 1);
	else
		COUNT_LOST(rows);
}

static __always_inline bool is_slept_at(struct slept *slept, __u64 stack, __u64 at, __u32 flags)
{
	return slept->stack == stack && slept->at == at && slept->lock_flags == flags;
}

/* `at`: the place in the program, if the call does not show it. */
__noinline int add_slept(struct thread *thread, __u64 stack, __u64 at)
{
	__u32 used, flags;

	if (!thread)
		return 0;
	used = thread->slept_used;
	flags = thread->lock_flags;
	for (__u32 i = 0; i < SLEPT_MAX; i++) {
		if (i == used || i == SLEPT_MAX - 1) {
			if (i == used) {
				thread->slept[i].stack = stack;
				thread->slept[i].at = at;
				thread->slept[i].blocked_ns = 0;
				thread->slept[i].count = 0;
				thread->slept[i].lock_flags = flags;
				thread->slept_used = used + 1;
			} else if (!is_slept_at(&thread->slept[i], stack, at, flags)) {
				COUNT_LOST(rows);
				return 0;
			}
		} else if (!is_slept_at(&thread->slept[i], stack, at, flags)) {
			continue;
		}
		thread->slept[i].blocked_ns += thread->sleep_ns;
		thread->slept[i].count++;
		return 0;
	}
	return 0;
}

/* The place in the program of a thread that sleeps between calls. */
static __always_inline __u64 place_between_calls(struct thread *thread, struct task_struct *task)
{
	struct pt_regs *regs;

	if (want_callsites)
		return thread->entry_stack;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	return regs ? regs->ip : 0;
}

static __always_inline void update_max(__u64 *max, __u64 value)
{
	if (value > *max)
		*max = value;
}

/*
 * Adds the sleep that has just ended to the tables. Like all functions that keep rows on the stack
 * it is not inline: kernels before 6.13 give a probe and its deepest chain of calls 512 bytes, with
 * each frame rounded up to 32, and the functions called after this one need the room.
 */
static __noinline int add_sleep(struct thread *thread, struct task_struct *task, __u64 stack,
				__u32 waiters_exit)
{
	struct sleep_key key = {
		.call = thread->call, .lock_flags = thread->lock_flags, .stack = stack};
	struct sleep_row fresh = {.count = 1, .blocked_ns = thread->sleep_ns};
	struct sleep_row *row;

	row = bpf_map_lookup_elem(&sleep_rows, &key);
	if (!row) {
		fresh.max_ns = thread->sleep_ns;
		fresh.waiters_entry = thread->waiters_entry;
		fresh.waiters_exit = waiters_exit;
		fresh.waiters_scope = thread->flags & THREAD_COUNTED ? DEBOX_WAITERS_MONITORED
				      : thread->flags & THREAD_LOCK  ? DEBOX_WAITERS_ALL
								     : DEBOX_WAITERS_UNKNOWN;
		if (bpf_map_update_elem(&sleep_rows, &key, &fresh, BPF_NOEXIST)) {
			row = bpf_map_lookup_elem(&sleep_rows, &key);
			if (!row) {
				COUNT_LOST(sleeps);
				return 0;
			}
		}
	}
	if (row) {
		__sync_fetch_and_add(&row->count, 1);
		__sync_fetch_and_add(&row->blocked_ns, thread->sleep_ns);
		update_max(&row->max_ns, thread->sleep_ns);
		if (thread->waiters_entry > row->waiters_entry)
			row->waiters_entry = thread->waiters_entry;
		if (waiters_exit > row->waiters_exit)
			row->waiters_exit = waiters_exit;
	}
	add_waker(thread, &key);
	if (!user_tap)
		add_slept(thread, key.stack,
			  thread->call == CALL_NONE ? place_between_calls(thread, task) : 0);
	return 0;
}

/*
 * Not static, like some others here: such functions are verified once, for any arguments; static
 * ones are verified on each path that leads through them, which took most of the time of a
 * session's start.
 */
__noinline int add_site(struct site_key *of, __u64 count, __u64 blocked, __u64 wall)
{
	struct site_row fresh = {
		.count = count, .blocked_ns = blocked, .wall_ns = wall, .max_ns = wall};
	struct site_row *row;
	struct site_key key;

	if (!of)
		return 0;
	key = *of; /* 6.1 does not take a key from a function's argument */
	row = bpf_map_lookup_elem(&site_rows, &key);
	if (!row) {
		if (!bpf_map_update_elem(&site_rows, &key, &fresh, BPF_NOEXIST))
			return 0;
		row = bpf_map_lookup_elem(&site_rows, &key); /* another CPU was first */
	}
	if (!row) {
		COUNT_LOST(rows);
		return 0;
	}
	__sync_fetch_and_add(&row->count, count);
	__sync_fetch_and_add(&row->blocked_ns, blocked);
	__sync_fetch_and_add(&row->wall_ns, wall);
	update_max(&row->max_ns, wall);
	return 0;
}

static __always_inline void note_file(struct mapped_file *mapped, struct file *file)
{
	mapped->inode = BPF_CORE_READ(file, f_inode, i_ino);
	mapped->device = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	bpf_probe_read_kernel_str(mapped->name, sizeof(mapped->name),
				  BPF_CORE_READ(file, f_path.dentry, d_name.name));
}

static __always_inline void note_mapped(struct mapped_file *mapped, struct vm_area_struct *vma)
{
	struct file *file = vma->vm_file;

	mapped->start = vma->vm_start;
	mapped->end = vma->vm_end;
	mapped->page_offset = vma->vm_pgoff;
	if (file)
		note_file(mapped, file);
}

/* A call site about which nothing is known yet. */
static __always_inline struct call_site_seen *fresh_call_site(__u32 tgid, __u64 ip)
{
	__u32 zero = 0;
	struct call_site_seen *seen = bpf_map_lookup_elem(&seen_scratch, &zero);

	if (!seen)
		return 0;
	__builtin_memset(seen, 0, sizeof(*seen));
	seen->kind = EVENT_CALL_SITE;
	seen->tgid = tgid;
	seen->ip = ip;
	return seen;
}

/* The third argument can only point to the caller's stack, which has no room for the result. */
static long note_mapping(struct task_struct *task, struct vm_area_struct *vma, __u32 *zero)
{
	struct call_site_seen *seen = bpf_map_lookup_elem(&seen_scratch, zero);

	if (seen)
		note_mapped(&seen->at_ip, vma);
	return 0;
}

static __always_inline void note_program(struct mapped_file *mapped, struct mm_struct *mm)
{
	struct file *program = BPF_CORE_READ(mm, exe_file);

	mapped->start = BPF_CORE_READ(mm, start_code);
	mapped->end = BPF_CORE_READ(mm, end_code);
	if (program)
		note_file(mapped, program);
}

/* Reports a call site, and what is mapped there, to the engine while its process lives. */
__noinline int announce(__u32 tgid, __u64 ip)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct call_site_seen *seen;
	__u32 zero = 0;

	if (!want_report)
		return 0;
	seen = fresh_call_site(tgid, ip);
	if (!seen)
		return 0;
	bpf_find_vma(task, ip, note_mapping, &zero, 0);
	if (mm)
		note_program(&seen->program, mm);
	if (bpf_ringbuf_output(&events, seen, sizeof(*seen), 0))
		COUNT_LOST(stacks);
	return 0;
}

/* Clears the frames beyond the first: the map keeps all of them, whatever the depth. */
static __always_inline void forget_words(struct user_stack *stack)
{
	__builtin_memset(&stack->frames[1], 0, sizeof(stack->frames) - sizeof(stack->frames[0]));
}

/* The rule for a place in the program, if the engine has given one. */
static __always_inline struct wrapper *rule_at(__u32 tgid, __u64 ip)
{
	struct wrapper_key key = {.ip = ip, .tgid = tgid};
	struct wrapper *wrapper = bpf_map_lookup_elem(&wrappers, &key);

	return wrapper && wrapper->rule != WRAPPER_ASKED ? wrapper : 0;
}

static __always_inline void ask_for_rule(__u32 tgid, __u64 ip)
{
	struct wrapper_key key = {.ip = ip, .tgid = tgid};
	struct wrapper unknown = {.rule = WRAPPER_ASKED};

	if (bpf_map_lookup_elem(&wrappers, &key))
		return;
	bpf_map_update_elem(&wrappers, &key, &unknown, BPF_NOEXIST);
	announce(tgid, ip);
}

/*
 * Takes the callers above frames[1], as long as the frame is in a library function that only passes
 * calls on: waits for a mutex end in functions of the C library that call each other. Their frames
 * are found from the stack pointer alone. Returns the stack's name, or 0 with `depth` set to the
 * first frame for which there is no rule yet. Not static, so that it is verified once.
 */
__noinline __u64 take_callers(struct user_stack *stack, __u64 sp, __u64 hash)
{
	struct wrapper *wrapper;

	if (!stack)
		return 0;
	for (__u32 i = 1; i <= LIBRARY_FRAMES_MAX; i++) {
		wrapper = rule_at(stack->tgid, stack->frames[i]);
		if (!wrapper) {
			stack->depth = i;
			return 0;
		}
		if (wrapper->rule != WRAPPER_FROM_SP ||
		    bpf_probe_read_user(&stack->frames[i + 1], sizeof(__u64),
					(void *)(sp + wrapper->offset)))
			break;
		sp += wrapper->offset + sizeof(__u64);
		stack->depth = i + 2;
		hash = mix(hash, stack->frames[i + 1]);
	}
	return hash;
}

/*
 * The call site: the instruction that made the call, the caller of the wrapper it is in, and the
 * callers above while these are in a library. Until the engine has reported where a function keeps
 * its return address, words of the stack are kept, and the engine finds the callers in them later.
 */
static __always_inline __u64 take_immediate_site(struct thread *thread, struct user_stack *stack,
						 struct pt_regs *regs)
{
	struct wrapper *wrapper = rule_at(thread->tgid, regs->ip);
	__u64 at, name, hash = mix(mix(2, regs->ip), thread->tgid);
	__u64 not_known = regs->ip;
	__u32 frame;

	stack->frames[0] = regs->ip;
	stack->depth = 1;
	if (wrapper) {
		if (wrapper->rule == WRAPPER_UNKNOWN)
			return hash;
		at = (wrapper->rule == WRAPPER_FROM_SP ? regs->sp : regs->bp) + wrapper->offset;
		if (bpf_probe_read_user(&stack->frames[1], sizeof(__u64), (void *)at) ||
		    !may_be_read(bpf_get_current_task_btf())) {
			forget_words(stack);
			return hash;
		}
		stack->depth = 2;
		name = take_callers(stack, at + sizeof(__u64), mix(hash, stack->frames[1]));
		if (name)
			return name;
		frame = stack->depth;
		if (frame < USER_STACK_DEPTH)
			not_known = stack->frames[frame];
	}
	ask_for_rule(thread->tgid, not_known);
	if (bpf_probe_read_user(&stack->frames[1], sizeof(stack->frames) - sizeof(stack->frames[0]),
				(void *)regs->sp) ||
	    !may_be_read(bpf_get_current_task_btf())) {
		forget_words(stack);
		stack->depth = 1;
		return hash;
	}
	stack->depth = RAW_STACK;
	for (int i = 1; i < USER_STACK_DEPTH; i++)
		hash = mix(hash, stack->frames[i]);
	return hash;
}

/* Stores the stack under its name unless it is there already. */
static __always_inline bool keep_user_stack(__u64 hash, struct user_stack *stack)
{
	if (bpf_map_lookup_elem(&user_stacks, &hash))
		return false;
	if (bpf_map_update_elem(&user_stacks, &hash, stack, BPF_NOEXIST) == -7 /* E2BIG */)
		COUNT_LOST(stacks);
	return true;
}

/* A fault in user code: the instruction itself is the call site. */
__noinline __u64 take_fault_site(__u32 tgid, __u64 ip)
{
	struct user_stack *stack;
	__u32 zero = 0;
	__u64 hash;

	stack = bpf_map_lookup_elem(&user_stack_scratch, &zero);
	if (!stack)
		return 0;
	stack->tgid = tgid;
	stack->depth = 1;
	stack->frames[0] = ip;
	hash = mix(mix(4, ip), tgid);
	if (keep_user_stack(hash, stack))
		announce(tgid, ip);
	return hash;
}

#endif
