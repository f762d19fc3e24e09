/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* records.c: what one thread reads of its own calls. */
#include "checks.h"

#include <fcntl.h>
#include <pthread.h>

/* The record of a known wait. */
static void sleep_is_measured(void)
{
	const struct debox_record *last;
	struct debox_explanation explained;

	sleep_ms(50);
	last = debox_last();
	CHECK(last, "no record");
	CHECK(last->call == SYS_nanosleep, "call %d", last->call);
	CHECK(last->version == DEBOX_VERSION && last->size == sizeof(*last), "version");
	CHECK(last->abi == DEBOX_ABI_X86_64 && last->ret == 0, "ret %lld", (long long)last->ret);
	check_sums(last);
	CHECK(last->wall_ns >= last->budget.blocked_ns, "wall");
	CHECK(last->budget.blocked_ns >= 50 * MS && last->budget.blocked_ns < 60 * MS,
	      "blocked %llu", (unsigned long long)last->budget.blocked_ns);
	CHECK(last->sleeps_used == 1 && last->sleeps_lost == 0, "%d sleeps", last->sleeps_used);
	CHECK(last->sleeps[0].count == 1, "count %u", last->sleeps[0].count);
	CHECK(last->sleeps[0].blocked_ns == last->budget.blocked_ns, "sleep and budget disagree");
	CHECK(last->sleeps[0].longest_ns == last->sleeps[0].blocked_ns, "longest");
	CHECK(last->sleeps[0].waker_kind == DEBOX_WAKER_HARDIRQ, "waker %u",
	      last->sleeps[0].waker_kind);
	CHECK(last->sleeps[0].resource_kind == DEBOX_RESOURCE_TIMER, "resource %u",
	      last->sleeps[0].resource_kind);

	/* Explaining makes calls, and must not push out the record that it explains. */
	CHECK(debox_explain(last, 0, &explained) == 0, "%s", debox_last_error_text());
	CHECK(last == debox_last() && last->call == SYS_nanosleep, "explaining was recorded");
	CHECK(strstr(explained.function, "nanosleep"), "site %s", explained.function);
	CHECK(!strcmp(explained.wait_class, "idle"), "class %s, label %s", explained.wait_class,
	      explained.label);
	CHECK(debox_explain(last, 1, &explained) == DEBOX_ERROR_ARGUMENT, "explained no sleep");
}

static void values_are_the_calls_own(void)
{
	static char buffer[4096];
	const struct debox_record *last;
	unsigned long long before;
	struct timespec now;
	int fd;

	clock_gettime(CLOCK_MONOTONIC, &now);
	before = now.tv_sec * 1000000000ULL + now.tv_nsec;
	fd = open("/proc/self/exe", O_RDONLY);
	CHECK(fd >= 0, "open");
	CHECK(pread(fd, buffer, sizeof(buffer), 64) == sizeof(buffer), "pread");
	last = debox_last();
	CHECK(last && last->call == SYS_pread64 && last->ret == sizeof(buffer), "pread's record");
	CHECK(last->args[0] == (__u64)fd && last->args[1] == (__u64)buffer &&
		      last->args[2] == sizeof(buffer),
	      "arguments %llu %llx %llu", last->args[0], last->args[1], last->args[2]);
	CHECK(last->sleeps_used == 0 && last->budget.blocked_ns == 0, "a cached read slept");
	CHECK(last->start_ns >= before && last->wall_ns > 0, "start");
	check_sums(last);

	CHECK(open("/no/such/file", O_RDONLY) == -1 && errno == ENOENT, "open");
	last = debox_last();
	CHECK(last->call == SYS_openat && last->ret == -ENOENT, "ret %lld", (long long)last->ret);
	CHECK(!strcmp(debox_call_name(last->call, last->abi), "openat"), "name");
	CHECK(write(-1, buffer, 1) == -1 && debox_last()->ret == -EBADF, "write");
}

static void history_is_newest_first(void)
{
	struct debox_record records[DEBOX_HISTORY_MAX + 2];
	int copied;

	for (int i = 0; i < 20; i++)
		syscall(SYS_getppid, i);
	copied = debox_history(records, DEBOX_HISTORY_MAX + 2);
	CHECK(copied == DEBOX_HISTORY_MAX, "copied %d", copied);
	for (int i = 0; i < copied; i++) {
		CHECK(records[i].call == SYS_getppid && records[i].args[0] == (__u64)(19 - i),
		      "entry %d: call %d of %llu", i, records[i].call, records[i].args[0]);
		CHECK(records[i].number == records[0].number - i, "number");
		check_sums(&records[i]);
	}
	CHECK(debox_history(records, 2) == 2 && records[0].args[0] == 19, "two of them");
	CHECK(debox_history(records, 0) == 0 && debox_history(NULL, 0) == 0, "none of them");
	CHECK(debox_history(NULL, 1) == DEBOX_ERROR_ARGUMENT, "nowhere");
	CHECK(debox_history(records, -1) == DEBOX_ERROR_ARGUMENT, "less than none");
}

