/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * computes_apart MS: three functions compute in turn for MS of CPU time together, one of them three
 * times as long as the next; the last has the C library copy memory. Each is timed by the thread's
 * CPU clock, which is read outside of them.
 */
#include "known.h"

#define TURN_NS 1000000ULL
#define COPIED (256 << 10)

static volatile uint64_t sink;
static char *from, *to;

/* Each has a loop of its own: one that both call would have the samples of both. */
__attribute__((noinline)) static void heavy(uint64_t rounds)
{
	uint64_t x = 88172645463325252ULL;

	for (uint64_t i = 0; i < rounds; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	sink += x;
}

__attribute__((noinline)) static void light(uint64_t rounds)
{
	uint64_t x = 88172645463325252ULL;

	for (uint64_t i = 0; i < rounds; i++) {
		x ^= x << 7;
		x ^= x >> 9;
		x ^= x << 13;
	}
	sink += x;
}

__attribute__((noinline)) static void copies(uint64_t times)
{
	for (uint64_t i = 0; i < times; i++)
		memcpy(to, from, COPIED);
	sink += (uint64_t)to[COPIED / 2];
}

static uint64_t timed(void (*function)(uint64_t), uint64_t amount)
{
	uint64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	function(amount);
	return clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
}

/* How much of it takes one turn. */
static uint64_t amount_of_turn(void (*function)(uint64_t), uint64_t amount)
{
	while (timed(function, amount) < TURN_NS)
		amount *= 2;
	return amount;
}

int main(int argc, char **argv)
{
	uint64_t wanted_ns = argument(argc, argv, 1, 2000) * MILLISECOND;
	uint64_t heavy_ns = 0, light_ns = 0, copies_ns = 0;
	uint64_t rounds, times;

	facts_start();
	from = malloc(COPIED);
	to = malloc(COPIED);
	MUST(from && to);
	memset(from, 1, COPIED);
	memset(to, 2, COPIED);
	rounds = amount_of_turn(light, 1000);
	times = amount_of_turn(copies, 1);
	while (heavy_ns + light_ns + copies_ns < wanted_ns) {
		heavy_ns += timed(heavy, 3 * rounds);
		light_ns += timed(light, rounds);
		copies_ns += timed(copies, times);
	}
	fact("heavy_ns", heavy_ns);
	fact("light_ns", light_ns);
	fact("copies_ns", copies_ns);
	facts_end();
	return 0;
}
