/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* life.c: threads, signals, forks, and the beginning and end of a session. */
#include "checks.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

static atomic_int stop, worker_tid;

static void *call_at_full_speed(void *unused)
{
	worker_tid = syscall(SYS_gettid);
	for (unsigned long i = 0; !stop; i++) {
		syscall(SYS_getppid, i, ~i);
		if (i % 1024 == 0)
			sched_yield();
	}
	return unused;
}

/*
 * Another thread reads only consistent records, in order, while the first makes calls at full
 * speed.
 */
static void other_threads_read_whole_records(void)
{
	struct debox_record records[DEBOX_HISTORY_MAX];
	unsigned long long newest = 0, read = 0;
	struct timespec begin, now;
	pthread_t thread;

	enable();
	pthread_create(&thread, NULL, call_at_full_speed, NULL);
	while (!worker_tid)
		sched_yield();
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		int copied = debox_history_of(worker_tid, records, DEBOX_HISTORY_MAX);

		CHECK(copied >= 0, "%s", debox_strerror(copied));
		for (int i = 0; i < copied; i++) {
			CHECK(parts_of(&records[i]) == records[i].wall_ns, "torn: parts and wall");
			if (records[i].call == SYS_getppid)
				CHECK(records[i].args[1] == ~records[i].args[0], "torn: arguments");
			CHECK(i == 0 || records[i].number < records[i - 1].number, "order");
		}
		CHECK(!copied || records[0].number >= newest, "went back");
		if (copied)
			newest = records[0].number;
		read += copied;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < begin.tv_sec + 2);
	stop = 1;
	pthread_join(thread, NULL);
	CHECK(newest > 100000 && read > 10000, "%llu calls, %llu read", newest, read);
	/* The thread's end is seen when it has left the CPU for the last time. */
	for (int i = 0; i < 1000 && debox_history_of(worker_tid, records, 1) >= 0; i++)
		sleep_ms(1);
	CHECK(debox_history_of(worker_tid, records, 1) == DEBOX_ERROR_NO_THREAD, "ended thread");
	CHECK(debox_history_of(0, records, 1) == DEBOX_ERROR_NO_THREAD, "thread 0");
	CHECK(debox_history_of(-5, records, 1) == DEBOX_ERROR_NO_THREAD, "thread -5");
	printf("%llu calls, %llu records read\n", newest, read);
}

#define MARK 0x7a6b5c4d

static atomic_ulong handled, unseen;

static void look(int signal)
{
	const struct debox_record *last;
	struct debox_record records[2];
	int saved = errno;

	(void)signal;
	syscall(SYS_getpid, MARK);
	last = debox_last();
	if (!last) { /* the thread's first call was not seen */
		unseen++;
		handled++;
		errno = saved;
		return;
	}
	CHECK((last->call == SYS_getpid) == (last->args[0] == MARK) ||
		      last->flags & DEBOX_END_UNSEEN,
	      "another call's arguments: call %d, %#llx, flags %#x, %lu signals before", last->call,
	      (unsigned long long)last->args[0], last->flags, handled);
	if (last->call != SYS_getpid || last->flags & DEBOX_END_UNSEEN)
		unseen++;
	CHECK(debox_history(records, 2) >= 1 && records[0].number == last->number,
	      "in the handler");
	handled++;
	errno = saved;
}

/* Since 7.2 the kernel does not show the calls of a thread that preempted a probe. */
static bool may_be_unseen(void)
{
	FILE *names = fopen("/proc/kallsyms", "r");
	char line[512];
	bool found = false;

	while (names && !found && fgets(line, sizeof(line), names))
		found = strstr(line, " trace_call_bpf_faultable\n");
	if (names)
		fclose(names);
	return found;
}

static void *look_and_allocate(void *unused)
{
	for (int i = 0; !stop; i++) {
		const struct debox_record *last;

		syscall(SYS_getppid, i);
		last = debox_last();
		if (!last)
			unseen++;
		else
			CHECK(parts_of(last), "between signals: call %d, flags %#x", last->call,
			      last->flags);
		free(malloc(i % 5000));
	}
	return unused;
}

/*
 * Signals at a high rate to threads that have just started: some arrive during the first look
 * itself.
 */
