/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* tap.c: the program's own user tap. */
#include "checks.h"
#include "debox_2004.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

static void enable_tap(void)
{
	struct debox_options options = {
		.size = sizeof(options),
		.detail = DEBOX_DETAIL_SLEEPS,
		.tap = DEBOX_TAP_USER,
	};
	int error = debox_enable(&options);

	CHECK(error == 0, "%s: %s", debox_strerror(error), debox_last_error_text());
}

static long nap_ms(long ms)
{
	struct timespec time = sleep_of_ms(ms);

	return debox_call(SYS_nanosleep, &time, NULL);
}

static void check_outside(const struct debox_record *record)
{
	const struct debox_outside *outside = &record->outside;

	CHECK(record->budget.outside_ns == outside->handler_ns + outside->stopped_ns +
						   outside->exit_work_ns + outside->preempted_ns +
						   outside->other_ns,
	      "outside %llu", (unsigned long long)record->budget.outside_ns);
}

static void sleep_is_measured(void)
{
	struct debox_explanation explained;
	const struct debox_record *last;
	unsigned long long before, after;
	struct timespec now;

	enable_tap();
	CHECK(!debox_last(), "a record before the first call");
	syscall(SYS_getppid);
	CHECK(!debox_last(), "an ordinary call has a record");
	clock_gettime(CLOCK_MONOTONIC, &now);
	before = now.tv_sec * 1000 * MS + now.tv_nsec;
	CHECK(nap_ms(50) == 0, "nanosleep");
	clock_gettime(CLOCK_MONOTONIC, &now);
	after = now.tv_sec * 1000 * MS + now.tv_nsec;
	last = debox_last();
	CHECK(last && last->call == SYS_nanosleep && last->ret == 0, "no record");
	CHECK(last->flags == DEBOX_USER_TAP && last->abi == DEBOX_ABI_X86_64 && last->number == 1 &&
		      last->version == DEBOX_VERSION && last->size == sizeof(*last),
	      "flags %#x, number %llu", last->flags, (unsigned long long)last->number);
	CHECK(last->start_ns + 1000 >= before && last->start_ns + last->wall_ns <= after + 1000,
	      "from %lld to %lld", (long long)(last->start_ns - before),
	      (long long)(last->start_ns + last->wall_ns - after));
	CHECK(last->budget.blocked_ns >= 50 * MS && last->budget.blocked_ns < 60 * MS,
	      "blocked %llu", (unsigned long long)last->budget.blocked_ns);
	CHECK(last->budget.cpu_ns > 0 && last->budget.cpu_ns < MS, "cpu %llu",
	      (unsigned long long)last->budget.cpu_ns);
	check_sums(last);
	check_outside(last);
	CHECK(last->sleeps_used == 1 && last->sleeps[0].count == 1, "%d sites", last->sleeps_used);
	CHECK(last->sleeps[0].waker_kind == DEBOX_WAKER_HARDIRQ, "woken by %u",
	      last->sleeps[0].waker_kind);
	CHECK(last->sleeps[0].resource_kind == DEBOX_RESOURCE_TIMER, "resource %u",
	      last->sleeps[0].resource_kind);
	CHECK(debox_explain(last, 0, &explained) == 0, "%s", debox_last_error_text());
	CHECK(last == debox_last(), "explaining was recorded");
	CHECK(strstr(explained.function, "nanosleep") && !strcmp(explained.wait_class, "idle") &&
		      strstr(explained.label, "timer"),
	      "%s (%s) at %s", explained.label, explained.wait_class, explained.function);
}

