/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * callers: read() and nanosleep() reached from three functions: directly, through a function that
 * is inlined, and through the C library.  Usage: callers ROUNDS
 *
 * Per round: 3 reads and 1 sleep directly, 2 and 1 inlined, 1 and 1 through the library.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile long sum; /* work after each call, so that none is the last of its function */

static inline __attribute__((always_inline)) void inlined_helper(int zeros)
{
	char bytes[24];

	sum += read(zeros, bytes, sizeof(bytes)); /* inlined read */
}

static inline __attribute__((always_inline)) void inlined_sleep(void)
{
	struct timespec pause = {.tv_nsec = 8000000};

	sum += nanosleep(&pause, NULL); /* inlined sleep */
}

static __attribute__((noinline)) void call_directly(int zeros)
{
	char bytes[16];

	sum += read(zeros, bytes, sizeof(bytes)); /* direct read */
}

static __attribute__((noinline)) void call_inlined(int zeros)
{
	inlined_helper(zeros); /* caller of inlined */
	sum++;
}

static __attribute__((noinline)) void call_library(FILE *zeros)
{
	char bytes[8];

	sum += fread(bytes, 1, sizeof(bytes), zeros); /* library read */
}

static __attribute__((noinline)) void sleep_directly(void)
{
	struct timespec pause = {.tv_nsec = 8000000};

	sum += nanosleep(&pause, NULL); /* direct sleep */
}

static __attribute__((noinline)) void sleep_inlined(void)
{
	inlined_sleep(); /* sleeper of inlined */
	sum++;
}

static __attribute__((noinline)) void sleep_library(void)
{
	sum += usleep(8000); /* library sleep */
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1, zeros = open("/dev/zero", O_RDONLY);
	FILE *stream = fopen("/dev/zero", "r");

	if (zeros < 0 || !stream || setvbuf(stream, NULL, _IONBF, 0))
		return 99;
	for (int i = 0; i < rounds; i++) {
		for (int j = 0; j < 3; j++)
			call_directly(zeros);
		for (int j = 0; j < 2; j++)
			call_inlined(zeros);
		call_library(stream);
		sleep_directly();
		sleep_inlined();
		sleep_library();
	}
	return 0;
}
