// SPDX-License-Identifier: MIT OR Apache-2.0
// Looks for a header in directories that do not have it.
#include "planted.h"

#include <fcntl.h>

int main(int argc, char **argv)
{
	char path[4096];

	(void)argc;
	ready(argv);
	for (unsigned i = 0; goes_on(); i++) {
		snprintf(path, sizeof(path), "%s/include/%u/header.h", argv[2], i % 50);
		open(path, O_RDONLY);
	}
	return 0;
}
