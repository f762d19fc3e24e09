/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Asks flash's path server for a path. Safe in signal handlers, after fork and in several threads:
 * no function here keeps anything open, takes a lock or allocates memory. */
#ifndef FLASH_PATHS_H
#define FLASH_PATHS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

enum flash_paths_kind {
	FLASH_PATHS_OPEN = 1, /* a descriptor to read from */
	FLASH_PATHS_STAT = 2, /* a descriptor with O_PATH */
};

enum {
	FLASH_PATHS_ANSWER_SIZE = 96,
	FLASH_PATHS_PATH_MAX = 4095,
};

/* A path server. */
struct flash_paths {
	struct sockaddr_un address;
	/* How long an answer may take; the caller does without it then. */
	int64_t deadline_ns;
	/* No question is sent before this time (CLOCK_MONOTONIC): an answer took too long. */
	int64_t quiet_until_ns;
};

/* What a client uses of an answer. */
struct flash_paths_answer {
	uint32_t id;
	uint32_t error; /* 0: there is a descriptor */
	uint32_t root_length;
	uint32_t root_device_major;
	uint32_t root_device_minor;
	uint64_t root_inode;
};

/* 0, or -1 if the path of the socket is not absolute or too long. */
int flash_paths_init(struct flash_paths *server, const char *socket_path, int64_t deadline_ms);

/* 0, or -1 if the bytes are no answer. */
int flash_paths_read(const unsigned char *bytes, size_t length, struct flash_paths_answer *answer);

/* What open(2) does with this path and these flags if it need not wait for a disk; otherwise -1
 * with EAGAIN. Also -1 with other errors: ENOENT and ENOTDIR if the caches say that there is no
 * such file, ENOSYS if the kernel has no such call. */
int flash_paths_open_cached(const char *path, int flags);

/* Whether the first bytes of what was opened to be read are in memory, as far as the kernel tells.
 * Always so for what is no regular file. Does not change errno. */
int flash_paths_is_ready(int descriptor);

/* Whether nothing would wait for a disk: the name is in memory, and if it is a regular file, the
 * first bytes are. Does not change errno, and opens nothing but regular files. */
int flash_paths_is_warm(const char *path);

/* Asks for an absolute path, with the flags of open(2). A descriptor with these flags, or -1: make
 * the ordinary call. Does not change errno. */
int flash_paths_ask(struct flash_paths *server, enum flash_paths_kind kind, const char *path,
		    int flags);

#endif