static void cached_reads_do_not_sleep(void)
{
	static char buffer[4096];
	struct debox_record records[DEBOX_HISTORY_MAX];
	const struct debox_record *last;
	int fd = open("/proc/self/exe", O_RDONLY);

	enable_tap();
	CHECK(debox_call(SYS_pread64, fd, buffer, sizeof(buffer), 0L) == sizeof(buffer), "pread");
	last = debox_last();
	CHECK(last->call == SYS_pread64 && last->ret == sizeof(buffer), "ret %lld",
	      (long long)last->ret);
	CHECK(last->args[0] == (__u64)fd && last->args[1] == (__u64)buffer &&
		      last->args[2] == sizeof(buffer),
	      "arguments");
	CHECK(last->sleeps_used == 0 && last->budget.blocked_ns == 0, "a cached read slept");
	check_sums(last);

	errno = 0;
	CHECK(debox_call(SYS_write, -1, buffer, 1L) == -EBADF && errno == 0, "write");
	CHECK(debox_last()->ret == -EBADF, "ret %lld", (long long)debox_last()->ret);
	CHECK(debox_history(records, DEBOX_HISTORY_MAX) == 2 && records[1].call == SYS_pread64,
	      "history");
	CHECK(debox_pause() == 0 && debox_call(SYS_getppid) > 0, "pause");
	CHECK(debox_last()->call == SYS_write && debox_resume() == 0, "recorded while paused");
	for (long i = 0; i < 20; i++)
		debox_call(SYS_getppid, i);
	CHECK(debox_history(records, DEBOX_HISTORY_MAX) == DEBOX_HISTORY_MAX, "history");
	for (int i = 0; i < DEBOX_HISTORY_MAX; i++)
		CHECK(records[i].args[0] == (__u64)(19 - i) && records[i].number == (__u64)(22 - i),
		      "entry %d: %llu, number %llu", i, records[i].args[0], records[i].number);
	CHECK(debox_set_limits(0, 0) == 0 && nap_ms(1) == 0, "limits");
	CHECK(debox_last()->sleeps_used == 0 && debox_last()->sleeps_lost == 1, "limit 0");
	check_sums(debox_last());
	/* No such call, and one beyond every table. */
	CHECK(debox_call(100000) == -ENOSYS && debox_last()->call == 100000, "call 100000");
}

static void functions_are_wrapped(void)
{
	struct debox_slot *tapped;
	int ends[2];

	enable_tap();
	tapped = debox_call_begin(SYS_pipe2, (__u64)ends, 0, 0);
	CHECK(tapped, "no stamps");
	CHECK(pipe2(ends, 0) == 0, "pipe2");
	debox_call_end(tapped, SYS_pipe2, 0);
	CHECK(debox_last()->call == SYS_pipe2 && debox_last()->args[0] == (__u64)ends, "pipe2");
	CHECK(!debox_call_begin(SYS_fork, 0, 0, 0), "stamps around fork");
	debox_call_end(NULL, SYS_fork, 0);
	CHECK(debox_disable() == 0, "disable");
	CHECK(!debox_call_begin(SYS_read, 0, 0, 0), "stamps while disabled");
	CHECK(debox_call(SYS_getppid) == getppid(), "a call while disabled");
}

static volatile sig_atomic_t handled;

static void handle(int signal)
{
	int saved = errno;

	/* Some work, and a call of the handler's own. */
	for (volatile int i = 0; i < 1000000; i++)
		;
	debox_call(SYS_getppid, 77L);
	CHECK(debox_last()->args[0] == 77 && (debox_last()->flags & DEBOX_NESTED),
	      "in the handler: call %d, flags %#x", debox_last()->call, debox_last()->flags);
	handled = signal;
	errno = saved;
}

static void alarm_in(long us)
{
	struct itimerval timer = {.it_value = {0, us}};

	setitimer(ITIMER_REAL, &timer, NULL);
}

static void handlers_are_outside(void)
{
	struct debox_record records[2];
	struct sigaction action = {.sa_handler = handle};

	enable_tap();
	sigaction(SIGALRM, &action, NULL);
	nap_ms(1);
	alarm_in(20000);
	CHECK(nap_ms(500) == -EINTR && handled == SIGALRM, "not interrupted");
	CHECK(debox_history(records, 2) == 2, "history");
	CHECK(records[0].call == SYS_nanosleep && records[0].ret == -EINTR, "call %d",
	      records[0].call);
	CHECK(records[0].outside.handler_ns > 100000, "handler %llu",
	      (unsigned long long)records[0].outside.handler_ns);
	CHECK(records[0].budget.blocked_ns >= 15 * MS && records[0].budget.blocked_ns < 40 * MS,
	      "blocked %llu", (unsigned long long)records[0].budget.blocked_ns);
	CHECK(!(records[0].flags & DEBOX_NESTED) && records[0].sleeps_used == 1, "flags %#x",
	      records[0].flags);
	CHECK(records[1].call == SYS_getppid && records[1].args[0] == 77 &&
		      (records[1].flags & DEBOX_NESTED),
	      "the handler's call: %d, flags %#x", records[1].call, records[1].flags);
	check_sums(&records[0]);
	check_outside(&records[0]);
	check_sums(&records[1]);
}

