/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * spinlock COUNT: two threads, each on a CPU of its own, take and release descriptors of the same
 * table COUNT times, whose spinlock they so contend for.
 */
#include "known.h"

static uint64_t count;
static pthread_barrier_t barrier;

static void *taker(void *cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET((int)(intptr_t)cpu, &one);
	MUST(sched_setaffinity(0, sizeof(one), &one) == 0);
	pthread_barrier_wait(&barrier);
	for (uint64_t i = 0; i < count; i++)
		close(dup(1));
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	cpu_set_t allowed;
	int started = 0;

	facts_start();
	count = argument(argc, argv, 1, 200000);
	MUST(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
	MUST(CPU_COUNT(&allowed) >= 2 && pthread_barrier_init(&barrier, NULL, 2) == 0);
	for (int cpu = 0; cpu < CPU_SETSIZE && started < 2; cpu++)
		if (CPU_ISSET(cpu, &allowed))
			MUST(pthread_create(&threads[started++], NULL, taker,
					    (void *)(intptr_t)cpu) == 0);
	MUST(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
	facts_end();
	return 0;
}
