// SPDX-License-Identifier: MIT OR Apache-2.0
// Looks things up in a mapped file that is not in memory.
#include "planted.h"

#include <fcntl.h>
#include <sys/mman.h>

#define SIZE (32L << 20)

int main(int argc, char **argv)
{
	static char block[1 << 20];
	volatile char sum = 0;
	char path[4096];
	char *map;
	int fd;

	(void)argc;
	snprintf(path, sizeof(path), "%s/table", argv[2]);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	must(fd >= 0, path);
	for (long at = 0; at < SIZE; at += sizeof(block))
		must(write(fd, block, sizeof(block)) == sizeof(block), "write");
	fdatasync(fd);
	map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
	must(map != MAP_FAILED, "mmap");
	madvise(map, SIZE, MADV_RANDOM);
	ready(argv);
	while (goes_on()) {
		madvise(map, SIZE, MADV_DONTNEED);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		for (int i = 0; i < 200 && goes_on(); i++)
			sum += map[random() % SIZE];
	}
	return 0;
}
