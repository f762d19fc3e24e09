/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * user_tap.c: the user tap of a program that opened the session itself: its thread-local words, and
 * the stamps around the calls that it makes through the library.
 *
 * debox_tap.c does the recording; the Rust side finds slots and keeps the clock. Everything here is
 * async-signal-safe. Without a user tap the calls are made without stamps.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attach.h"

/* What a thread remembers of its slot; declared in thread_state.rs. */
extern DEBOX_TAP_HIDDEN __thread struct {
	__u64 generation;
	struct debox_slot *slot;
	__u64 floor;
	__u64 watched;
} debox_inband_words __attribute__((tls_model("initial-exec")));

/* In user_tap.rs. Both are cold. */
DEBOX_TAP_HIDDEN int debox_inband_look_up(__u64 generation);
DEBOX_TAP_HIDDEN void debox_inband_refresh_clock(void);

/* The generation of a process without a user tap of its own. */
static volatile __u64 none;
struct debox_slot debox_tap_nowhere = {.paused = 1};

/* Private memory: a forked child continues with a clock of its own. */
DEBOX_TAP_HIDDEN struct debox_tap_clock debox_inband_clock;
/* How far the counter may be from the clock's base before the clock is refreshed. */
DEBOX_TAP_HIDDEN __u64 debox_inband_clock_age_max;

struct debox_tap_process debox_tap_process = {
	.clock = &debox_inband_clock,
	.mine = (volatile __u32 *)&none,
};
__thread struct debox_tap_thread debox_tap_thread
	__attribute__((tls_model("initial-exec"))) = {.slot = &debox_tap_nowhere};

/* Begins or ends tapping: `generation` is the page that shows whether slots are mapped. */
DEBOX_TAP_HIDDEN void debox_inband_set_tap(volatile __u64 *generation)
{
	debox_tap_process.mine = (volatile __u32 *)(generation ? generation : &none);
}

/* Sets the calling thread's slot. A call that was open in another session is dropped. */
DEBOX_TAP_HIDDEN void debox_inband_take_slot(struct debox_slot *slot, struct debox_tap_row *rows)
{
	/* These fields are the same in all records, so they are not written with each. */
	for (int i = 0; slot && i < DEBOX_HISTORY_MAX; i++) {
		slot->history[i].version = DEBOX_VERSION;
		slot->history[i].size = sizeof(slot->history[i]);
	}
	debox_tap_thread.slot = slot ? slot : &debox_tap_nowhere;
	debox_tap_thread.rows = rows;
	debox_tap_thread.start = 0;
	debox_tap_thread.depth = 0;
}

/* Threads have found their slots before they get here, unless the session has just ended. */
int debox_tap_is_attached(void)
{
	return *debox_tap_process.mine != 0;
}

struct debox_slot *debox_tap_attach(void)
{
	return &debox_tap_nowhere;
}

/* Whether this process has a user tap, and the calling thread knows its slot. */
static inline __attribute__((always_inline)) int is_tapped(void)
{
	__u64 generation = *(volatile __u64 *)debox_tap_process.mine;

	if (DEBOX_UNLIKELY(generation != debox_inband_words.generation))
		return generation && debox_inband_look_up(generation);
	return generation != 0;
}

/* Such calls would return into the stamps in a new process or image, or not at all. */
static inline int returns_elsewhere(long number)
{
	switch (number) {
	case SYS_rt_sigreturn:
	case SYS_clone:
	case SYS_fork:
	case SYS_vfork:
	case SYS_execve:
	case SYS_exit:
	case SYS_exit_group:
	case SYS_execveat:
	case SYS_clone3:
		return 1;
	}
	return 0;
}

static inline __attribute__((always_inline)) void end(struct debox_slot *slot, __u32 number,
						      __s64 ret)
{
	__u64 stop;

	/* No longer this thread's slot: in a child that a handler forked, or in another session. */
	if (!slot || DEBOX_UNLIKELY(slot != debox_tap_thread.slot))
		return;
	stop = debox_tap_now();
	if (DEBOX_UNLIKELY(stop - debox_inband_clock.base_tsc > debox_inband_clock_age_max))
		debox_inband_refresh_clock();
	debox_tap_finish(number, stop, ret);
}

/* Calls libc's function, which the preload shim, if present, taps. */
static __attribute__((noinline)) long call_untapped(long number, long a, long b, long c, long d,
						    long e, long f)
{
	int saved = errno;
	long ret = syscall(number, a, b, c, d, e, f);

	if (ret == -1)
		ret = -errno;
	errno = saved;
	return ret;
}

/*
 * Variable arguments, as in syscall(2): if the caller passes fewer than six, the stack where the
 * others would be must not be written to.
 */
DEBOX_TAP_HIDDEN long debox_inband_call(long number, ...)
{
	long a, b, c, d, e, f, ret;
	struct debox_slot *slot;
	va_list list;

	va_start(list, number);
	a = va_arg(list, long);
	b = va_arg(list, long);
	c = va_arg(list, long);
	d = va_arg(list, long);
	e = va_arg(list, long);
	f = va_arg(list, long);
	va_end(list);
	if (DEBOX_UNLIKELY(!is_tapped() || returns_elsewhere(number)))
		return call_untapped(number, a, b, c, d, e, f);
	slot = debox_tap_begin((__u32)number, (__u64)a, (__u64)b, (__u64)c);
	ret = debox_raw(number, a, b, c, d, e, f);
	end(slot, (__u32)number, ret);
	return ret;
}

DEBOX_TAP_HIDDEN struct debox_slot *debox_inband_begin(long number, __u64 a, __u64 b, __u64 c)
{
	if (DEBOX_UNLIKELY(!is_tapped() || returns_elsewhere(number)))
		return 0;
	return debox_tap_begin((__u32)number, a, b, c);
}

DEBOX_TAP_HIDDEN void debox_inband_end(struct debox_slot *slot, long number, __s64 ret)
{
	end(slot, (__u32)number, ret);
}
