/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * measure.h: how the workloads time themselves and report the results.
 *
 * A workload appends lines to a result file: `start NS` (CLOCK_MONOTONIC, when it began to work),
 * `time NAME NS_PER_OPERATION`, `made CALL COUNT` (the minimum number of system calls of that name,
 * to check what a peer reports) and `value NAME NUMBER`. It uses a file because some peers write to
 * standard output themselves.
 */
#ifndef OVERHEAD_MEASURE_H
#define OVERHEAD_MEASURE_H

#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCHES_MAX 8192
#define BATCHES_MIN 3

/* Performs `count` operations. */
typedef void (*operations)(void *context, int count);

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void fail(const char *what)
{
	perror(what);
	exit(1);
}

static inline FILE *open_result(const char *path)
{
	FILE *result = fopen(path, "a");

	if (!result)
		fail(path);
	setvbuf(result, NULL, _IOLBF, 0);
	fprintf(result, "start %llu\n", (unsigned long long)now_ns());
	return result;
}

static inline int compare_doubles(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/*
 * Repeats batches for the given time and reports the median of their times per operation, which
 * ignores disturbed batches. Returns the number of operations. The first batch is not timed.
 */
static inline long measure(FILE *result, const char *name, double seconds, int batch,
			   operations operate, void *context)
{
	static double times[BATCHES_MAX];
	uint64_t begin = now_ns(), from, until = begin + (uint64_t)(seconds * 1e9);
	int used = 0;

	operate(context, batch);
	do {
		from = now_ns();
		operate(context, batch);
		times[used++] = (double)(now_ns() - from) / batch;
	} while (used < BATCHES_MAX && (used < BATCHES_MIN || now_ns() < until));
	qsort(times, used, sizeof(times[0]), compare_doubles);
	fprintf(result, "time %s %.2f\n", name, times[used / 2]);
	return (long)batch * (used + 1);
}

#endif
