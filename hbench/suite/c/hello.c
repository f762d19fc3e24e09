// SPDX-License-Identifier: MIT OR Apache-2.0
// What the benchmarks of process creation execute, linked statically and dynamically.
#include <stdio.h>

int main(void)
{
	// The status shows that the program ran to its end.
	return printf("hello, world\n") == 13 ? 7 : 1;
}