/*
 * The first look on a thread needs a call of the library's own, which must not be what is returned.
 */
static void *look_for_the_first_time(void *unused)
{
	const struct debox_record *last;
	struct debox_record records[DEBOX_HISTORY_MAX];
	int copied;

	syscall(SYS_getppid, 4711);
	last = debox_last();
	CHECK(last && last->call == SYS_getppid && last->args[0] == 4711, "not the call before");
	CHECK(debox_last() == last, "looking changed it");
	copied = debox_history(records, DEBOX_HISTORY_MAX);
	CHECK(copied > 0 && records[0].args[0] == 4711, "history");
	for (int i = 0; i < copied; i++)
		CHECK(records[i].call != SYS_gettid, "the library's own call is shown");
	syscall(SYS_getppid, 4712);
	CHECK(debox_last()->args[0] == 4712, "not the call after");
	return unused;
}

static void the_library_hides_its_own_calls(void)
{
	pthread_t thread;

	CHECK(!debox_last(), "after enabling: %s", debox_call_name(debox_last()->call, 0));
	pthread_create(&thread, NULL, look_for_the_first_time, NULL);
	pthread_join(thread, NULL);
}

static void looking_is_no_call(void)
{
	struct debox_record records[DEBOX_HISTORY_MAX];
	unsigned long long before;

	syscall(SYS_getppid);
	before = debox_last()->number;
	for (int i = 0; i < 100000; i++) {
		CHECK(debox_last(), "no record");
		debox_history(records, DEBOX_HISTORY_MAX);
		debox_set_limits(8, 0);
		debox_resume();
	}
	CHECK(debox_last()->number == before, "a call in between");
	syscall(SYS_getppid);
	CHECK(debox_last()->number == before + 1, "%llu calls",
	      (unsigned long long)debox_last()->number - before);
}

static void pausing_stops_records(void)
{
	unsigned long long before;

	syscall(SYS_getppid, 1);
	before = debox_last()->number;
	CHECK(debox_pause() == 0, "pause");
	syscall(SYS_getppid, 2);
	sleep_ms(1);
	CHECK(debox_last()->args[0] == 1, "recorded while paused");
	CHECK(debox_resume() == 0, "resume");
	CHECK(debox_last()->number == before, "recorded while paused");
	syscall(SYS_getppid, 3);
	CHECK(debox_last()->args[0] == 3 && debox_last()->sleeps_used == 0, "after the pause");
	CHECK(debox_last()->number == before + 3, "%llu calls, not 3",
	      (unsigned long long)debox_last()->number - before);
}

static int empty_pipe[2], full_pipe[2];

static void *feed(void *unused)
{
	static char room[1 << 20];

	sleep_ms(20);
	(void)!write(empty_pipe[1], "x", 1);
	sleep_ms(20);
	(void)!read(full_pipe[0], room, sizeof(room));
	return unused;
}

/* A splice between pipes sleeps at two sites: for the first to fill, for the second to empty. */
static void splice_pipes(void)
{
	static char page[4096];
	pthread_t thread;

	CHECK(!pipe(empty_pipe) && !pipe(full_pipe), "pipe");
	fcntl(full_pipe[1], F_SETFL, O_NONBLOCK);
	while (write(full_pipe[1], page, sizeof(page)) > 0)
		;
	fcntl(full_pipe[1], F_SETFL, 0);
	pthread_create(&thread, NULL, feed, NULL);
	CHECK(splice(empty_pipe[0], NULL, full_pipe[1], NULL, 1, 0) == 1, "splice");
}

