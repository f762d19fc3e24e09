/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * calls.c: calls at a fixed rate, or as fast as possible; prints their number and CPU time.
 *
 *   calls RATE SECONDS    RATE 0: as fast as possible
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE 100

static double now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	double rate = argc > 2 ? atof(argv[1]) : 0, seconds = argc > 2 ? atof(argv[2]) : 0;
	double began = now(CLOCK_MONOTONIC), passed;
	long calls = 0;

	if (argc != 3 || rate < 0 || seconds <= 0) {
		fprintf(stderr, "usage: calls RATE SECONDS\n");
		return 2;
	}
	do {
		for (int i = 0; i < AT_ONCE; i++)
			syscall(SYS_getppid);
		calls += AT_ONCE;
		do
			passed = now(CLOCK_MONOTONIC) - began; /* in user space: no call */
		while (passed < seconds && rate && calls > rate * passed);
	} while (passed < seconds);
	/* From the scheduler: getrusage splits the time by clock ticks. */
	printf("%ld %.6f %.6f\n", calls, passed, now(CLOCK_PROCESS_CPUTIME_ID));
	return 0;
}
