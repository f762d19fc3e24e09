// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Performs a fixed computation, `depth` calls deep, and writes its CPU time.
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static volatile unsigned long sink;

__attribute__((noinline)) static void compute(long rounds)
{
	unsigned long x = 88172645463325252UL;

	for (long i = 0; i < rounds; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	sink += x;
}

// Each level has a large frame, so that the maximum amount of stack is copied.
__attribute__((noinline)) static void descend(int depth, long rounds)
{
	volatile char room[512];

	room[0] = (char)depth;
	if (depth > 0)
		descend(depth - 1, rounds);
	else
		compute(rounds);
	sink += (unsigned long)room[0];
}

int main(int argc, char **argv)
{
	struct rusage usage;
	FILE *out;

	if (argc < 4)
		return 2;
	for (int i = 0; i < 100; i++)
		descend(atoi(argv[2]), atol(argv[3]) / 100);
	getrusage(RUSAGE_SELF, &usage);
	out = fopen(argv[1], "w");
	if (!out)
		return 1;
	fprintf(out, "%.6f\n",
		(double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
			(double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
	return fclose(out) != 0;
}
