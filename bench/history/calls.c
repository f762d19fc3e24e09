/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * calls.c: calls at a fixed rate, or as fast as it goes; prints how many, in how much CPU time.
 *
 *   calls RATE SECONDS    RATE 0: as fast as it goes
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE 100

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time); /* in user space: no call */
	return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	double rate = argc > 2 ? atof(argv[1]) : 0, seconds = argc > 2 ? atof(argv[2]) : 0;
	double began = now(), passed;
	struct rusage usage;
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
			passed = now() - began;
		while (passed < seconds && rate && calls > rate * passed);
	} while (passed < seconds);
	getrusage(RUSAGE_SELF, &usage);
	printf("%ld %.6f %.6f\n", calls, passed,
	       usage.ru_stime.tv_sec + usage.ru_stime.tv_usec * 1e-6);
	return 0;
}
