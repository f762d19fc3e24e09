// SPDX-License-Identifier: MIT OR Apache-2.0
// Eight threads make and remove files in a directory whose changes go to the disk at once: only one
// at a time may.
#include "planted.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

static char **arguments;

static void *makes_and_removes(void *number)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%ld", arguments[2], (long)number);
	while (goes_on()) {
		close(open(path, O_WRONLY | O_CREAT, 0600));
		unlink(path);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[8];

	int directory = open(argv[2], O_RDONLY | O_DIRECTORY);
	int flags = 0;

	(void)argc;
	must(directory >= 0, argv[2]);
	must(ioctl(directory, FS_IOC_GETFLAGS, &flags) == 0, "FS_IOC_GETFLAGS");
	flags |= FS_DIRSYNC_FL;
	must(ioctl(directory, FS_IOC_SETFLAGS, &flags) == 0, "FS_IOC_SETFLAGS");
	arguments = argv;
	ready(argv);
	for (long i = 0; i < 8; i++)
		threads[i] = start(makes_and_removes, (void *)i);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
