// SPDX-License-Identifier: MIT OR Apache-2.0
// Requests that are not what they should be, by chance: whatever comes is read or refused, and
// nothing else is touched. Built with the sanitizers (`make check`).
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static uint64_t state = 88172645463325252ULL;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static size_t make(char *message)
{
	static const char variables[] = "REQUEST_METHOD=GET\0PATH_INFO=/a\0EMPTY=\0NO_VALUE";
	static const char fields[] = "Date: now\r\n";
	struct head head = {
		.version = VERSION,
		.kind = REQUEST,
		.flags = next(),
		.variables = sizeof(variables),
		.number = next(),
		.length = 5,
		.patience_ms = 1000,
		.fields = sizeof(fields) - 1,
	};

	memcpy(message, &head, sizeof(head));
	memcpy(message + sizeof(head), variables, sizeof(variables));
	memcpy(message + sizeof(head) + sizeof(variables), fields, sizeof(fields) - 1);
	memcpy(message + sizeof(head) + sizeof(variables) + sizeof(fields) - 1, "abc", 3);
	return sizeof(head) + sizeof(variables) + sizeof(fields) - 1 + 3;
}

int main(void)
{
	char made[512];
	unsigned read = 0;

	for (int round = 0; round < 200000; round++) {
		size_t length = make(made);
		// Of its exact size, so the sanitizer sees each byte beyond it.
		char *message;
		struct flash_request request = {0};

		for (unsigned changes = next() % 4; changes; changes--)
			made[next() % (next() % 2 ? sizeof(struct head) : length)] = next();
		if (next() % 8 == 0)
			length = next() % (length + 1);
		message = malloc(length ? length : 1);
		memcpy(message, made, length);
		if (read_order(message, length, &request.order)) {
			size_t count = flash_variables(&request);
			const char *method = flash_variable(&request, "REQUEST_METHOD");

			read++;
			assert(request.order.content_length <= flash_content_length(&request));
			assert(!method || strlen(method) < length);
			for (size_t at = 0; at < count; at++)
				assert(strlen(flash_variable_at(&request, at)) < length);
			assert(!flash_variable_at(&request, count));
			assert(!flash_variable(&request, "NO_VALUE"));
		}
		free(message);
	}
	assert(read > 1000);
	printf("%u of 200000 were requests\n", read);
	return 0;
}
