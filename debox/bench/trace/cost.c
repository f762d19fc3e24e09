/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * cost CALLS: reads a byte from /dev/zero CALLS times, in 20 batches, and prints the median batch's
 * nanoseconds per call.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BATCHES 20

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *left, const void *right)
{
	double difference = *(const double *)left - *(const double *)right;

	return difference < 0 ? -1 : difference > 0;
}

int main(int argc, char **argv)
{
	long calls = (argc > 1 ? atol(argv[1]) : 100000) / BATCHES;
	int zero = open("/dev/zero", O_RDONLY);
	double batches[BATCHES], before;
	char byte;

	for (int batch = 0; batch < BATCHES; batch++) {
		before = now_ns();
		for (long i = 0; i < calls; i++)
			if (syscall(SYS_pread64, zero, &byte, 1, 0) != 1)
				return 1;
		batches[batch] = (now_ns() - before) / (double)calls;
	}
	qsort(batches, BATCHES, sizeof(batches[0]), compare);
	printf("%.1f\n", batches[BATCHES / 2]);
	return 0;
}
