/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * count: calls in numbers known to the last one. Built twice, dynamic and static. The same numbers
 * stand in debox/tests/suite/tests/counts.rs.
 */
#include "known.h"

int main(void)
{
	char byte;
	int fd;

	facts_start();
	fd = open("/dev/zero", O_RDONLY);
	MUST(fd >= 0);
	for (int i = 0; i < 10000; i++)
		syscall(SYS_getppid);
	for (int i = 0; i < 1000; i++)
		MUST(syscall(SYS_pread64, fd, &byte, 1, 0) == 1);
	for (int i = 0; i < 500; i++)
		MUST(syscall(SYS_open, "/nonexistent/file", O_RDONLY) == -1 && errno == ENOENT);
	for (int i = 0; i < 300; i++)
		MUST(syscall(SYS_dup, -1) == -1 && errno == EBADF);
	for (int i = 0; i < 77; i++)
		syscall(SYS_sched_yield);
	/* A number that no kernel knows. */
	for (int i = 0; i < 5; i++)
		MUST(syscall(999999) == -1 && errno == ENOSYS);
	/* vDSO: these never enter the kernel. */
	for (int i = 0; i < 1000; i++)
		now_ns();
	facts_end();
	return 0;
}
