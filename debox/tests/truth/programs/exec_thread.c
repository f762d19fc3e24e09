/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * exec_thread: a thread that is not the leader executes a new program. The kernel ends the leader
 * and gives its number to the thread. Before: the leader makes 100 getppid calls, then waits in
 * pause; the thread makes 200 getuid calls. After, in the new image: 300 getgid calls.
 */
#include "known.h"

static pthread_barrier_t barrier;

static void *executor(void *path)
{
	char *arguments[] = {path, "after", NULL};

	prctl(PR_SET_NAME, "executor");
	for (int i = 0; i < 200; i++)
		syscall(SYS_getuid);
	pthread_barrier_wait(&barrier);
	pass_ns(20 * MILLISECOND);
	execv(path, arguments);
	MUST(!"execv returned");
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	facts_start();
	if (argc > 1 && !strcmp(argv[1], "after")) {
		for (int i = 0; i < 300; i++)
			syscall(SYS_getgid);
		facts_end();
		return 0;
	}
	MUST(pthread_barrier_init(&barrier, NULL, 2) == 0);
	MUST(pthread_create(&thread, NULL, executor, "/proc/self/exe") == 0);
	for (int i = 0; i < 100; i++)
		syscall(SYS_getppid);
	pthread_barrier_wait(&barrier);
	for (;;)
		pause();
}
