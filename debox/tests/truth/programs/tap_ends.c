/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * tap_ends WHAT COUNT: calls that do not end as calls do.
 *
 *   cancel   COUNT threads are cancelled while they sleep in read; each has a clean-up handler that
 *            makes two getuid calls.
 *   leave    COUNT threads leave by pthread_exit from a handler that interrupted read.
 *   killed   COUNT children are killed while they sleep in read.
 *   exit     COUNT children leave by _exit from a handler that interrupted read.
 */
#include "known.h"

static int ends[2];
static _Atomic pid_t *sleeper; /* shared with children */

static void clean_up(void *nothing)
{
	(void)nothing;
	syscall(SYS_getuid);
	syscall(SYS_getuid);
}

static void sleep_in_read(void)
{
	char byte;

	atomic_store(sleeper, own_tid());
	(void)!read(ends[0], &byte, 1);
}

static void *cancelled(void *nothing)
{
	pthread_cleanup_push(clean_up, NULL);
	sleep_in_read();
	pthread_cleanup_pop(0);
	return nothing;
}

static void *leaving(void *nothing)
{
	sleep_in_read();
	return nothing;
}

static void leave_thread(int number)
{
	(void)number;
	syscall(SYS_getuid);
	syscall(SYS_getuid);
	pthread_exit(NULL);
}

static void leave_process(int number)
{
	(void)number;
	syscall(SYS_getuid);
	syscall(SYS_getuid);
	_exit(0);
}

static void await_sleeper(pid_t pid)
{
	while (!atomic_load(sleeper))
		pass_ns(100000);
	await_state(pid ? pid : (pid_t)syscall(SYS_getpid), atomic_load(sleeper), "S");
	pass_ns(5 * MILLISECOND);
	atomic_store(sleeper, 0);
}

static void end_thread(int cancel)
{
	pthread_t thread;

	MUST(pthread_create(&thread, NULL, cancel ? cancelled : leaving, NULL) == 0);
	await_sleeper(0);
	MUST((cancel ? pthread_cancel(thread) : pthread_kill(thread, SIGUSR1)) == 0);
	pthread_join(thread, NULL);
}

static void end_child(int killed)
{
	pid_t pid = fork();

	if (!pid) {
		sleep_in_read();
		_exit(1);
	}
	await_sleeper(pid);
	MUST(kill(pid, killed ? SIGKILL : SIGUSR2) == 0);
	MUST(waitpid(pid, NULL, 0) == pid);
}

int main(int argc, char **argv)
{
	uint64_t count = argument(argc, argv, 2, 5);

	MUST(argc > 1 && pipe(ends) == 0);
	sleeper = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	facts_start();
	signal(SIGUSR1, leave_thread);
	signal(SIGUSR2, leave_process);
	for (uint64_t i = 0; i < count; i++) {
		if (!strcmp(argv[1], "cancel") || !strcmp(argv[1], "leave"))
			end_thread(!strcmp(argv[1], "cancel"));
		else
			end_child(!strcmp(argv[1], "killed"));
	}
	facts_end();
	return 0;
}
