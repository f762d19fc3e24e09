/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * crowd: idle processes with DeBox enabled.
 *
 * Usage: crowd COUNT KINDS USER PER_USER
 *
 * COUNT processes enable DeBox, one after the other, cycling through KINDS kinds of sessions. With
 * a USER above 0 they run as that user and the following ones, PER_USER processes each. "ready" is
 * printed when all have started. They end with this process.
 */
#include <err.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <debox.h>

static const struct debox_options kinds[] = {
	{.detail = DEBOX_DETAIL_SLEEPS, .tap = DEBOX_TAP_KERNEL},
	{.detail = DEBOX_DETAIL_SLEEPS, .tap = DEBOX_TAP_USER},
	{.detail = 0, .tap = DEBOX_TAP_KERNEL},
	{.detail = 0, .tap = DEBOX_TAP_USER},
	{.detail = DEBOX_DETAIL_SLEEPS | DEBOX_DETAIL_IRQ, .tap = DEBOX_TAP_KERNEL},
	{.detail = DEBOX_DETAIL_IRQ, .tap = DEBOX_TAP_KERNEL},
};
#define KINDS (int)(sizeof(kinds) / sizeof(kinds[0]))

static void be_one(int number, int ways, int user, int per_user, int ready)
{
	struct debox_options options = kinds[number % ways];
	int id = user + number / per_user;

	if (user && (setgid(id) || setuid(id)))
		err(1, "setuid");
	/* Changing the user has made the process undumpable, so that others may not inspect it. */
	prctl(PR_SET_DUMPABLE, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	options.size = sizeof(options);
	options.max_threads = 1;
	if (debox_enable(&options))
		errx(1, "process %d: %s", number, debox_last_error_text());
	if (write(ready, "x", 1) != 1)
		err(1, "write");
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	int count, ways, user, per_user, ready[2];
	char byte;

	if (argc != 5)
		errx(2, "usage: crowd COUNT KINDS USER PER_USER");
	count = atoi(argv[1]);
	ways = atoi(argv[2]);
	user = atoi(argv[3]);
	per_user = atoi(argv[4]);
	if (count < 0 || ways < 1 || ways > KINDS || per_user < 1)
		errx(2, "KINDS is from 1 to %d", KINDS);
	if (pipe(ready))
		err(1, "pipe");
	for (int number = 0; number < count; number++) {
		pid_t child = fork();

		if (child < 0)
			err(1, "fork");
		if (!child)
			be_one(number, ways, user, per_user, ready[1]);
		if (poll(&(struct pollfd){.fd = ready[0], .events = POLLIN}, 1, 60000) != 1 ||
		    read(ready[0], &byte, 1) != 1)
			errx(1, "process %d is not there", number);
	}
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
