// SPDX-License-Identifier: MIT OR Apache-2.0
// Six threads add to one file, past the page cache: the file system lets in one at a time.
#include "planted.h"

#include <fcntl.h>

#define SIZE (256 << 10)

static char *path;

static void *appends(void *unused)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_DIRECT);
	void *block;

	must(fd >= 0, path);
	must(posix_memalign(&block, 4096, SIZE) == 0, "posix_memalign");
	memset(block, 0, SIZE);
	while (goes_on())
		must(write(fd, block, SIZE) > 0, "write");
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[6];

	(void)argc;
	must(asprintf(&path, "%s/shared", argv[2]) > 0, "asprintf");
	close(open(path, O_WRONLY | O_CREAT, 0600));
	ready(argv);
	for (int i = 0; i < 6; i++)
		threads[i] = start(appends, NULL);
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
