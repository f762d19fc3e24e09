/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * welcome.c: what the preload shim reads, for the target of that name. Its names are changed: the
 * library, which is in the same program, has a user tap of its own.
 */
#define debox_tap_nowhere fuzz_tap_nowhere
#define debox_tap_process fuzz_tap_process
#define debox_tap_thread fuzz_tap_thread
#define debox_tap_is_attached fuzz_tap_is_attached
#define debox_tap_before_leaving fuzz_tap_before_leaving
#define debox_tap_attach fuzz_tap_attach

#include "../debox/preload/c/attach.c"

#include <stdio.h>

static int next_descriptor(void)
{
	int fd = debox_raw(SYS_dup, 0, 0, 0, 0, 0, 0);

	debox_raw(SYS_close, fd, 0, 0, 0, 0, 0);
	return fd;
}

int debox_fuzz_receive(int socket, __u64 secret)
{
	struct session_address session = {.secret = secret, .path = ""};
	struct debox_tap_welcome welcome = {0};
	int fds[3], failed, before = next_descriptor();

	failed = receive(socket, &session, &welcome, fds);
	if (!failed)
		close_all(fds, 3);
	if (next_descriptor() != before) {
		fprintf(stderr, "descriptors were left open\n");
		abort();
	}
	return !failed;
}

/* Whether the bytes are a session's address; its path is at their end then. */
int debox_fuzz_address(const char *bytes, size_t length)
{
	struct session_address address;
	char *text = calloc(1, length + 1);
	int is_one;

	memcpy(text, bytes, length);
	is_one = !parse_address(text, &address);
	if (is_one && (address.path[0] != '/' ||
		       strcmp(text + strlen(text) - strlen(address.path), address.path)))
		abort();
	free(text);
	return is_one;
}

long debox_fuzz_filters(const char *bytes, size_t length)
{
	char *text = calloc(1, length + 1);
	long count;

	memcpy(text, bytes, length);
	count = filters_in(text);
	free(text);
	return count;
}
