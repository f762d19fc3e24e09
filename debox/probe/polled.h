/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * polled.h: the descriptors of poll() and select(): how many are waited for, and which are ready.
 *
 * Both are in the program's memory, which a probe can read for the current task only: when the task
 * goes to sleep, and at the call's end. For a task that was asleep when it was enrolled, the engine
 * reads them.
 */
#ifndef PROBE_POLLED_H
#define PROBE_POLLED_H

#include "state.h"

#define NR_POLL 7
#define NR_SELECT 23
#define NR_PSELECT6 270
#define NR_PPOLL 271
#define FD_NONE (-1)

#define POLLED_MAX 64	  /* descriptors of poll(), looked through for one that is ready */
#define SELECTED_WORDS 16 /* of select(): FD_SETSIZE bits */

/* The kernel's layout. */
struct pollfd {
	__s32 fd;
	__s16 events, returned;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct read_polled);
} polls_read SEC(".maps");

static __always_inline bool is_poll(__u32 call)
{
	return call == NR_POLL || call == NR_PPOLL || call == NR_SELECT || call == NR_PSELECT6;
}

static __always_inline bool takes_pollfds(__u32 call)
{
	return call == NR_POLL || call == NR_PPOLL;
}

static __always_inline __u32 count_bits(__u64 word)
{
	word -= (word >> 1) & 0x5555555555555555ULL;
	word = (word & 0x3333333333333333ULL) + ((word >> 2) & 0x3333333333333333ULL);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (word * 0x0101010101010101ULL) >> 56;
}

/* A walk through the sets of a select(). */
struct select_walk {
	__u64 end, sets[3];
	__u32 lowest, count;
};

static long next_word(__u32 at, struct select_walk *walk)
{
	__u64 all = 0, word;

	if (at * 64 >= walk->end)
		return 1;
	for (int i = 0; i < 3; i++) {
		/* If there is no such set, the read fails and gives zeros. */
		bpf_probe_read_user(&word, sizeof(word),
				    (void *)(walk->sets[i] + at * sizeof(word)));
		all |= word;
	}
	/* Bits beyond the last descriptor are not part of the sets. */
	if (walk->end < (at + 1) * 64)
		all &= (1ULL << (walk->end & 63)) - 1;
	if (all && !walk->count)
		walk->lowest = at * 64 + count_bits((all & -all) - 1);
	walk->count += count_bits(all);
	return 0;
}

/*
 * The sets of a select() of the current task: the lower half is the number of descriptors, the
 * upper half the lowest descriptor. Not static, so that it is verified once.
 */
__noinline __u64 selected(__u64 end, __u64 first, __u64 second, __u64 third)
{
	struct select_walk walk = {.end = end, .sets = {first, second, third}};

	bpf_loop(SELECTED_WORDS, next_word, &walk, 0);
	return (__u64)walk.lowest << 32 | walk.count;
}

/* The first entry of a poll() of the current task that is ready, or FD_NONE. Not static, either. */
__noinline int first_ready(__u64 entries, __u64 count)
{
	struct pollfd polled;

	for (__u32 i = 0; i < POLLED_MAX; i++) {
		if (i >= count || bpf_probe_read_user(&polled, sizeof(polled),
						      (void *)(entries + i * sizeof(polled))))
			break;
		if (polled.returned)
			return polled.fd;
	}
	return FD_NONE;
}

/*
 * The lower half is the number of descriptors that the call waits for; if that is one, the upper
 * half is the descriptor.
 */
static __noinline __u64 polled_by(struct task_struct *task, struct pt_regs *regs, __u32 call)
{
	__u32 tid = task->pid, count;
	struct read_polled *read;
	struct pollfd polled;

	if (task != bpf_get_current_task_btf()) {
		read = bpf_map_lookup_elem(&polls_read, &tid);
		if (read && read->switches == task->nvcsw)
			return (__u64)(__u32)read->fd << 32 | read->count;
		count = takes_pollfds(call) ? regs->si : 0;
		return count == 1 ? 0 : count;
	}
	if (!takes_pollfds(call))
		return selected(regs->di, regs->si, regs->dx, regs->r10);
	if (regs->si != 1)
		return (__u32)regs->si;
	if (bpf_probe_read_user(&polled, sizeof(polled), (void *)regs->di))
		return 0;
	return (__u64)(__u32)polled.fd << 32 | 1;
}

/* At the end of the current task's call: the first descriptor that is ready, or FD_NONE. */
static __always_inline int ready_fd(struct pt_regs *regs, __u32 call)
{
	__u64 left;

	if (takes_pollfds(call))
		return first_ready(regs->di, regs->si);
	/* The kernel leaves only the ready descriptors in the sets. */
	left = selected(regs->di, regs->si, regs->dx, regs->r10);
	return (__u32)left ? (int)(left >> 32) : FD_NONE;
}

#endif