static sigjmp_buf out;

static void jump(int signal)
{
	siglongjmp(out, signal);
}

static void jumps_end_calls(void)
{
	struct debox_record records[2];
	struct sigaction action = {.sa_handler = jump};

	enable_tap();
	sigaction(SIGALRM, &action, NULL);
	if (!sigsetjmp(out, 1)) {
		alarm_in(20000);
		nap_ms(500);
		CHECK(0, "not interrupted");
	}
	CHECK(debox_call(SYS_getppid, 5L) == getppid(), "getppid");
	CHECK(debox_history(records, 2) == 2, "history");
	CHECK(records[0].args[0] == 5 && !(records[0].flags & DEBOX_NESTED), "call %d, flags %#x",
	      records[0].call, records[0].flags);
	CHECK(records[1].call == SYS_nanosleep && records[1].ret == -EINTR, "call %d, ret %lld",
	      records[1].call, (long long)records[1].ret);
	check_sums(&records[1]);
}

static void *burn(void *stop)
{
	while (!*(volatile int *)stop)
		;
	return NULL;
}

static void on_one_cpu(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	CHECK(sched_setaffinity(0, sizeof(one), &one) == 0, "sched_setaffinity");
}

/* Two threads on one CPU: calls that are pushed off it say so. */
static void preemption_is_seen(void)
{
	static char buffer[1 << 20];
	unsigned long long preempted = 0, calls = 0;
	int fd = open("/dev/zero", O_RDONLY);
	struct timespec now, end;
	pthread_t thread;
	int stop = 0;

	enable_tap();
	on_one_cpu();
	pthread_create(&thread, NULL, burn, &stop);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += 1;
	do {
		const struct debox_record *last;

		debox_call(SYS_read, fd, buffer, sizeof(buffer));
		last = debox_last();
		check_sums(last);
		check_outside(last);
		preempted += last->budget.preempted_ns + last->outside.preempted_ns +
			     last->outside.exit_work_ns;
		calls++;
		CHECK(last->number == calls, "number %llu of %llu", last->number, calls);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end.tv_sec || now.tv_nsec < end.tv_nsec);
	stop = 1;
	pthread_join(thread, NULL);
	CHECK(preempted > 300 * MS, "preempted for %llu ns in a second", preempted);
}

static void *tap_in_thread(void *mark)
{
	for (int i = 0; i < 1000; i++) {
		debox_call(SYS_getppid, mark, (long)i);
		CHECK(debox_last()->args[0] == (__u64)mark && debox_last()->args[1] == (__u64)i,
		      "another thread's record");
		CHECK(debox_last()->number == (__u64)(i + 1), "number");
	}
	nap_ms(20); /* long enough that the timer does not ring before the thread is off the CPU */
	CHECK(debox_last()->sleeps_used == 1, "no sleep");
	return NULL;
}

static void threads_and_children_have_their_own(void)
{
	pthread_t threads[16];
	int status;
	pid_t child;

	enable_tap();
	for (long i = 0; i < 16; i++)
		pthread_create(&threads[i], NULL, tap_in_thread, (void *)(i + 1));
	for (int i = 0; i < 16; i++)
		pthread_join(threads[i], NULL);
	debox_call(SYS_getppid, 1L);
	child = fork();
	if (child == 0) {
		CHECK(!debox_last(), "the parent's record");
		nap_ms(20);
		CHECK(debox_last()->call == SYS_nanosleep && debox_last()->number == 1 &&
			      debox_last()->sleeps_used == 1,
		      "child: call %d", debox_last()->call);
		check_sums(debox_last());
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0, "child: %x", status);
	CHECK(debox_last()->args[0] == 1 && debox_last()->number == 1, "parent");
	child = vfork();
	if (child == 0) {
		debox_call(SYS_getppid, 2L);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0, "child: %x", status);
	CHECK(debox_last()->args[0] == 1, "a vfork child's record");
	debox_call(SYS_getppid, 3L);
	CHECK(debox_last()->args[0] == 3 && debox_last()->number == 2, "parent");
}

