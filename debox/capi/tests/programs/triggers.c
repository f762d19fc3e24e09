/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* triggers.c: callbacks run before the program goes on after the call that they are for. */
#include <pthread.h>
#include <signal.h>
#include <sys/types.h>

#include "checks.h"

static volatile int slow_seen, errors_seen;
static volatile pid_t seen_by;
static volatile unsigned long long seen_wall_ns;
static volatile int seen_call;

static void on_slow(const struct debox_record *record, void *argument)
{
	seen_call = record->call;
	seen_wall_ns = record->wall_ns;
	seen_by = (pid_t)syscall(SYS_gettid);
	*(volatile int *)argument += 1;
}

static void on_error(const struct debox_record *record, void *argument)
{
	CHECK(record->ret == -EBADF, "it returned %lld", (long long)record->ret);
	*(volatile int *)argument += 1;
}

static long nap(long ns)
{
	struct timespec time = {.tv_nsec = ns};

	return syscall(SYS_nanosleep, &time, NULL);
}

static void *napping(void *unused)
{
	(void)unused;
	for (int i = 0; i < 5; i++) {
		int before = slow_seen;

		CHECK(nap(3 * MS) == 0, "interrupted");
		CHECK(slow_seen == before + 1, "%d after %d", slow_seen, before);
		CHECK(seen_by == (pid_t)syscall(SYS_gettid), "by another thread");
	}
	return NULL;
}

static void refuse(const char *predicate, int signal, int error, const char *words)
{
	int got = debox_trigger(predicate, signal, 0, on_slow, (void *)&slow_seen);

	CHECK(got == error, "%s: %d", predicate, got);
	CHECK(strstr(debox_last_error_text(), words), "%s", debox_last_error_text());
}

int main(void)
{
	struct debox_options user = {.size = sizeof(user), .tap = DEBOX_TAP_USER};
	pthread_t thread;
	sigset_t set;

	refuse("wal > 1ms", SIGUSR1, DEBOX_ERROR_ARGUMENT, "Did you mean `wall`?");
	refuse("wall > 1ms", SIGKILL, DEBOX_ERROR_ARGUMENT, "signal");
	refuse("wall > 1ms", 99, DEBOX_ERROR_ARGUMENT, "signal");
	CHECK(!debox_trigger("syscall == nanosleep && blocked > 1ms", SIGRTMIN + 1, 0, on_slow,
			     (void *)&slow_seen),
	      "%s", debox_last_error_text());
	CHECK(!debox_trigger("syscall == close && error == EBADF", SIGRTMIN + 1, 0, on_error,
			     (void *)&errors_seen),
	      "%s", debox_last_error_text());
	CHECK(debox_enable(&user) == DEBOX_ERROR_UNSUPPORTED, "%s", debox_last_error_text());
	enable();
	refuse("wall > 1ms", SIGUSR1, DEBOX_ERROR_ENABLED, "already");

	napping(NULL);
	CHECK(seen_call == SYS_nanosleep, "%d", seen_call);
	CHECK(seen_wall_ns >= 3 * MS, "%llu", seen_wall_ns);
	CHECK(!pthread_create(&thread, NULL, napping, NULL), "thread");
	CHECK(!pthread_join(thread, NULL), "join");
	CHECK(slow_seen == 10 && errors_seen == 0, "%d, %d", slow_seen, errors_seen);

	CHECK(syscall(SYS_close, -1) == -1 && errno == EBADF, "errno is left alone");
	CHECK(errors_seen == 1 && slow_seen == 10, "%d, %d", errors_seen, slow_seen);

	CHECK(!debox_pause(), "pause");
	nap(3 * MS);
	CHECK(slow_seen == 10, "paused: %d", slow_seen);
	CHECK(!debox_resume(), "resume");

	/* Blocked: the callback runs when the thread unblocks the signal, once for both calls. */
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 1);
	CHECK(!sigprocmask(SIG_BLOCK, &set, NULL), "block");
	nap(3 * MS);
	nap(3 * MS);
	CHECK(slow_seen == 10, "blocked: %d", slow_seen);
	CHECK(!sigprocmask(SIG_UNBLOCK, &set, NULL), "unblock");
	CHECK(slow_seen == 11, "unblocked: %d", slow_seen);

	CHECK(!debox_disable(), "disable");
	nap(3 * MS);
	CHECK(slow_seen == 11, "disabled: %d", slow_seen);
	return 0;
}
