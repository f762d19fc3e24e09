/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * debox_tap.h: the user tap: stamps taken around a system call in user space.
 *
 *	struct debox_slot *tapped = debox_tap_begin(SYS_read, fd, (__u64)buffer, size);
 *	ret = read(fd, buffer, size);
 *	debox_tap_end(tapped, SYS_read, ret < 0 ? -errno : ret);
 *
 * Between the stamps the probes add what they see of the thread (sleeps, switches, signal handlers)
 * to the open record. A call that never left the CPU costs two reads of the time-stamp counter and
 * a few stores. What the stamps enclose beyond the call is in `outside`.
 *
 * Safe in signal handlers: a call made by a handler inside another call gets a record of its own,
 * and its time does not count for the other call. Safe in children of fork and vfork, and after a
 * jump out of a handler: the call that was left ends there, with -EINTR. If there is no slot, or it
 * is paused, nothing is recorded.
 */
#ifndef DEBOX_TAP_H
#define DEBOX_TAP_H

#include "debox.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DEBOX_TAP_ROWS 512
#define DEBOX_TAP_BUCKETS 296 /* as the probes count them; see debox/probe/buckets.h */

/* From the time-stamp counter to CLOCK_MONOTONIC: ns = base_ns + ((tsc - base_tsc) * mult >> 32).
 */
struct debox_tap_clock {
	__u32 sequence; /* odd while it is changed */
	__u32 reserved0;
	__u64 base_tsc;
	__u64 base_ns;
	__u64 mult;
	__u64 reserved[4];
};

/* All of one thread's calls of one number. */
struct debox_tap_row {
	__u64 calls, errors, restarts;
	__u64 parts_ns[6]; /* in the order of struct debox_budget */
	__u64 faults;
	__u64 max_ns;
	__u64 reserved;
	__u32 histogram[DEBOX_TAP_BUCKETS];
};

/* What a process knows of its session. */
struct debox_tap_process {
	const struct debox_tap_clock *clock;
	/* 1 once attached; 0 in forked children, where the page is wiped (MADV_WIPEONFORK). */
	volatile __u32 *mine;
};

#define DEBOX_TAP_DEPTH 5 /* calls suspended by signal handlers, at most */

/* A call that a signal handler suspended while the handler makes calls of its own. */
struct debox_tap_saved {
	__u32 call, touched, handler, faults; /* call number + 1; 0: it was being recorded */
	__u32 skipped; /* its place in the ring was taken, but not counted yet */
	__u32 reserved;
	__u64 start, args[3], frame, caller;
	__u64 first_out_ns, last_in_ns;
};

/*
 * A thread's own state. `start` is not 0 from the first stamp until the call is recorded. Together
 * with the slot's tap_call it tells a signal handler what it interrupted: an open call if tap_call
 * is set, with or without `start`; a call that is being recorded if only `start` is set.
 */
struct debox_tap_thread {
	struct debox_slot *slot; /* never NULL: a paused one until debox_tap_attach */
	struct debox_tap_row
		*rows; /* the last one is for numbers that do not exist; NULL: no rows wanted */
	__u64 start;   /* time-stamp counter */
	__u64 args[3];
	__u32 faults;
	__u32 depth; /* entries of saved[] in use */
	struct debox_tap_saved saved[DEBOX_TAP_DEPTH];
};

#define DEBOX_TAP_HIDDEN __attribute__((visibility("hidden")))
#define DEBOX_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define DEBOX_BARRIER() __asm__ volatile("" ::: "memory")

/* Provided by the library that links this in: the preload shim or libdebox. */
extern DEBOX_TAP_HIDDEN struct debox_tap_process debox_tap_process;
extern DEBOX_TAP_HIDDEN __thread struct debox_tap_thread debox_tap_thread
	__attribute__((tls_model("initial-exec")));
/* Finds the calling thread's slot; returns a paused one if it has none. */
DEBOX_TAP_HIDDEN struct debox_slot *debox_tap_attach(void);

/* In debox_tap.c: the slow path. NULL: this call is not to be recorded. */
DEBOX_TAP_HIDDEN struct debox_slot *debox_tap_begin_slow(__u64 frame);
DEBOX_TAP_HIDDEN void debox_tap_finish(__u32 number, __u64 stop, __s64 ret);
/* Sets a function to call, on its thread, whenever a tapped call was recorded; NULL: none. */
void debox_tap_watch(void (*on_end)(struct debox_slot *slot));
/* Call before a jump to a frame whose stack pointer was `to`: ends the calls that it leaves. */
DEBOX_TAP_HIDDEN void debox_tap_leave(__u64 to);

static inline __u64 debox_tap_now(void)
{
	__u32 low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high)::"memory");
	return (__u64)high << 32 | low;
}

/* The first stamp. Pass the result to debox_tap_end; the frames are those of the caller. */
static inline __attribute__((always_inline)) struct debox_slot *
debox_tap_begin(__u32 number, __u64 arg0, __u64 arg1, __u64 arg2)
{
	struct debox_tap_thread *thread = &debox_tap_thread;
	struct debox_slot *slot = thread->slot;
	__u64 frame = (__u64)__builtin_frame_address(0);

	if (DEBOX_UNLIKELY((slot->paused | slot->tap_foreign | slot->tap_call) != 0 ||
			   thread->start != 0 || !*debox_tap_process.mine)) {
		slot = debox_tap_begin_slow(frame);
		if (!slot)
			return 0;
	}
	/* This claims the slot: from here on a signal handler finds the call open. */
	slot->tap_call = number + 1;
	DEBOX_BARRIER();
	slot->tap_frame = frame;
	slot->tap_caller = (__u64)__builtin_return_address(0);
	thread->args[0] = arg0;
	thread->args[1] = arg1;
	thread->args[2] = arg2;
	thread->faults = slot->tap_faults;
	thread->start = debox_tap_now();
	DEBOX_BARRIER();
	return slot;
}

/* The second stamp. `ret` as the kernel returned it: -errno on error. */
static inline __attribute__((always_inline)) void debox_tap_end(struct debox_slot *slot,
								__u32 number, __s64 ret)
{
	if (slot)
		debox_tap_finish(number, debox_tap_now(), ret);
}

#ifdef __cplusplus
}
#endif
#endif
