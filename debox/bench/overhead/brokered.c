/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * brokered: calls of a program that reads its own records.  Usage: brokered RESULT SECONDS TAP
 *
 * TAP is `off` (DeBox is linked and not enabled), `kernel` or `user`. Whether the program
 * itself loads the probes, or the broker that DEBOX_BROKER names, makes no difference to it.
 */
#include "measure.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <debox.h>

#define BATCH 2000
#define SLEEPS 500

static int is_tapped;
static volatile uint64_t wall_ns; /* keeps the compiler from removing the read of the record */

static void read_record(void)
{
	const struct debox_record *last = debox_last();

	if (last)
		wall_ns = last->wall_ns;
}

static void call_getppid(void *context, int count)
{
	(void)context;
	while (count--) {
		if (is_tapped)
			debox_call(SYS_getppid);
		else
			syscall(SYS_getppid);
		read_record();
	}
}

static void call_pread(void *context, int count)
{
	static char buffer[4096];
	int fd = *(int *)context;

	while (count--) {
		if (is_tapped)
			debox_call(SYS_pread64, fd, buffer, sizeof(buffer), 0L);
		else
			pread(fd, buffer, sizeof(buffer), 0);
		read_record();
	}
}

/* Two threads and two pipes: each round trip is two sleeps, one of them this thread's. */
static int there[2], back[2];

static void *echo(void *unused)
{
	char byte;

	(void)unused;
	while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
		;
	return NULL;
}

static void play(void *context, int count)
{
	char byte = 0;

	(void)context;
	while (count--) {
		if (write(there[1], &byte, 1) != 1)
			fail("write");
		if (is_tapped)
			debox_call(SYS_read, back[0], &byte, 1L);
		else if (read(back[0], &byte, 1) != 1)
			fail("read");
		read_record();
	}
}

int main(int argc, char **argv)
{
	struct debox_options options = {.size = sizeof(options), .max_threads = 16};
	pthread_t other;
	double seconds;
	FILE *result;
	int fd;

	if (argc != 4)
		return 2;
	seconds = atof(argv[2]);
	fd = open("/proc/self/exe", O_RDONLY);
	if (fd < 0 || pipe(there) || pipe(back))
		fail("files");
	is_tapped = !strcmp(argv[3], "user");
	if (is_tapped)
		options.tap = DEBOX_TAP_USER;
	if (strcmp(argv[3], "off") && debox_enable(&options)) {
		fprintf(stderr, "brokered: %s\n", debox_last_error_text());
		return 1;
	}
	result = open_result(argv[1]);
	measure(result, "getppid", seconds, BATCH, call_getppid, NULL);
	measure(result, "pread 4096", seconds, BATCH, call_pread, &fd);
	if (pthread_create(&other, NULL, echo, NULL))
		fail("pthread_create");
	measure(result, "ping-pong", seconds, SLEEPS, play, NULL);
	close(there[1]);
	pthread_join(other, NULL);
	return 0;
}
