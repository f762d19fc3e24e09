/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * calls: system calls that never sleep.  Usage: calls RESULT SECONDS DATA
 *
 * getppid is the cheapest call; pread reads a file in the page cache.
 */
#include "measure.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BATCH 2000
#define FILE_SIZE 4096

static void call_getppid(void *context, int count)
{
	(void)context;
	while (count--)
		syscall(SYS_getppid);
}

struct reading {
	int fd;
	size_t size;
};

static void call_pread(void *context, int count)
{
	static char buffer[FILE_SIZE];
	struct reading *reading = context;

	while (count--) {
		if (pread(reading->fd, buffer, reading->size, 0) != (ssize_t)reading->size)
			fail("pread");
	}
}

int main(int argc, char **argv)
{
	static const char zeros[FILE_SIZE];
	static const size_t sizes[] = {128, 1024, 4096};
	struct reading reading;
	FILE *result;
	double seconds;
	long made;
	char name[32];

	if (argc != 4)
		return 2;
	seconds = atof(argv[2]);
	reading.fd = open(argv[3], O_RDWR | O_CREAT, 0600);
	if (reading.fd < 0 || pwrite(reading.fd, zeros, FILE_SIZE, 0) != FILE_SIZE)
		fail(argv[3]);
	result = open_result(argv[1]);

	made = measure(result, "getppid", seconds, BATCH, call_getppid, NULL);
	fprintf(result, "made getppid %ld\n", made);
	made = 0;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		reading.size = sizes[i];
		snprintf(name, sizeof(name), "pread %zu", sizes[i]);
		made += measure(result, name, seconds, BATCH, call_pread, &reading);
	}
	fprintf(result, "made pread64 %ld\n", made);
	return 0;
}
