// SPDX-License-Identifier: MIT OR Apache-2.0
// Sends signals to its process group: itself, with a handler, and children that have ended.
#include "planted.h"

#include <signal.h>

/* The program never collects their exit status, so they remain members of the group. */
#define CHILDREN 100

static volatile sig_atomic_t taken;

static void take(int number)
{
	(void)number;
	taken = 1;
}

int main(int argc, char **argv)
{
	(void)argc;
	must(setpgid(0, 0) == 0, "setpgid");
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child = fork();

		must(child >= 0, "fork");
		if (child == 0)
			_exit(0);
	}
	signal(SIGUSR1, take);
	ready(argv);
	while (goes_on())
		for (int i = 0; i < 100; i++)
			kill(0, SIGUSR1);
	return 0;
}
