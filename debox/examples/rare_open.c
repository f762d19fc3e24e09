/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * rare_open: a mail server that opens a million files, and waits for one of them.
 *
 *   rare_open DIRECTORY [OPENS]      a directory of ext4, OPENS: 1000000 if nothing is said
 *
 * Two processes, as with any mail server. The reader (rare_open) opens messages of the spool
 * directory, again and again the same thousand: the kernel finds their names in its memory and
 * takes no lock. Only once, in another place of the program and after three quarters of the
 * requests, it asks for a file that nobody has asked for before. Such a name has to be looked for
 * in the directory, under its lock.
 *
 * The writer (deliver) delivers mail into the directory, which has the attribute `D` of chattr:
 * what is created or removed there is on the disk when the call returns. That is how spools were
 * made safe. The price: the directory's lock is held until the disk has answered.
 *
 * debox/docs/example-rare-open.md is the page to it. Prints what it did: opens, and the longest
 * one.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MESSAGES 1000

static double longest;
static long opens;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Whether the file is there. Not inlined, so that the stacks tell who asked. */
static __attribute__((noinline)) int is_there(const char *name)
{
	double begin = now();
	int file = open(name, O_RDONLY | O_CLOEXEC);
	double took = now() - begin;

	opens++;
	if (took > longest)
		longest = took;
	if (file < 0)
		return 0;
	close(file);
	return 1;
}

static __attribute__((noinline)) void serve_message(long request)
{
	char name[32];

	snprintf(name, sizeof(name), "message-%ld", request % MESSAGES);
	if (!is_there(name))
		errx(1, "%s is not there", name);
}

/* The rare path: has the administrator left a note for this user? */
static __attribute__((noinline)) void read_notice(void)
{
	if (is_there("notice"))
		errx(1, "there is a notice: the directory was not empty");
}

static __attribute__((noinline)) void serve(long requests)
{
	for (long request = 0; request < requests - 1; request++) {
		serve_message(request);
		if (request == requests / 4 * 3)
			read_notice();
	}
}

/* Until it is killed; tells by a byte that the first message has been delivered. */
static void deliver(int ready)
{
	prctl(PR_SET_NAME, "deliver");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		int file = open("incoming", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

		if (file < 0)
			err(1, "incoming");
		close(file);
		if (rename("incoming", "delivered"))
			err(1, "rename");
		if (ready >= 0 && write(ready, "", 1) == 1) {
			close(ready);
			ready = -1;
		}
	}
}

static void fill(const char *directory)
{
	int flags, self;

	if (chdir(directory))
		err(1, "%s", directory);
	self = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (self < 0)
		err(1, "%s", directory);
	for (long message = 0; message < MESSAGES; message++) {
		char name[32];
		int file;

		snprintf(name, sizeof(name), "message-%ld", message);
		file = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (file < 0)
			err(1, "%s", name);
		close(file);
	}
	/* chattr +D */
	if (ioctl(self, FS_IOC_GETFLAGS, &flags))
		err(1, "%s has no attributes, use a directory of ext4", directory);
	flags |= FS_DIRSYNC_FL;
	if (ioctl(self, FS_IOC_SETFLAGS, &flags))
		err(1, "%s does not take the attribute D, use a directory of ext4", directory);
	close(self);
}

int main(int argc, char **argv)
{
	long requests = argc > 2 ? atol(argv[2]) : 1000000;
	int ready[2];
	pid_t writer;
	char byte;

	if (argc < 2 || requests < 8) {
		fprintf(stderr, "usage: rare_open DIRECTORY [OPENS]\n");
		return 2;
	}
	fill(argv[1]);
	if (pipe2(ready, O_CLOEXEC))
		err(1, "pipe");
	writer = fork();
	if (writer < 0)
		err(1, "fork");
	if (!writer)
		deliver(ready[1]);
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		errx(1, "nothing was delivered");
	serve(requests);
	kill(writer, SIGKILL);
	waitpid(writer, NULL, 0);
	printf("%ld opens, the longest %.3f ms\n", opens, longest * 1e3);
	return 0;
}
