// SPDX-License-Identifier: MIT OR Apache-2.0
// Sends itself signals, which a handler takes.
#include "planted.h"

#include <signal.h>

static volatile sig_atomic_t taken;

static void take(int number)
{
	(void)number;
	taken = 1;
}

int main(int argc, char **argv)
{
	(void)argc;
	signal(SIGUSR1, take);
	ready(argv);
	while (goes_on())
		for (int i = 0; i < 100; i++)
			kill(getpid(), SIGUSR1);
	return 0;
}
