/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * debox_tap.h: the user tap: stamps taken around a system call in user space.
 *
 *	struct debox_tap tap;
 *	debox_tap_begin(&tap, SYS_read, fd, buffer, size);
 *	ret = read(fd, buffer, size);
 *	debox_tap_end(&tap, ret < 0 ? -errno : ret);
 *
 * Between the stamps the probes add what they see of the thread - sleeps, switches, signal
 * handlers - to the open record, so that a call that never left the CPU costs two reads of the
 * time-stamp counter and a few stores. What the stamps enclose beyond the call is in `outside`.
 *
 * Safe in signal handlers (a call made by a handler inside another call gets a record of its own),
 * after longjmp or cancellation (the abandoned call is counted and forgotten) and in children of
 * fork and vfork. Where there is no slot, or it is paused, nothing is recorded.
 */
#ifndef DEBOX_TAP_H
#define DEBOX_TAP_H

#include "debox.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DEBOX_TAP_ROWS 512
#define DEBOX_TAP_BUCKETS 296 /* as the probes count them; see bucket_of in probe/calls.h */

/* From the time-stamp counter to CLOCK_MONOTONIC: ns = base_ns + ((tsc - base_tsc) * mult >> 32). */
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

/* What a process has of its session; one for each process. */
struct debox_tap_process {
	const struct debox_tap_clock *clock;
	/* 1 in the process that filled this in, 0 in its forked children (MADV_WIPEONFORK). */
	const volatile __u32 *mine;
};

/* Provided by whoever links this in: the preload shim or libdebox. */
extern struct debox_tap_process debox_tap_process;
extern __thread struct debox_slot *debox_tap_slot;    /* NULL until debox_tap_attach */
extern __thread struct debox_tap_row *debox_tap_rows; /* NULL: no rows wanted */
/* Finds the calling thread's slot; the result is never NULL (a paused one where there is none). */
struct debox_slot *debox_tap_attach(void);

struct debox_tap {
	struct debox_slot *slot; /* NULL: not recorded */
	__u64 start;             /* time-stamp counter */
	__u64 args[3];
	__u32 call;
	__u32 faults;
	struct debox_tap_saved *outer;
};

/* The open call that a nested one interrupts. */
struct debox_tap_saved {
	__u32 call, touched, handler;
	__u64 first_out_ns, last_in_ns, frame, caller;
	struct debox_record record;
};

#define DEBOX_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define DEBOX_BARRIER() __asm__ volatile("" ::: "memory")

static inline __u64 debox_tap_now(void)
{
	__u32 low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high)::"memory");
	return (__u64)high << 32 | low;
}

/* In debox_tap.c. */
void debox_tap_nest(struct debox_tap *tap, struct debox_tap_saved *saved);
void debox_tap_abandon(struct debox_slot *slot);
void debox_tap_finish(struct debox_tap *tap, __u64 stop, __s64 ret);

/*
 * A call is open already: a signal handler runs inside it (the kernel says so, and the open call's
 * frame is still on the stack), or it was left by longjmp or cancellation.
 */
#define debox_tap_begin(tap, number, arg0, arg1, arg2)                                             \
	do {                                                                                       \
		struct debox_slot *slot_ = debox_tap_slot;                                         \
		__u64 frame_ = (__u64)__builtin_frame_address(0);                                  \
		if (DEBOX_UNLIKELY(!slot_ || !*debox_tap_process.mine))                            \
			slot_ = debox_tap_attach();                                                \
		(tap)->slot = 0;                                                                   \
		if (DEBOX_UNLIKELY(slot_->paused | slot_->tap_foreign))                            \
			break;                                                                     \
		(tap)->slot = slot_;                                                               \
		(tap)->outer = 0;                                                                  \
		(tap)->call = (number);                                                            \
		(tap)->args[0] = (__u64)(arg0);                                                    \
		(tap)->args[1] = (__u64)(arg1);                                                    \
		(tap)->args[2] = (__u64)(arg2);                                                    \
		if (DEBOX_UNLIKELY(slot_->tap_call)) {                                             \
			if (slot_->tap_handler && frame_ < slot_->tap_frame)                       \
				debox_tap_nest(                                                    \
					(tap), (struct debox_tap_saved *)__builtin_alloca(         \
						       sizeof(struct debox_tap_saved)));           \
			else                                                                       \
				debox_tap_abandon(slot_);                                          \
		}                                                                                  \
		(tap)->faults = slot_->tap_faults;                                                 \
		slot_->tap_frame = frame_;                                                         \
		slot_->tap_caller = (__u64)__builtin_return_address(0);                            \
		slot_->tap_touched = 0;                                                            \
		slot_->tap_handler = 0;                                                            \
		DEBOX_BARRIER();                                                                   \
		slot_->tap_call = (number) + 1;                                                    \
		(tap)->start = debox_tap_now();                                                    \
	} while (0)

/* `ret` as the kernel returned it: -errno on error. */
#define debox_tap_end(tap, ret)                                                                    \
	do {                                                                                       \
		if ((tap)->slot)                                                                   \
			debox_tap_finish((tap), debox_tap_now(), (ret));                           \
	} while (0)

#ifdef __cplusplus
}
#endif
#endif
