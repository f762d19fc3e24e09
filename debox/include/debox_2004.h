/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * debox_2004.h: the interface of Ruan and Pai's DeBox (2004), Figure 2.3, on top of debox.h.
 *
 * Names, fields and array sizes are those of the original. In 2004 the kernel copied the result to
 * the buffer when a call returned. Here that depends on the tap (see debox_enable() in debox.h).
 * Under the user tap the buffer is filled at the end of each call that the tap sees: in a program
 * under `debox run --tap user` those of libc, after debox_enable() with DEBOX_TAP_USER those made
 * with debox_call(). Under the kernel tap the kernel may not write to a program's memory, so the
 * program calls DeBoxFetch() to fill the buffer:
 *
 *	DeBoxInfo info;
 *
 *	DeBoxControl(&info, 5, 0);
 *	write(fd, data, length);
 *	DeBoxFetch();
 *	printf("call %d, %d page faults\n", info.syscallNum, info.numPGFaults);
 *
 * A program that calls DeBoxFetch() runs unchanged under both. Link with -ldebox.
 *
 * At the end of a call a sleep's label and site are looked up if they were not seen before. That
 * allocates memory and takes, the very first time, some tenths of a second. A signal handler may
 * have interrupted an allocation, so nothing is looked up while more signals are blocked than were
 * in DeBoxControl(). Such a sleep has the label "?" until DeBoxFetch(), or a later call outside of
 * handlers, looks it up. (A handler installed with SA_NODEFER that blocks no signal cannot be told
 * from the program itself: it must make no call that the tap sees.)
 */
#ifndef DEBOX_2004_H
#define DEBOX_2004_H

#include <sys/time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One place where the call slept. */
typedef struct PerSleepInfo {
	int numSleeps;		    /* how often it slept here */
	struct timeval blockedTime; /* for how long in all */
	char wmesg[8];		    /* the label, cut to 7 characters */
	char blockingFile[32];	    /* source file, or function+0xOFF if the kernel has no debug
				       information */
	int blockingLine;	    /* 0 where the kernel has no debug information */
	int numWaitersEntry;	    /* most waiters when a sleep began, the sleeper included */
	int numWaitersExit;	    /* most waiters left when one ended */
} PerSleepInfo;

/* One kernel function entered during the call. */
typedef struct CallTrace {
	unsigned long callSite; /* its address; debox_explain_trace() names it */
	int deltaTime;		/* nanoseconds spent in it; 0 where the kernel gives samples only */
} CallTrace;

/* One call. */
typedef struct DeBoxInfo {
	int syscallNum; /* call number on this machine */
	union CallTime {
		struct timeval callTimeval; /* this one is filled */
		long callCycles;
	} CallTime;	     /* from entry to exit */
	int numPGFaults;     /* minor and major */
	int numPerSleepInfo; /* entries of psi that are filled */
	int traceDepth;	     /* entries of ct that are filled, in the order of entry */
	struct PerSleepInfo psi[5];
	struct CallTrace ct[200];
} DeBoxInfo;

/*
 * Makes `resultBuf` the calling thread's buffer: the results of the next calls go there, with at
 * most `maxSleeps` (of 5) sleeps and `maxTrace` (of 200) trace entries. May be called again at any
 * time with another buffer or other limits. The first use in a process enables DeBox as
 * debox_enable(NULL) does, unless it is enabled already.
 *
 * NULL deactivates the buffer: the calling thread's records are paused. If it was the last thread
 * with a buffer, and DeBox had been enabled by this function, DeBox is disabled for the process.
 *
 * Returns 0, or -1 with errno EPERM (no privilege), ENOSYS (the kernel lacks something), EINVAL (a
 * negative limit), EAGAIN (too many threads) or EIO; debox_last_error_text() says more.
 * Not signal-safe.
 */
int DeBoxControl(DeBoxInfo *resultBuf, int maxSleeps, int maxTrace);

/*
 * Brings the calling thread's buffer up to date with its last call. Under the user tap it already
 * is, except for labels that are "?". Makes no system call, except when a site is seen for the
 * first time and its label is looked up. Returns 1 if there was a call since the last time (or
 * since DeBoxControl), 0 if not, or -1 with errno EINVAL if the thread has no buffer. Not
 * signal-safe.
 */
int DeBoxFetch(void);

#ifdef __cplusplus
}
#endif
#endif
