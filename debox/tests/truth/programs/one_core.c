/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * one_core THREADS MS: threads that only compute, all on one CPU, for a given time. Each can run
 * for its share; the scheduler says how long each waited for the CPU.
 */
#include "known.h"

static uint64_t end_ns;
static pthread_barrier_t barrier;
static _Atomic uint64_t cpu_ns, delay_ns, wall_ns;

static void *spinner(void *unused)
{
	struct section section;

	(void)unused;
	prctl(PR_SET_NAME, "spinner");
	pthread_barrier_wait(&barrier);
	section = section_now();
	while (now_ns() < end_ns)
		;
	section = section_since(section);
	atomic_fetch_add(&cpu_ns, section.cpu_ns);
	atomic_fetch_add(&delay_ns, section.delay_ns);
	atomic_fetch_add(&wall_ns, section.wall_ns);
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t count = argument(argc, argv, 1, 2);
	pthread_t threads[64];
	cpu_set_t allowed, one;

	facts_start();
	MUST(count <= 64 && sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, &allowed))
			CPU_SET(cpu, &one);
	MUST(sched_setaffinity(0, sizeof(one), &one) == 0);
	MUST(pthread_barrier_init(&barrier, NULL, (unsigned)count) == 0);
	end_ns = now_ns() + argument(argc, argv, 2, 1000) * MILLISECOND;
	for (uint64_t i = 0; i < count; i++)
		MUST(pthread_create(&threads[i], NULL, spinner, NULL) == 0);
	for (uint64_t i = 0; i < count; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
	fact("section_cpu_ns", atomic_load(&cpu_ns));
	fact("section_delay_ns", atomic_load(&delay_ns));
	fact("section_wall_ns", atomic_load(&wall_ns));
	facts_end();
	return 0;
}
