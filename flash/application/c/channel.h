/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The messages between the server and a process: flash/docs/applications.md. */
#ifndef FLASH_CHANNEL_H
#define FLASH_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VERSION 1
#define MAX_REQUEST (128 << 10)

enum kind { HELLO = 1, REQUEST = 2, PROGRESS = 3, DONE = 4 };
enum request_flag { KEEPS = 1, EXPECTS = 2, IS_11 = 4, IS_HEAD = 8 };
enum done_flag { KEPT = 1, CUT = 2 };

/* In front of the variables; all numbers are little-endian, as those of the processors that this is
 * for. */
struct head {
	uint8_t version, kind;
	uint16_t flags;
	uint32_t variables;
	uint64_t number;
	uint64_t length;
	uint32_t patience_ms;
	uint32_t fields;
};

struct said {
	uint8_t version, kind;
	uint16_t status;
	uint32_t flags;
	uint64_t number;
	uint64_t content;
	uint64_t unread;
};

_Static_assert(sizeof(struct head) == 32 && sizeof(struct said) == 32, "as the protocol has them");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the numbers of the protocol");

/* A request that came, in place. */
struct order {
	struct head head;
	const char *variables;
	const char *fields;
	const char *content;
	size_t content_length;
};

/* False: it is no request of this version. */
bool read_order(const char *message, size_t length, struct order *order);

#endif