static void limits_count_what_they_leave_out(void)
{
	const struct debox_record *last;
	unsigned long long blocked;

	splice_pipes();
	last = debox_last();
	CHECK(last->call == SYS_splice && last->sleeps_used == 2 && last->sleeps_lost == 0,
	      "%s: %d sites, %u lost", debox_call_name(last->call, 0), last->sleeps_used,
	      last->sleeps_lost);
	blocked = last->sleeps[0].blocked_ns + last->sleeps[1].blocked_ns;
	CHECK(blocked == last->budget.blocked_ns && blocked > 15 * MS, "blocked %llu", blocked);
	CHECK(last->sleeps[0].site != last->sleeps[1].site, "one site twice");
	CHECK(last->sleeps[0].waker_kind == DEBOX_WAKER_TASK && last->sleeps[0].waker_tid > 0,
	      "waker");
	CHECK(!strcmp(last->sleeps[0].waker_comm, "records"), "woken by %s",
	      last->sleeps[0].waker_comm);

	CHECK(debox_set_limits(1, 0) == 0, "set_limits");
	splice_pipes();
	last = debox_last();
	CHECK(last->sleeps_used == 1 && last->sleeps_lost == 1, "%d sites, %u lost",
	      last->sleeps_used, last->sleeps_lost);
	CHECK(last->budget.blocked_ns > 15 * MS, "the budget lost it too");
	check_sums(last);

	CHECK(debox_set_limits(0, 0) == 0, "set_limits");
	sleep_ms(1);
	CHECK(debox_last()->sleeps_used == 0 && debox_last()->sleeps_lost == 1, "limit 0");
	CHECK(debox_set_limits(~0U, ~0U) == 0, "set_limits");
	sleep_ms(1);
	CHECK(debox_last()->sleeps_used == 1 && debox_last()->sleeps_lost == 0, "no limit");
}

/* What the waiter of a lock gets: who woke it, and the futex word. */
static void futex_word_is_named(void)
{
	static int word;
	struct timespec time = {0, 5000000};
	const struct debox_record *last;

	syscall(SYS_futex, &word, 0 /* FUTEX_WAIT */, 0, &time, NULL, 0);
	last = debox_last();
	CHECK(last->ret == -ETIMEDOUT && last->sleeps_used == 1, "ret %lld", (long long)last->ret);
	CHECK(last->sleeps[0].resource_kind == DEBOX_RESOURCE_FUTEX &&
		      last->sleeps[0].resource == (__u64)&word,
	      "resource %u %llx", last->sleeps[0].resource_kind, last->sleeps[0].resource);
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static volatile int holder_tid;

/* Whether a thread of this process is asleep in futex(). */
static int waits_for_futex(int tid)
{
	char path[64], line[64] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	file = fopen(path, "r");
	if (!file)
		return 0;
	fgets(line, sizeof(line), file);
	fclose(file);
	return atoi(line) == SYS_futex;
}

static void *hold(void *waiter)
{
	pthread_mutex_lock(&held);
	holder_tid = syscall(SYS_gettid);
	for (int tries = 0; tries < 4000 && !waits_for_futex(*(int *)waiter); tries++)
		sleep_ms(5);
	pthread_mutex_unlock(&held);
	return NULL;
}

/* Who had the mutex that was waited for. */
static void owner_is_named(void)
{
	const struct debox_record *last;
	const struct debox_sleep *sleep;
	int tid = syscall(SYS_gettid);
	pthread_t holder;

	CHECK(pthread_create(&holder, NULL, hold, &tid) == 0, "no thread");
	pthread_setname_np(holder, "holder");
	while (!holder_tid)
		sleep_ms(1);
	pthread_mutex_lock(&held);
	last = debox_last();
	CHECK(last->call == SYS_futex && last->sleeps_used == 1, "call %d", last->call);
	sleep = &last->sleeps[0];
	CHECK(sleep->owner_certainty == DEBOX_OWNER_EXACT, "certainty %u", sleep->owner_certainty);
	CHECK(sleep->owner_tid == (__u32)holder_tid, "owner %u", sleep->owner_tid);
	CHECK(!strcmp(sleep->owner_comm, "holder"), "owner %s", sleep->owner_comm);
	CHECK(sleep->resource == (__u64)&held, "resource %llx", sleep->resource);
	pthread_mutex_unlock(&held);
	pthread_join(holder, NULL);
	sleep_ms(1);
	CHECK(debox_last()->sleeps[0].owner_certainty == DEBOX_OWNER_NONE &&
		      debox_last()->sleeps[0].owner_tid == 0 &&
		      !debox_last()->sleeps[0].owner_comm[0],
	      "a timer has an owner");
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"sleep", sleep_is_measured},
		{"values", values_are_the_calls_own},
		{"history", history_is_newest_first},
		{"hidden", the_library_hides_its_own_calls},
		{"loads", looking_is_no_call},
		{"pause", pausing_stops_records},
		{"limits", limits_count_what_they_leave_out},
		{"futex", futex_word_is_named},
		{"owner", owner_is_named},
	};

	enable();
	return run_check(checks, sizeof(checks) / sizeof(checks[0]), argc > 1 ? argv[1] : NULL);
}