static void handlers_may_look(void)
{
	struct sigaction action = {.sa_handler = look};
	/*
	 * Not too often, or a thread has no time for anything but signals. On an emulated processor
	 * the thread that is to handle them runs only some 90 times a second beside four others,
	 * even without monitoring, and an interval of 0.5 ms stops everything (Linux 7.3 under QEMU
	 * 7.2).
	 */
	const char *told = getenv("DEBOX_TESTS_SLOWNESS");
	unsigned int slowness = told ? (unsigned int)atoi(told) : 1;
	struct timespec interval = {.tv_nsec = 200000L * slowness * slowness};
	struct itimerspec often = {interval, interval};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	timer_t timer;

	enable();
	sigaction(SIGALRM, &action, NULL);
	CHECK(!timer_create(CLOCK_MONOTONIC, &event, &timer), "timer");
	CHECK(!timer_settime(timer, 0, &often, NULL), "timer");
	for (int round = 0; round < 20; round++) {
		pthread_t threads[4];

		stop = 0;
		for (int i = 0; i < 4; i++)
			CHECK(!pthread_create(&threads[i], NULL, look_and_allocate, NULL),
			      "thread");
		for (int i = 0; i < 20; i++)
			sleep_ms(5);
		stop = 1;
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
	}
	CHECK(handled > 1000 / (slowness * slowness), "%lu signals", handled);
	CHECK(!unseen || may_be_unseen(), "%lu of %lu calls unseen", unseen, handled);
	printf("%lu signals, %lu of their calls unseen\n", handled, unseen);
}

static int status_of(pid_t child)
{
	int status = 0;

	while (waitpid(child, &status, 0) == -1 && errno == EINTR)
		;
	return status;
}

static void forked_children_have_their_own(void)
{
	const struct debox_record *last;
	struct debox_record copy;
	pid_t child;

	enable();
	syscall(SYS_getppid, 7);
	child = fork();
	CHECK(child >= 0, "fork");
	if (!child) {
		CHECK(!debox_last(), "sees call %d", debox_last()->call);
		for (int i = 0; i < 100; i++)
			syscall(SYS_getpid, 8);
		last = debox_last();
		CHECK(last && last->call == SYS_getpid && last->args[0] == 8, "in the child");
		CHECK(debox_history_of(getppid(), &copy, 1) == 1, "the parent is still there");
		sleep_ms(20);
		CHECK(debox_explain(debox_last(), 0, &(struct debox_explanation){0}) == 0, "%s",
		      debox_last_error_text());
		CHECK(debox_set_limits(0, 0) == 0 && debox_pause() == 0,
		      "the child's own controls");
		if (!fork()) {
			syscall(SYS_getuid);
			_exit(debox_last() && debox_last()->call == SYS_getuid ? 3 : 1);
		}
		int status;
		wait(&status);
		CHECK(WEXITSTATUS(status) == 3, "in the grandchild");
		CHECK(debox_disable() == 0, "the child ends its own view");
		CHECK(!debox_last() && debox_history(&copy, 1) == DEBOX_ERROR_NOT_ENABLED, "ended");
		_exit(3);
	}
	CHECK(status_of(child) == 3 << 8, "the child failed");
	last = debox_last();
	CHECK(last && last->call == SYS_wait4 && last->ret == child, "the parent's record is gone");
	CHECK(last->sleeps_used >= 1, "the child's limits are the parent's");
	sleep_ms(1);
	CHECK(debox_last()->call == SYS_nanosleep, "the parent is not monitored any more");
}

/* A raw clone runs no handlers: it reads nothing rather than its parent's records. */
static void raw_clones_read_nothing(void)
{
	struct debox_record record;
	pid_t child;

	enable();
	syscall(SYS_getppid, 7);
	CHECK(debox_last(), "no record");
	child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!child) {
		CHECK(!debox_last(), "sees call %d", debox_last()->call);
		CHECK(debox_pause() == DEBOX_ERROR_NOT_ENABLED, "pauses");
		CHECK(debox_disable() == DEBOX_ERROR_NOT_ENABLED, "disables");
		enable();
		syscall(SYS_getppid, 8);
		CHECK(debox_last() && debox_last()->args[0] == 8, "after enabling");
		_exit(3);
	}
	CHECK(status_of(child) == 3 << 8, "the child failed");
	CHECK(debox_last()->call == SYS_wait4, "the parent's record is gone");
	CHECK(debox_history(&record, 1) == 1, "history");
}

/* A daemon's parent ends; the session that it opened goes on. */
static void daemons_stay_monitored(void)
{
	int pipe_ends[2];
	char answer = 0;

	CHECK(!pipe(pipe_ends), "pipe");
	if (!fork()) {
		enable();
		if (fork())
			_exit(0);
		sleep_ms(100);
		syscall(SYS_getuid);
		answer = debox_last() && debox_last()->call == SYS_getuid ? 'y' : 'n';
		(void)!write(pipe_ends[1], &answer, 1);
		_exit(0);
	}
	CHECK(read(pipe_ends[0], &answer, 1) == 1 && answer == 'y', "answered %c", answer);
}

static int count_lines(const char *path)
{
	FILE *file = fopen(path, "r");
	int lines = 0, c;

	CHECK(file, "%s", path);
	while ((c = getc(file)) != EOF)
		lines += c == '\n';
	fclose(file);
	return lines;
}

