/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef FLASH_INTERNAL_H
#define FLASH_INTERNAL_H

#include "channel.h"
#include "flash_application.h"

/* Bytes of an answer's head. */
#define MAX_HEAD (16 << 10)

struct flash_request {
	struct flash_application *app;
	struct order order;
	/* -1: there is no request, or it has ended. */
	int client;
	/* Of its content: what is still in the socket. */
	uint64_t unread;
	bool expects;
	/* The connection can have another request. */
	bool keeps;
	/* The client does not get the rest. */
	bool is_cut;
	bool is_chunked, is_bare;
	/* Zero: the answer has not begun. */
	int status;
	/* Of the answer: what is to come if that is known, and what was sent. */
	uint64_t left;
	uint64_t sent;
	int64_t said_at;
	/* What of the head, which the application has, has not been sent. */
	size_t head_length;
};

struct flash_application {
	int channel;
	int listener;
	struct flash_request request;
	char head[MAX_HEAD];
	char message[MAX_REQUEST];
};

bool say(struct flash_application *app, const struct said *said);
int64_t now_ms(void);

#endif
