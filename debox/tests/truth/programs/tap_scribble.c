/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * tap_scribble WHERE: makes 1000 getppid, 1000 getuid and 1000 getgid calls under the user tap, and
 * writes to what its own tap keeps of them what cannot be true.
 *
 *   rows   getppid took 146 years, and there were 2^60 calls of getuid.
 *   slot   the thread's calls took 146 years together.
 *   none   writes nothing.
 */
#include "../../../include/debox_tap.h"
#include "known.h"

#define PAGE 4096UL
#define TABLE ((DEBOX_TAP_ROWS * sizeof(struct debox_tap_row) + PAGE - 1) & ~(PAGE - 1))
#define YEARS_NS 0x4000000000000000ULL

/* The first mapping that can be written to and whose name has that in it. */
static char *mapped(const char *name, size_t *size)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[512], rights[8];

	MUST(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (!strstr(line, name) || sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3)
			continue;
		if (rights[1] != 'w')
			continue;
		fclose(maps);
		*size = to - from;
		return (char *)from;
	}
	fprintf(stderr, "nothing is mapped as %s\n", name);
	exit(1);
}

int main(int argc, char **argv)
{
	struct debox_slot *slots;
	struct debox_tap_row *row;
	size_t size, count, index;
	char *rows;

	MUST(argc == 2);
	facts_start();
	for (int i = 0; i < 1000; i++) {
		syscall(SYS_getppid);
		syscall(SYS_getuid);
		syscall(SYS_getgid);
	}
	slots = (struct debox_slot *)mapped("bpf-map", &size);
	count = size / sizeof(*slots);
	for (index = 0; index < count; index++)
		if (slots[index].tid == (__u32)own_tid())
			break;
	MUST(index < count);
	rows = mapped("debox-tap-rows", &size);
	row = (struct debox_tap_row *)(rows + PAGE + index * TABLE);
	if (!strcmp(argv[1], "rows")) {
		row[SYS_getppid].parts_ns[0] = YEARS_NS;
		row[SYS_getuid].calls = 1ULL << 60;
	} else if (!strcmp(argv[1], "slot")) {
		slots[index].tap_totals_ns[0] = YEARS_NS;
	}
	facts_end();
	return 0;
}