static int count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int entries = 0;

	while (readdir(directory))
		entries++;
	closedir(directory);
	return entries;
}

static void sessions_leave_nothing_behind(void)
{
	struct debox_options options = {.size = sizeof(options), .detail = DEBOX_DETAIL_SLEEPS};
	const struct debox_record *old = NULL;
	int descriptors = count_descriptors(), mappings = 0;

	for (int i = 0; i < 50; i++) {
		/*
		 * The same range of addresses is used for fewer slots, and then for as many again.
		 */
		options.max_threads = i % 2 ? 64 : 256;
		CHECK(debox_enable(&options) == 0, "round %d: %s", i, debox_last_error_text());
		CHECK(debox_enable(NULL) == DEBOX_ERROR_ENABLED, "enabled twice");
		syscall(SYS_getppid, i);
		CHECK(debox_last() && debox_last()->args[0] == (__u64)i, "round %d", i);
		old = debox_last();
		CHECK(debox_disable() == 0, "round %d", i);
		CHECK(!debox_last(), "a record after the end");
		CHECK(old->number == 0, "old pointers read zeros");
		CHECK(debox_disable() == DEBOX_ERROR_NOT_ENABLED, "disabled twice");
		if (i == 4)
			mappings = count_lines("/proc/self/maps");
	}
	CHECK(count_descriptors() == descriptors, "%d descriptors, %d before", count_descriptors(),
	      descriptors);
	CHECK(count_lines("/proc/self/maps") <= mappings + 2, "%d mappings, %d before",
	      count_lines("/proc/self/maps"), mappings);
}

static void errors_are_explained(void)
{
	struct debox_options options = {.size = sizeof(options), .max_threads = 1 << 20};
	struct debox_explanation explained;
	struct debox_record record = {0};

	CHECK(!debox_last(), "a record before anything");
	CHECK(debox_history(&record, 1) == DEBOX_ERROR_NOT_ENABLED, "history");
	CHECK(debox_pause() == DEBOX_ERROR_NOT_ENABLED, "pause");
	CHECK(debox_set_limits(1, 1) == DEBOX_ERROR_NOT_ENABLED, "set_limits");
	CHECK(debox_enable(&options) == DEBOX_ERROR_ARGUMENT, "too many threads");
	CHECK(strstr(debox_last_error_text(), "65536"), "%s", debox_last_error_text());
	options.size = 8;
	CHECK(debox_enable(&options) == DEBOX_ERROR_ARGUMENT, "another size");
	record.sleeps_used = 1;
	CHECK(debox_explain(&record, 0, &explained) == DEBOX_ERROR_NOT_ENABLED, "explain");
	CHECK(debox_explain(NULL, 0, &explained) == DEBOX_ERROR_ARGUMENT, "explain nothing");

	CHECK(!setuid(65534), "setuid");
	CHECK(debox_enable(NULL) == DEBOX_ERROR_PRIVILEGE, "without privilege");
	CHECK(strstr(debox_last_error_text(), "root"), "%s", debox_last_error_text());
	CHECK(strstr(debox_strerror(DEBOX_ERROR_PRIVILEGE), "CAP_BPF"), "strerror");
	CHECK(!debox_last(), "a record without privilege");
}

/* More threads than there is room for: they run, and report that they have no record. */
static void *crowd(void *unused)
{
	struct debox_record record;
	int result = debox_history(&record, 1);

	CHECK(result >= 0 || result == DEBOX_ERROR_NOT_MONITORED, "%s", debox_strerror(result));
	CHECK((result >= 0) || !debox_last(), "a record without a slot");
	sleep_ms(50);
	return result >= 0 ? NULL : unused;
}

static void crowds_are_told(void)
{
	struct debox_options options = {.size = sizeof(options), .max_threads = 4};
	pthread_t threads[8];
	int told = 0;

	CHECK(debox_enable(&options) == 0, "%s", debox_last_error_text());
	for (int i = 0; i < 8; i++)
		CHECK(!pthread_create(&threads[i], NULL, crowd, &told), "thread");
	for (int i = 0; i < 8; i++) {
		void *result;

		pthread_join(threads[i], &result);
		told += result != NULL;
	}
	CHECK(told == 5, "%d threads of 9 have no record", told);
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"other_threads", other_threads_read_whole_records},
		{"signals", handlers_may_look},
		{"fork", forked_children_have_their_own},
		{"clone", raw_clones_read_nothing},
		{"daemon", daemons_stay_monitored},
		{"sessions", sessions_leave_nothing_behind},
		{"errors", errors_are_explained},
		{"crowd", crowds_are_told},
	};

	return run_check(checks, sizeof(checks) / sizeof(checks[0]), argc > 1 ? argv[1] : NULL);
}
