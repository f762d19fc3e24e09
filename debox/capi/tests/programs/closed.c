/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * closed.c: a program that closes descriptors that it does not know, the library's among them, and
 * opens others under their numbers.
 */
#include "checks.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define FILES 200

static int files[FILES];
static ino_t inodes[FILES];

/* Files of the program's own, under the lowest free numbers. */
static void open_files(void)
{
	struct stat status;

	for (int i = 0; i < FILES; i++) {
		files[i] = memfd_create("own", 0);
		CHECK(files[i] >= 0 && !fstat(files[i], &status), "memfd");
		inodes[i] = status.st_ino;
	}
}

static void files_are_there(void)
{
	struct stat status;

	for (int i = 0; i < FILES; i++)
		CHECK(!fstat(files[i], &status) && status.st_ino == inodes[i], "file %d was closed",
		      files[i]);
}

static int bpf_descriptors(void)
{
	DIR *list = opendir("/proc/self/fd");
	struct dirent *entry;
	char target[64];
	int count = 0;

	CHECK(list, "no /proc");
	while ((entry = readdir(list))) {
		ssize_t length = readlinkat(dirfd(list), entry->d_name, target, sizeof(target) - 1);

		target[length > 0 ? length : 0] = '\0';
		count += strstr(target, "bpf") != NULL;
	}
	closedir(list);
	return count;
}

static void close_from(unsigned int first, unsigned int last)
{
	CHECK(!syscall(SYS_close_range, first, last, 0), "close_range");
}

static void measures(void)
{
	const struct debox_record *last;
	struct debox_scope scope;
	struct debox_sums sums;

	CHECK(!debox_scope_begin(&scope, 0), "begin");
	sleep_ms(20);
	last = debox_last();
	CHECK(last && last->call == SYS_nanosleep && last->budget.blocked_ns > 15 * MS, "call %d",
	      last ? last->call : -1);
	CHECK(!debox_scope_end(&scope, &sums), "end");
	CHECK(sums.calls == 1 && sums.budget.blocked_ns > 15 * MS, "%llu calls",
	      (unsigned long long)sums.calls);
}

/* What the open scope, and everything that is asked for now, returns. */
static void is_noticed(const struct debox_scope *open)
{
	struct debox_scope scope;
	struct debox_record record;
	struct debox_sums sums;
	int error;

	/* If there are other sessions, the probes stay until one of those removes them. */
	for (int i = 0; i < 500 && debox_last(); i++)
		sleep_ms(10);
	CHECK(!debox_last(), "call %s", debox_call_name(debox_last()->call, 0));
	error = debox_scope_end(open, &sums);
	CHECK(error == DEBOX_ERROR_INTERRUPTED, "%d", error);
	error = debox_scope_begin(&scope, 0);
	CHECK(error == DEBOX_ERROR_CLOSED, "%d", error);
	CHECK(strstr(debox_strerror(error), "file descriptors"), "%s", debox_strerror(error));
	CHECK(debox_history(&record, 1) == DEBOX_ERROR_CLOSED, "history");
	CHECK(debox_pause() == DEBOX_ERROR_CLOSED, "pause");
}

static void a_range(void)
{
	struct debox_scope scope;

	enable();
	measures();
	CHECK(!debox_scope_begin(&scope, 0), "begin");
	close_from(3, ~0U);
	open_files();
	sleep_ms(1);
	is_noticed(&scope);
	CHECK(!debox_disable(), "disable");
	files_are_there();
	CHECK(debox_disable() == DEBOX_ERROR_NOT_ENABLED, "disabled twice");
	enable();
	measures();
	CHECK(!debox_disable(), "disable");
	files_are_there();
	CHECK(bpf_descriptors() == 0, "%d are left", bpf_descriptors());
}

static void each(void)
{
	struct debox_scope scope;

	enable();
	CHECK(!debox_scope_begin(&scope, 0), "begin");
	for (int fd = 3; fd < 1024; fd++)
		syscall(SYS_close, fd);
	open_files();
	is_noticed(&scope);
	CHECK(!debox_disable(), "disable");
	files_are_there();
}

static void *close_all(void *unused)
{
	close_from(3, ~0U);
	return unused;
}

/* A scope notices that nothing has happened on the thread for long. */
static void another_thread(void)
{
	struct debox_scope scope;
	struct debox_sums sums;
	pthread_t thread;
	int error = 0;

	enable();
	CHECK(!debox_scope_begin(&scope, 0), "begin");
	CHECK(!pthread_create(&thread, NULL, close_all, NULL), "thread");
	CHECK(!pthread_join(thread, NULL), "join");
	for (int i = 0; i < 200; i++) {
		sleep_ms(30);
		error = debox_scope_end(&scope, &sums);
		if (error)
			break;
	}
	CHECK(error == DEBOX_ERROR_INTERRUPTED, "%d", error);
	is_noticed(&scope);
}

/* Enabled again without looking at anything in between. */
static void again(void)
{
	enable();
	close_from(3, ~0U);
	open_files();
	enable();
	measures();
	CHECK(!debox_disable(), "disable");
	files_are_there();
	CHECK(bpf_descriptors() == 0, "%d are left", bpf_descriptors());
}

static void a_part(void)
{
	enable();
	close_from(3, 12);
	open_files();
	CHECK(!debox_disable(), "disable");
	files_are_there();
	CHECK(bpf_descriptors() == 0, "%d are left", bpf_descriptors());
}

/*
 * None of these descriptors is the library's: the session goes on, and the library's check leaves
 * no traces.
 */
static void its_own(void)
{
	struct debox_scope scope;
	struct debox_sums sums;
	struct timespec now, until;
	unsigned long long number;
	int fd;

	enable();
	open_files();
	fd = syscall(SYS_dup, 0);
	CHECK(fd > 0, "dup");
	number = debox_last()->number;
	syscall(SYS_close, fd);
	CHECK(debox_last()->call == SYS_close && debox_last()->number == number + 1, "close");
	close_from(fd, ~0U);
	CHECK(debox_last()->call == SYS_close_range, "close_range");
	CHECK(!debox_scope_begin(&scope, 0), "begin");
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += 1;
	do {
		CHECK(debox_last(), "no record");
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < until.tv_sec || now.tv_nsec < until.tv_nsec);
	for (int i = 0; i < 3; i++) {
		CHECK(!debox_scope_end(&scope, &sums), "end");
		CHECK(sums.calls == 0, "%llu calls", (unsigned long long)sums.calls);
	}
	CHECK(debox_last()->call == SYS_close_range, "the library's own call is shown");
	measures();
	CHECK(!debox_disable(), "disable");
	files_are_there();
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"range", a_range}, {"each", each},   {"thread", another_thread},
		{"again", again},   {"part", a_part}, {"own", its_own},
	};

	return run_check(checks, sizeof(checks) / sizeof(*checks), argc > 1 ? argv[1] : NULL);
}
