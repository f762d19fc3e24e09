// SPDX-License-Identifier: MIT OR Apache-2.0
// Four threads compute on one CPU, to which the program has tied itself.
#include "planted.h"

#include <sched.h>

static void *computes(void *unused)
{
	volatile double total = 0;

	while (goes_on())
		for (int i = 1; i < 100000; i++)
			total += 1.0 / i;
	return unused;
}

int main(int argc, char **argv)
{
	cpu_set_t one, allowed;
	pthread_t threads[4];

	(void)argc;
	sched_getaffinity(0, sizeof(allowed), &allowed);
	CPU_ZERO(&one);
	for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, &allowed))
			CPU_SET(cpu, &one);
	must(sched_setaffinity(0, sizeof(one), &one) == 0, "sched_setaffinity");
	ready(argv);
	for (int i = 0; i < 4; i++)
		threads[i] = start(computes, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
