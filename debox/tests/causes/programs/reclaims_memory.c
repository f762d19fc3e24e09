// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads write files again and again, each its own, that are larger together than the memory they
// may use: each new page takes the place of one that must go to the disk first.
#include "planted.h"

#include <fcntl.h>

#define SIZE (12L << 20)
#define WRITERS 4

static int files[WRITERS];

static void *writes(void *own)
{
	static char block[1 << 16];
	int fd = files[(long)own];

	for (long at = 0; goes_on(); at = (at + sizeof(block)) % SIZE)
		must(pwrite(fd, block, sizeof(block), at) == sizeof(block), "pwrite");
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[WRITERS];
	char path[4096];

	(void)argc;
	for (int i = 0; i < WRITERS; i++) {
		snprintf(path, sizeof(path), "%s/large-%d", argv[2], i);
		files[i] = open(path, O_RDWR | O_CREAT, 0600);
		must(files[i] >= 0, path);
	}
	ready(argv);
	for (long i = 0; i < WRITERS; i++)
		threads[i] = start(writes, (void *)i);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
