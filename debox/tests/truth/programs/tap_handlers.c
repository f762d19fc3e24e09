/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * tap_handlers WHAT: calls made by signal handlers.
 *
 *   busy COUNT STACK  a timer fires 5000 times a second while a loop makes getppid calls, until
 *                     COUNT signals were handled; the handler makes three getuid calls and
 *                     raises a second signal inside, whose handler makes two getgid calls. STACK
 *                     1: both on a stack of their own.
 *   blocked MS STACK  a read that blocks for MS is interrupted 20 times and restarted; the handler
 *                     sleeps 1 ms and makes three getuid calls.
 *   jumps COUNT STACK as busy, but every other handler jumps out to the loop with siglongjmp,
 *                     until COUNT jumped; the loop then makes its calls from deeper down the stack.
 *   left COUNT STACK  a handler jumps out of a read that blocks, COUNT times.
 */
#include <setjmp.h>
#include <sys/time.h>

#include "known.h"

static volatile uint64_t handled, nested, jumped;
static volatile sig_atomic_t jumps;
static sigjmp_buf back;

static void inner(int number)
{
	(void)number;
	nested++;
	syscall(SYS_getgid);
	syscall(SYS_getgid);
}

static void outer(int number)
{
	int saved = errno;

	(void)number;
	handled++;
	syscall(SYS_getuid);
	if (jumps && handled % 2) {
		jumped++;
		siglongjmp(back, 1);
	}
	/* The second signal comes inside this handler, as its call returns. */
	syscall(SYS_tgkill, getpid(), own_tid(), SIGUSR2);
	syscall(SYS_getuid);
	syscall(SYS_getuid);
	errno = saved;
}

static void sleeper(int number)
{
	(void)number;
	handled++;
	for (int i = 0; i < 3; i++)
		syscall(SYS_getuid);
	usleep(1000);
}

static void jumper(int number)
{
	(void)number;
	syscall(SYS_getuid);
	siglongjmp(back, 1);
}

static void handle(int number, void (*handler)(int), int own_stack)
{
	struct sigaction action = {.sa_handler = handler,
				   .sa_flags = SA_RESTART | (own_stack ? SA_ONSTACK : 0)};

	MUST(sigaction(number, &action, NULL) == 0);
}

static void give_stack(void)
{
	stack_t own = {.ss_size = 256 << 10};

	own.ss_sp =
		mmap(NULL, own.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(own.ss_sp != MAP_FAILED && sigaltstack(&own, NULL) == 0);
}

static __attribute__((noinline)) uint64_t call_from_below(int depth)
{
	volatile char room[256];

	room[0] = (char)depth;
	if (depth > 0)
		return call_from_below(depth - 1) + (uint64_t)(room[0] == 1 ? 0 : 0);
	syscall(SYS_getppid);
	return 1;
}

static void busy(volatile uint64_t *signals, uint64_t count)
{
	struct itimerval period = {{0, 200}, {0, 200}}, none = {{0, 0}, {0, 0}};
	static volatile uint64_t calls;

	MUST(setitimer(ITIMER_REAL, &period, NULL) == 0);
	sigsetjmp(back, 1);
	while (*signals < count) {
		for (int i = 0; i < 20; i++) {
			call_from_below(i % 5);
			calls++;
		}
	}
	jumps = 0;
	setitimer(ITIMER_REAL, &none, NULL);
	fact("calls", calls);
}

struct target {
	pthread_t thread;
	pid_t tid;
	int fd;
	uint64_t ms;
	int signals;
};

/* Sends the signals while the thread sleeps, then fills the pipe. */
static void *shooter(void *data)
{
	struct target *target = data;

	for (int i = 0; i < target->signals; i++) {
		pass_ns(target->ms * MILLISECOND / (uint64_t)target->signals);
		/* Off its CPU, and not in the handler's own sleep. */
		await_call(target->tid, SYS_read);
		pthread_kill(target->thread, SIGALRM);
	}
	await_call(target->tid, SYS_read);
	pass_ns(20 * MILLISECOND);
	MUST(syscall(SYS_writev, target->fd, &(struct iovec){"x", 1}, 1) == 1);
	return NULL;
}

static void in_read(uint64_t ms, int signals)
{
	struct target target = {.thread = pthread_self(), .tid = own_tid(), .ms = ms};
	volatile int round = 0;
	pthread_t thread;
	char byte;
	int fds[2];

	MUST(pipe(fds) == 0);
	target.fd = fds[1];
	target.signals = signals;
	MUST(pthread_create(&thread, NULL, shooter, &target) == 0);
	if (sigsetjmp(back, 1))
		round++;
	MUST(read(fds[0], &byte, 1) == 1);
	pthread_join(thread, NULL);
	fact("jumped", (uint64_t)round);
}

int main(int argc, char **argv)
{
	uint64_t amount = argument(argc, argv, 2, 100);
	int own_stack = (int)argument(argc, argv, 3, 0);

	MUST(argc > 1);
	if (own_stack)
		give_stack();
	facts_start();
	handle(SIGUSR2, inner, own_stack);
	if (!strcmp(argv[1], "busy") || !strcmp(argv[1], "jumps")) {
		jumps = !strcmp(argv[1], "jumps");
		handle(SIGALRM, outer, own_stack);
		busy(jumps ? &jumped : &handled, amount);
	} else if (!strcmp(argv[1], "blocked")) {
		handle(SIGALRM, sleeper, own_stack);
		in_read(amount, 20);
	} else {
		handle(SIGALRM, jumper, own_stack);
		in_read(10 * amount, (int)amount);
	}
	fact("handled", handled);
	fact("nested", nested);
	if (!strcmp(argv[1], "jumps"))
		fact("jumped", jumped);
	facts_end();
	return 0;
}
