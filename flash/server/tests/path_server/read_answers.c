/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Reads messages, each behind its length in two bytes, by the parser of the adapters, and prints
 * for each what it has read, or "wrong". Built with sanitizers, which end it on any access beyond a
 * message. */
#include <stdio.h>
#include <stdlib.h>

#include "flash_paths.h"

int main(void)
{
	int low, high;
	while ((low = getchar()) != EOF && (high = getchar()) != EOF) {
		size_t length = (size_t)low | (size_t)high << 8;
		/* A block of its own size, so that the sanitizer sees its end. */
		unsigned char *bytes = malloc(length);
		struct flash_paths_answer answer;
		if (length > 0 && fread(bytes, 1, length, stdin) != length)
			return 1;
		if (flash_paths_read(bytes, length, &answer) == 0)
			printf("%u %u %u %u:%u %llu\n", answer.id, answer.error, answer.root_length,
			       answer.root_device_major, answer.root_device_minor,
			       (unsigned long long)answer.root_inode);
		else
			puts("wrong");
		free(bytes);
	}
	return 0;
}
