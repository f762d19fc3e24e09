/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * parts: sleeps in functions whose names are also mangled names of types, and in a function of
 * which the compiler puts a part elsewhere.  Usage: parts
 */
#include <time.h>

static volatile long sum; /* work after each call, so that none is the last of its function */

#define PAUSE()                                                                                    \
	do {                                                                                       \
		struct timespec pause = {.tv_nsec = 3000000};                                      \
		sum += nanosleep(&pause, NULL);                                                    \
	} while (0)

/* As types these would be int, std, std::allocator and char const*. */
__attribute__((noipa)) void i(void)
{
	PAUSE();
	sum++;
}

__attribute__((noipa)) void St(void)
{
	PAUSE();
	sum++;
}

__attribute__((noipa)) void Sa(void)
{
	PAUSE();
	sum++;
}

__attribute__((noipa)) void PKc(void)
{
	PAUSE();
	sum++;
}

/* Lies between the two parts of split(). */
__attribute__((noipa)) void between(void)
{
	i();
	sum++;
	St();
	sum++;
	Sa();
	sum++;
	PKc();
	sum++;
}

static __attribute__((cold, noipa)) void seldom(void)
{
	sum += 2;
}

__attribute__((noipa)) void split(int is_seldom)
{
	if (__builtin_expect(is_seldom, 0)) {
		seldom();
		PAUSE();
		seldom();
		sum++;
		return;
	}
	PAUSE();
	sum++;
}

int main(int argc, char **argv)
{
	(void)argv;
	between();
	split(argc == 1);
	split(argc > 1);
	return sum < 0;
}
