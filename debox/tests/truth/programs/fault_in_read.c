/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* fault_in_read PAGES: reads into memory that was never touched, so that read itself faults. */
#include "known.h"

int main(int argc, char **argv)
{
	uint64_t pages = argument(argc, argv, 1, 2000);
	struct section section;
	struct rusage before, after;
	char *fresh;
	int fd;

	facts_start();
	fresh = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	MUST(fresh != MAP_FAILED && madvise(fresh, pages * 4096, MADV_NOHUGEPAGE) == 0);
	fd = open("/dev/zero", O_RDONLY);
	MUST(fd >= 0);
	/* Touches what the measuring itself needs, so that only the reads fault in between. */
	section = section_now();
	MUST(getrusage(RUSAGE_THREAD, &before) == 0);
	MUST(getrusage(RUSAGE_THREAD, &after) == 0);
	MUST(getrusage(RUSAGE_THREAD, &before) == 0);
	/* 100 pages a call: /dev/zero clears user memory through the fault handler. */
	for (uint64_t page = 0; page < pages; page += 100)
		MUST(syscall(SYS_read, fd, fresh + page * 4096, 409600) == 409600);
	MUST(getrusage(RUSAGE_THREAD, &after) == 0);
	section = section_since(section);
	fact("pages", pages);
	fact("read_faults_minor", (uint64_t)(after.ru_minflt - before.ru_minflt));
	fact("reads", pages / 100);
	fact_section(section);
	facts_end();
	return 0;
}
