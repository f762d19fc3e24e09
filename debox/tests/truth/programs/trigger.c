/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * trigger MODE [N]: calls that a trigger with `signal USR1` (or RTMIN+3) is to fire for.
 *
 *   next     N slow nanosleeps; the very next instruction looks whether the handler has run
 *   blocked  N of them with the signals blocked
 *   badf     N failing calls, which tell of a handler that returns into another firing
 *   pieces   a read that a handler interrupts and that goes on
 */
#include "known.h"

static _Atomic uint64_t handled, foreign, real_time;
static volatile uint32_t seen;
static pid_t target;

static void handler(int signal)
{
	int before = errno;

	if (signal != SIGUSR1)
		atomic_fetch_add(&real_time, 1);
	else
		atomic_fetch_add(&handled, 1);
	if (own_tid() != target)
		atomic_fetch_add(&foreign, 1);
	seen++;
	errno = before;
}

/* Whether the handler had run when the instruction after the call was executed. */
static uint32_t nap_and_look(uint64_t ns)
{
	struct timespec time = {.tv_nsec = (long)ns};
	uint32_t before = seen, after;
	long ret;

	__asm__ volatile("syscall\n\tmovl %2, %1"
			 : "=a"(ret), "=&r"(after)
			 : "m"(seen), "a"(SYS_nanosleep), "D"(&time), "S"(0L)
			 : "rcx", "r11", "memory");
	MUST(ret == 0);
	return after - before;
}

/* Another thread, which must not get what is meant for the first. */
static void *bystander(void *stop)
{
	while (!*(_Atomic int *)stop)
		pass_ns(100000);
	return NULL;
}

static void next(uint64_t n)
{
	_Atomic int stop = 0;
	uint64_t at_once = 0;
	pthread_t thread;

	MUST(pthread_create(&thread, NULL, bystander, &stop) == 0);
	for (uint64_t i = 0; i < n; i++)
		at_once += nap_and_look(20 * MILLISECOND);
	stop = 1;
	MUST(pthread_join(thread, NULL) == 0);
	fact("at_once", at_once);
}

static void blocked(uint64_t n)
{
	sigset_t set, pending;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMIN + 3);
	MUST(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	for (uint64_t i = 0; i < n; i++)
		MUST(nap_and_look(20 * MILLISECOND) == 0);
	MUST(sigpending(&pending) == 0);
	fact("pending", (uint64_t)sigismember(&pending, SIGUSR1));
	fact("handled_while_blocked", handled + real_time);
	MUST(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
}

/* A handler of another signal, with SA_RESTART, interrupts the read: two pieces of one call. */
static void *interrupt_then_wake(void *fd)
{
	await_call(target, SYS_read);
	pass_ns(20 * MILLISECOND);
	MUST(syscall(SYS_tgkill, getpid(), target, SIGWINCH) == 0);
	pass_ns(40 * MILLISECOND);
	MUST(write(*(int *)fd, "x", 1) == 1);
	return NULL;
}

static void quiet(int signal)
{
	(void)signal;
}

static void pieces(void)
{
	struct sigaction action = {.sa_handler = quiet, .sa_flags = SA_RESTART};
	pthread_t thread;
	int ends[2];
	char byte;

	MUST(sigaction(SIGWINCH, &action, NULL) == 0);
	MUST(pipe(ends) == 0);
	MUST(pthread_create(&thread, NULL, interrupt_then_wake, &ends[1]) == 0);
	MUST(read(ends[0], &byte, 1) == 1);
	MUST(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "next";
	struct sigaction action = {.sa_handler = handler};
	uint64_t n = argument(argc, argv, 2, 5);

	facts_start();
	target = own_tid();
	MUST(sigaction(SIGUSR1, &action, NULL) == 0);
	MUST(sigaction(SIGRTMIN + 3, &action, NULL) == 0);
	if (!strcmp(mode, "next"))
		next(n);
	else if (!strcmp(mode, "blocked"))
		blocked(n);
	else if (!strcmp(mode, "badf"))
		for (uint64_t i = 0; i < n; i++)
			MUST(close(-1) == -1 && errno == EBADF);
	else
		pieces();
	fact("handled", handled);
	fact("real_time", real_time);
	fact("foreign", foreign);
	facts_end();
	return 0;
}
