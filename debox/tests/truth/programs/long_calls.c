/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * long_calls MS: system calls that compute for tens of milliseconds each, on the first CPU, for a
 * given time. The scheduler says how long they waited for that CPU together.
 */
#include "known.h"

#include <sys/random.h>

#define BYTES (16 << 20)

int main(int argc, char **argv)
{
	static char buffer[BYTES];
	struct section section;
	cpu_set_t allowed, one;
	uint64_t end_ns, calls = 0;

	facts_start();
	MUST(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, &allowed))
			CPU_SET(cpu, &one);
	MUST(sched_setaffinity(0, sizeof(one), &one) == 0);
	memset(buffer, 1, sizeof(buffer));
	end_ns = now_ns() + argument(argc, argv, 1, 1000) * MILLISECOND;
	section = section_now();
	while (now_ns() < end_ns) {
		MUST(getrandom(buffer, sizeof(buffer), 0) == sizeof(buffer));
		calls++;
	}
	section = section_since(section);
	fact("calls", calls);
	fact("section_cpu_ns", section.cpu_ns);
	fact("section_delay_ns", section.delay_ns);
	fact("section_wall_ns", section.wall_ns);
	facts_end();
	return 0;
}
