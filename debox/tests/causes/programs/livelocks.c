// SPDX-License-Identifier: MIT OR Apache-2.0
// Two threads give way to each other: each makes its own lock file, cannot make the other's,
// removes its own and tries again at once.
#include "planted.h"

#include <fcntl.h>

static const char *names[2] = {"livelock.0", "livelock.1"};
static int place;

/* Whether the file was not there. */
static int makes(const char *name)
{
	int file = openat(place, name, O_CREAT | O_EXCL | O_WRONLY, 0600);

	if (file >= 0)
		close(file);
	return file >= 0;
}

static void *gives_way(void *own)
{
	long mine = (long)own;

	while (goes_on()) {
		if (!makes(names[mine]))
			continue;
		if (makes(names[!mine]))
			unlinkat(place, names[!mine], 0);
		unlinkat(place, names[mine], 0);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];

	(void)argc;
	place = open(argv[2], O_DIRECTORY | O_RDONLY);
	must(place >= 0, argv[2]);
	ready(argv);
	for (long i = 0; i < 2; i++)
		threads[i] = start(gives_way, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
