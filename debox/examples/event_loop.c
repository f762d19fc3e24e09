/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * event_loop.c: an event loop that notices its own slow calls, and stops making them.
 *
 * Requests come through a pipe: each names one of two files, of which one has to be fetched from
 * the disk every time. The loop reads files itself, as long as that does not block it. After each
 * call it looks at the call's record; a file whose read slept for more than a millisecond goes to
 * a helper thread from then on. There is no list of slow files and no guess about the cache.
 *
 *	event_loop [--tap kernel|user] [DIRECTORY]
 *
 * The directory is to be on a real disk; default: the current one. With `--tap user` the program
 *takes the stamps itself: only calls made through debox_call() have records, and they cost less.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "debox.h"

#define LENGTH (8 << 20)
#define REQUESTS 12
#define TOO_LONG_NS 1000000

struct file {
	const char *name;
	int fd;
	bool cold;   /* the client evicts it before each request */
	bool blocks; /* the loop has found out */
};

static struct file files[] = {{.name = "warm"}, {.name = "cold", .cold = true}};
static int requests[2], jobs[2], answers[2];
static unsigned long long longest_ns;

/* A call with a record under either tap; -errno on error. */
#define CALL(name, ...) debox_call(SYS_##name, __VA_ARGS__)

/* Called after each call of the loop. Waiting for work is what a loop is for; the rest must not. */
static bool was_slow(const char *what)
{
	const struct debox_record *last = debox_last();
	struct debox_explanation why;
	struct debox_record record;

	if (!last || last->call == SYS_epoll_wait)
		return false;
	if (last->budget.blocked_ns > longest_ns)
		longest_ns = last->budget.blocked_ns;
	if (last->budget.blocked_ns <= TOO_LONG_NS)
		return false;
	record = *last; /* printing makes calls too */
	printf("  %s of %s took %.1f ms, %.1f of them asleep:",
	       debox_call_name(record.call, record.abi), what, record.wall_ns / 1e6,
	       record.budget.blocked_ns / 1e6);
	for (int i = 0; i < record.sleeps_used; i++)
		if (!debox_explain(&record, i, &why))
			printf(" %u x %s (%s+0x%llx)", record.sleeps[i].count, why.label,
			       why.function, (unsigned long long)why.offset);
	printf("\n");
	return true;
}

static void read_file(const struct file *file)
{
	static __thread char buffer[LENGTH];

	if (CALL(pread64, file->fd, buffer, LENGTH, 0) != LENGTH)
		errx(1, "%s: short read", file->name);
}

static void *help(void *unused)
{
	unsigned char index;

	while (read(jobs[0], &index, 1) == 1) {
		read_file(&files[index]);
		if (write(answers[1], &index, 1) != 1)
			err(1, "answers");
	}
	return unused;
}

static void *ask(void *unused)
{
	for (int i = 0; i < REQUESTS; i++) {
		unsigned char index = i % 2;

		if (files[index].cold)
			posix_fadvise(files[index].fd, 0, 0, POSIX_FADV_DONTNEED);
		if (write(requests[1], &index, 1) != 1)
			err(1, "requests");
		usleep(50000);
	}
	return unused;
}

static void serve(struct file *file)
{
	unsigned char index = file - files;

	if (file->blocks) {
		if (CALL(write, jobs[1], &index, 1) != 1)
			errx(1, "jobs: short write");
		was_slow("the job queue");
		printf("%s: given to the helper\n", file->name);
		return;
	}
	read_file(file);
	file->blocks = was_slow(file->name);
	printf("%s: read in the loop%s\n", file->name,
	       file->blocks ? "; the helper will do it next time" : "");
}

static void run_loop(void)
{
	int poll = epoll_create1(EPOLL_CLOEXEC);
	int answered = 0;

	for (int i = 0; i < 2; i++) {
		int fd = i ? answers[0] : requests[0];
		struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

		if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event))
			err(1, "epoll_ctl");
	}
	while (answered < REQUESTS) {
		struct epoll_event event;
		unsigned char index;

		if (CALL(epoll_wait, poll, &event, 1, -1) != 1)
			continue;
		was_slow("the loop");
		if (CALL(read, event.data.fd, &index, 1) != 1)
			errx(1, "requests: short read");
		was_slow("a request");
		if (event.data.fd == answers[0]) {
			printf("%s: answered by the helper\n", files[index].name);
			answered++;
			continue;
		}
		if (!files[index].blocks)
			answered++;
		serve(&files[index]);
		if (index == 1 && answered == 2) {
			printf("the loop was blocked for up to %.2f ms; from here on:\n",
			       longest_ns / 1e6);
			longest_ns = 0;
		}
	}
	printf("the loop was blocked for up to %.2f ms\n", longest_ns / 1e6);
	close(poll);
}

static void make_file(struct file *file, const char *directory)
{
	static char block[1 << 16];
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/event_loop.%d.%s", directory, getpid(), file->name);
	file->fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (file->fd < 0)
		err(1, "%s", path);
	unlink(path);
	for (int written = 0; written < LENGTH; written += sizeof(block))
		if (write(file->fd, block, sizeof(block)) != sizeof(block))
			err(1, "%s", path);
	if (fsync(file->fd))
		err(1, "%s", path);
	read_file(file);
}

static void usage(int status)
{
	fprintf(status ? stderr : stdout,
		"usage: event_loop [--tap kernel|user] [DIRECTORY]\n\n"
		"A loop that reads two files, one of them from the disk each time, and hands the\n"
		"slow one to a helper when it sees that the call slept. DIRECTORY: where the "
		"files\n"
		"are made, on a real disk; default: the current one.\n");
	exit(status);
}

static const char *parse(int argc, char **argv, struct debox_options *options)
{
	const char *directory = NULL;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help")) {
			usage(0);
		} else if (!strcmp(argv[i], "--tap")) {
			const char *tap = argv[++i] ? argv[i] : "";

			if (strcmp(tap, "kernel") && strcmp(tap, "user"))
				usage(2);
			options->tap = *tap == 'u' ? DEBOX_TAP_USER : DEBOX_TAP_KERNEL;
		} else if (*argv[i] == '-' || directory) {
			usage(2);
		} else {
			directory = argv[i];
		}
	}
	return directory ? directory : ".";
}

int main(int argc, char **argv)
{
	struct debox_options options = {.size = sizeof(options), .detail = DEBOX_DETAIL_SLEEPS};
	const char *directory = parse(argc, argv, &options);
	pthread_t helper, client;
	int error;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < 2; i++)
		make_file(&files[i], directory);
	if (pipe(requests) || pipe(jobs) || pipe(answers))
		err(1, "pipe");
	error = debox_enable(&options);
	if (error)
		errx(1, "%s: %s", debox_strerror(error), debox_last_error_text());
	pthread_create(&helper, NULL, help, NULL);
	pthread_create(&client, NULL, ask, NULL);
	run_loop();
	pthread_join(client, NULL);
	close(jobs[1]);
	pthread_join(helper, NULL);
	debox_disable();
	return 0;
}
