/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * tap_entries: calls each entry point of libc that the preload shim interposes 200 times, the first
 * argument -1 and the others 0, which most refuse. Left out are those that would wait for ever.
 */
#include <dlfcn.h>

#include "known.h"

#define ROUNDS 200

#define CALL0(type, name, ...) #name,
#define CALL1 CALL0
#define CALL2 CALL0
#define CALL3 CALL0
#define CALL4 CALL0
#define CALL5 CALL0
#define CALL6 CALL0
#define CALL7 CALL0

static const char *const names[] = {
#include "../../../preload/c/calls.def"
	"open", "open64", "openat",  "openat64",	"fcntl",	 "ioctl",
	"mmap", "mmap64", "syscall", "clock_nanosleep", "posix_fadvise",
};

static const char *const waiting[] = {"pause",	"sigsuspend", "ppoll",	"__ppoll_chk",
				      "select", "pselect",    "usleep", "sleep"};

/* Those that the C library turns into calls of several kinds, and what the measuring itself uses.
 */
static const char *const left_out[] = {"fstat",	 "fstat64", "utimensat",
				       "writev", "preadv",  "preadv64"};

static int is_in(const char *name, const char *const *list, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!strcmp(name, list[i]))
			return 1;
	return 0;
}

int main(void)
{
	uint64_t called = 0;

	facts_start();
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		long (*entry)(long, long, long, long, long, long, long) =
			(__typeof__(entry))dlsym(RTLD_DEFAULT, names[i]);

		if (is_in(names[i], waiting, sizeof(waiting) / sizeof(waiting[0])) ||
		    is_in(names[i], left_out, sizeof(left_out) / sizeof(left_out[0])) || !entry)
			continue;
		for (int round = 0; round < ROUNDS; round++)
			entry(-1, 0, 0, 0, 0, 0, 0);
		called++;
	}
	fact("entries", called);
	facts_end();
	return 0;
}
