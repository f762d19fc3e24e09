/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * spawn: processes that exit immediately, one after the other.  Usage: spawn RESULT SECONDS
 */
#include "measure.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATCH 10

static void spawn_and_wait(void *context, int count)
{
	char *arguments[] = {"true", NULL};
	pid_t pid;

	(void)context;
	while (count--) {
		if (posix_spawnp(&pid, "true", NULL, NULL, arguments, environ))
			fail("posix_spawnp");
		if (waitpid(pid, NULL, 0) != pid)
			fail("waitpid");
	}
}

int main(int argc, char **argv)
{
	FILE *result;
	long made;

	if (argc != 3)
		return 2;
	result = open_result(argv[1]);
	made = measure(result, "spawn", atof(argv[2]), BATCH, spawn_and_wait, NULL);
	fprintf(result, "made wait4 %ld\n", made);
	return 0;
}
