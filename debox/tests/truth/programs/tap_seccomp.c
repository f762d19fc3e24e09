/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * tap_seccomp: a program that allows itself few system calls. Opening sockets, descriptors of BPF
 * or of other processes is death from then on. Under the filter it starts five threads and five
 * children, each of which makes 100 getppid calls, and runs itself anew, with an argument, for
 * another 100 calls.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

#include "known.h"

#define KILLED(number)                                                                             \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),                                         \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static void hundred_calls(void)
{
	for (int i = 0; i < 100; i++)
		syscall(SYS_getppid);
}

static void *worker(void *nothing)
{
	hundred_calls();
	return nothing;
}

static void *worker_at_once(void *barrier)
{
	pthread_barrier_wait(barrier);
	for (int i = 0; i < 100; i++)
		syscall(SYS_getuid);
	pthread_barrier_wait(barrier);
	return NULL;
}

static void threads_at_once(int count)
{
	pthread_t threads[count];
	pthread_barrier_t barrier;

	MUST(pthread_barrier_init(&barrier, NULL, count) == 0);
	for (int i = 0; i < count; i++)
		MUST(pthread_create(&threads[i], NULL, worker_at_once, &barrier) == 0);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

static void forbid(int by_seccomp)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		KILLED(SYS_socket),
		KILLED(SYS_connect),
		KILLED(SYS_recvmsg),
		KILLED(SYS_bpf),
		KILLED(SYS_pidfd_open),
		KILLED(SYS_pidfd_getfd),
		KILLED(SYS_shmat),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(rules) / sizeof(rules[0]), rules};

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (by_seccomp)
		MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
	else
		MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(int argc, char **argv)
{
	char *const again[] = {argv[0], "again", NULL};
	int status;

	if (argc > 1 && !strcmp(argv[1], "again")) {
		hundred_calls();
		return 0;
	}
	facts_start();
	forbid(argc > 2);
	for (int i = 0; i < 5; i++) {
		pthread_t thread;
		pid_t pid;

		MUST(pthread_create(&thread, NULL, worker, NULL) == 0);
		pthread_join(thread, NULL);
		pid = fork();
		if (!pid) {
			hundred_calls();
			_exit(0);
		}
		MUST(waitpid(pid, &status, 0) == pid && status == 0);
	}
	threads_at_once(argc > 1 ? atoi(argv[1]) : 1);
	if (!fork()) {
		execv("/proc/self/exe", again);
		_exit(1);
	}
	MUST(wait(&status) > 0 && status == 0);
	facts_end();
	return 0;
}
