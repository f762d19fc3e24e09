/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * tap_children HOW COUNT: makes COUNT children one after the other, by fork, vfork, posix_spawn, a
 * raw clone through syscall(2), a raw clone without libc, or a clone that shares memory and stack
 * words with its parent for as long as it lives. Every child makes ten getuid calls, if it is one
 * that may, and the parent makes seven getgid calls after each. With HOW "together" it makes them
 * by fork, and none goes on before all are there.
 */
#include <spawn.h>

#include "known.h"

extern char **environ;

static void ten_calls(void)
{
	for (int i = 0; i < 10; i++)
		syscall(SYS_getuid);
}

static pid_t clone_bare(void)
{
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"((long)SYS_clone), "D"((long)SIGCHLD), "S"(0L), "d"(0L)
			 : "rcx", "r10", "r11", "memory");
	return (pid_t)result;
}

static char stack[65536] __attribute__((aligned(16)));

static int shares_memory(void *nothing)
{
	(void)nothing;
	ten_calls();
	pass_ns(2 * MILLISECOND);
	ten_calls();
	return 0;
}

static pid_t child_by(const char *how)
{
	static char *const arguments[] = {"true", NULL};
	pid_t pid;

	if (!strcmp(how, "spawn")) {
		MUST(posix_spawnp(&pid, "true", NULL, NULL, arguments, environ) == 0);
		return pid;
	}
	if (!strcmp(how, "shared"))
		return clone(shares_memory, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);
	if (!strcmp(how, "vfork")) {
		pid = vfork();
		if (!pid) {
			/* What a shell does between vfork and execve. */
			ten_calls();
			dup2(1, 77);
			close(77);
			execvp("true", arguments);
			_exit(127);
		}
		return pid;
	}
	if (!strcmp(how, "vfork_exit")) {
		pid = vfork();
		if (!pid) {
			ten_calls();
			_exit(0);
		}
		return pid;
	}
	pid = !strcmp(how, "syscall") ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)
	      : !strcmp(how, "bare")  ? clone_bare()
				      : fork();
	if (!pid) {
		ten_calls();
		_exit(0);
	}
	return pid;
}

static void all_together(uint64_t count)
{
	int ends[2], status;
	char byte;

	MUST(pipe(ends) == 0);
	for (uint64_t i = 0; i < count; i++) {
		pid_t pid = fork();

		MUST(pid >= 0);
		if (!pid) {
			close(ends[1]);
			MUST(read(ends[0], &byte, 1) == 0);
			ten_calls();
			_exit(0);
		}
	}
	close(ends[1]);
	for (uint64_t i = 0; i < count; i++)
		MUST(wait(&status) > 0 && status == 0);
}

int main(int argc, char **argv)
{
	uint64_t count = argument(argc, argv, 2, 20);
	int status;

	MUST(argc > 1);
	facts_start();
	if (!strcmp(argv[1], "together")) {
		all_together(count);
		count = 0;
	}
	for (uint64_t i = 0; i < count; i++) {
		pid_t pid = child_by(argv[1]);

		MUST(pid > 0);
		for (int j = 0; j < 7; j++)
			syscall(SYS_getgid);
		MUST(waitpid(pid, &status, 0) == pid && status == 0);
	}
	facts_end();
	return 0;
}
