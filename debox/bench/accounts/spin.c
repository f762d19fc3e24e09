/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * spin.c: THREADS threads compute for MS milliseconds of CPU time each, as the scheduler counts it,
 * and print the scheduler's figures at the end: thread number, nanoseconds on a CPU and waiting for
 * one, how often it got a CPU, how often it was preempted.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 256

static long milliseconds;

static void *spin(void *unused)
{
	struct timespec used;
	struct rusage usage;
	char account[128];
	ssize_t length;
	int fd;

	do {
		for (int i = 0; i < 1000; i++)
			__asm__ volatile("");
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	} while (used.tv_sec * 1000 + used.tv_nsec / 1000000 < milliseconds);
	fd = open("/proc/thread-self/schedstat", O_RDONLY);
	length = read(fd, account, sizeof(account) - 1);
	if (length <= 0 || getrusage(RUSAGE_THREAD, &usage))
		exit(1);
	account[length - 1] = 0; /* for the end of the line */
	dprintf(1, "%ld %s %ld\n", syscall(SYS_gettid), account, usage.ru_nivcsw);
	return unused;
}

int main(int argc, char **argv)
{
	long count = argc == 3 ? atol(argv[1]) : 0;
	pthread_t threads[THREADS_MAX];

	if (count < 1 || count > THREADS_MAX) {
		fprintf(stderr, "usage: spin THREADS MS\n");
		return 2;
	}
	milliseconds = atol(argv[2]);
	for (long i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, spin, NULL))
			return 1;
	for (long i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
