// SPDX-License-Identifier: MIT OR Apache-2.0
// Sums, and asks the clock now and then.
#include "planted.h"

static volatile double total;

__attribute__((noinline)) static void sums(void)
{
	for (int i = 1; i < 200000; i++)
		total += 1.0 / i;
}

int main(int argc, char **argv)
{
	(void)argc;
	ready(argv);
	while (goes_on())
		sums();
	return 0;
}
