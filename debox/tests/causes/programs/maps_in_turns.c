// SPDX-License-Identifier: MIT OR Apache-2.0
// Six threads map and unmap memory of their process: its address space has one lock for that.
#include "planted.h"

#include <sys/mman.h>

#define SIZE (8L << 20)

static void *maps(void *unused)
{
	while (goes_on()) {
		char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		must(memory != MAP_FAILED, "mmap");
		mprotect(memory, SIZE / 2, PROT_READ);
		munmap(memory, SIZE);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[6];

	(void)argc;
	ready(argv);
	for (int i = 0; i < 6; i++)
		threads[i] = start(maps, NULL);
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
