/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * attach.h: what passes between a session and a process under the user tap.
 */
#ifndef DEBOX_ATTACH_H
#define DEBOX_ATTACH_H

#include "debox_tap.h"

/* The environment variable that names the session's abstract Unix socket. */
#define DEBOX_TAP_VARIABLE "DEBOX_TAP"

/* The session's one message, with the descriptors of slots, thread ids and rows. */
struct debox_tap_welcome {
	__u32 version; /* DEBOX_VERSION */
	__u32 slots;   /* entries in each of the three */
};

/* The file of rows: a page with the clock, then a table of rows for each slot. */
#define DEBOX_TAP_PAGE 4096UL
#define DEBOX_TAP_TABLE                                                                            \
	((DEBOX_TAP_ROWS * sizeof(struct debox_tap_row) + DEBOX_TAP_PAGE - 1) &                    \
	 ~(DEBOX_TAP_PAGE - 1))
#define DEBOX_TAP_ROWS_AT(slot) (DEBOX_TAP_PAGE + (slot) * DEBOX_TAP_TABLE)
#define DEBOX_TAP_FILE_SIZE(slots) DEBOX_TAP_ROWS_AT((size_t)(slots))

#endif
