/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * attach.h: the protocol between a session and a process under the user tap.
 */
#ifndef DEBOX_ATTACH_H
#define DEBOX_ATTACH_H

#include "debox_tap.h"

/*
 * The environment variable that describes the session, in three parts with colons between them.
 * First, how many seccomp filters the session itself is under, followed by a plus sign if the
 * session also sees the calls that a process makes to find it: then the process makes as few as
 * possible. Second, the session's secret, 16 hexadecimal digits. Third, the path of its socket.
 */
#define DEBOX_TAP_VARIABLE "DEBOX_TAP"
#define DEBOX_TAP_SECRET_DIGITS 16

/* The session's one message, with the descriptors of slots, thread ids and rows. */
struct debox_tap_welcome {
	__u32 version; /* DEBOX_VERSION */
	__u32 slots;   /* entries in each of the three */
	__u64 secret;  /* as in the environment, so that no other server passes for the session */
};

/* The file of rows: a page with the clock, then a table of rows for each slot. */
#define DEBOX_TAP_PAGE 4096UL
#define DEBOX_TAP_TABLE                                                                            \
	((DEBOX_TAP_ROWS * sizeof(struct debox_tap_row) + DEBOX_TAP_PAGE - 1) &                    \
	 ~(DEBOX_TAP_PAGE - 1))
#define DEBOX_TAP_ROWS_AT(slot) (DEBOX_TAP_PAGE + (slot) * DEBOX_TAP_TABLE)
#define DEBOX_TAP_FILE_SIZE(slots) DEBOX_TAP_ROWS_AT((size_t)(slots))

/* The slot for threads that have none: paused, so that nothing is recorded. */
extern DEBOX_TAP_HIDDEN struct debox_slot debox_tap_nowhere;

/* Whether the calling thread has looked for its slot. */
DEBOX_TAP_HIDDEN int debox_tap_is_attached(void);

/*
 * To be called before the process restricts its own system calls, or leaves the file system that
 * has the session's socket: fetches what it cannot ask for later.
 */
DEBOX_TAP_HIDDEN void debox_tap_before_leaving(void);

/* A system call without libc, whose functions are interposed. Returns the kernel's result. */
static inline long debox_raw(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

#endif