static void sessions_follow_each_other(void)
{
	for (int i = 0; i < 3; i++) {
		enable_tap();
		CHECK(!debox_last(), "an old record");
		nap_ms(1);
		CHECK(debox_last()->number == 1 && debox_last()->sleeps_used == 1, "session %d", i);
		CHECK(debox_disable() == 0 && nap_ms(1) == 0 && !debox_last(), "disable");
		enable();
		nap_ms(1);
		CHECK(debox_last()->call == SYS_nanosleep &&
			      !(debox_last()->flags & DEBOX_USER_TAP),
		      "kernel tap");
		CHECK(debox_disable() == 0, "disable");
	}
}

/*
 * The calls themselves keep the clock up to date: over seconds the parts still fit the wall time.
 */
static void the_clock_is_kept(void)
{
	const struct debox_record *last;
	struct timespec now;

	enable_tap();
	for (int i = 0; i < 20; i++) {
		sleep_ms(100);
		nap_ms(1);
		clock_gettime(CLOCK_MONOTONIC, &now);
		last = debox_last();
		CHECK(last->budget.cpu_ns > 200 && last->budget.cpu_ns < MS, "cpu %llu",
		      (unsigned long long)last->budget.cpu_ns);
		CHECK(last->start_ns + last->wall_ns <= now.tv_sec * 1000 * MS + now.tv_nsec + 500,
		      "ended in the future");
		check_sums(last);
	}
}

static DeBoxInfo info;

static void results_come_at_the_end(void)
{
	enable_tap();
	CHECK(DeBoxControl(&info, 5, 0) == 0, "%s", debox_last_error_text());
	nap_ms(20);
	CHECK(info.syscallNum == SYS_nanosleep && info.numPerSleepInfo == 1, "call %d",
	      info.syscallNum);
	CHECK(info.CallTime.callTimeval.tv_usec >= 20000 &&
		      info.CallTime.callTimeval.tv_usec < 30000,
	      "time %ld", (long)info.CallTime.callTimeval.tv_usec);
	CHECK(info.psi[0].numSleeps == 1 && strlen(info.psi[0].wmesg) > 1, "label %s",
	      info.psi[0].wmesg);
	CHECK(strstr(info.psi[0].blockingFile, "nanosleep"), "site %s", info.psi[0].blockingFile);
	errno = 7;
	CHECK(debox_call(SYS_write, -1, "", 1L) == -EBADF && errno == 7, "write");
	CHECK(info.syscallNum == SYS_write && info.numPerSleepInfo == 0, "call %d",
	      info.syscallNum);
	CHECK(DeBoxFetch() == 1 && DeBoxFetch() == 0, "fetch");
	CHECK(DeBoxControl(NULL, 0, 0) == 0, "end");
	debox_call(SYS_getppid);
	CHECK(info.syscallNum == SYS_write, "filled without a buffer");
}

static char label_in_handler[8];

static void nap_in_handler(int signal)
{
	(void)signal;
	nap_ms(1);
	memcpy(label_in_handler, info.psi[0].wmesg, sizeof(label_in_handler));
}

/* A handler may have interrupted malloc, so a site that is not known yet stays without a label. */
static void handlers_look_nothing_up(void)
{
	struct sigaction action = {.sa_handler = nap_in_handler};

	enable_tap();
	CHECK(DeBoxControl(&info, 5, 0) == 0, "%s", debox_last_error_text());
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	CHECK(!strcmp(label_in_handler, "?"), "label %s", label_in_handler);
	CHECK(DeBoxFetch() == 1 && strlen(info.psi[0].wmesg) > 1, "label %s", info.psi[0].wmesg);
	raise(SIGUSR1);
	CHECK(strlen(label_in_handler) > 1, "known, but %s", label_in_handler);
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"sleep", sleep_is_measured},
		{"reads", cached_reads_do_not_sleep},
		{"wrapped", functions_are_wrapped},
		{"handlers", handlers_are_outside},
		{"jumps", jumps_end_calls},
		{"preemption", preemption_is_seen},
		{"own", threads_and_children_have_their_own},
		{"sessions", sessions_follow_each_other},
		{"clock", the_clock_is_kept},
		{"results", results_come_at_the_end},
		{"unknown", handlers_look_nothing_up},
	};

	return run_check(checks, sizeof(checks) / sizeof(checks[0]), argc > 1 ? argv[1] : NULL);
}
