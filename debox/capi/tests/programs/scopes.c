/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * scopes.c: what a thread did between two points, compared with what is known and with other
 * accounts.
 */
#include "checks.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

static unsigned long long clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000 * MS + now.tv_nsec;
}

/* The scheduler's own account of this thread: time on a CPU, and time waiting for one. */
static void schedstat(unsigned long long *ran, unsigned long long *waited)
{
	char text[128];
	int fd = open("/proc/thread-self/schedstat", O_RDONLY);
	ssize_t length = read(fd, text, sizeof(text) - 1);

	CHECK(length > 0, "schedstat");
	text[length] = 0;
	CHECK(sscanf(text, "%llu %llu", ran, waited) == 2, "schedstat: %s", text);
	close(fd);
}

static unsigned long long sum_of(const struct debox_budget *budget)
{
	return budget->cpu_ns + budget->blocked_ns + budget->runqueue_ns + budget->preempted_ns +
	       budget->irq_ns + budget->outside_ns;
}

static void begin(struct debox_scope *scope, unsigned int flags)
{
	int error = debox_scope_begin(scope, flags);

	CHECK(error == 0, "%s", debox_strerror(error));
}

static struct debox_sums end(const struct debox_scope *scope)
{
	struct debox_sums sums;
	int error = debox_scope_end(scope, &sums);

	CHECK(error == 0, "%s", debox_strerror(error));
	CHECK(sum_of(&sums.budget) == sums.wall_ns, "parts %llu, wall %llu", sum_of(&sums.budget),
	      (unsigned long long)sums.wall_ns);
	CHECK(sums.in_calls.cpu_ns <= sums.budget.cpu_ns &&
		      sums.in_calls.blocked_ns <= sums.budget.blocked_ns,
	      "more in calls than in all");
	return sums;
}

static void enable_with(unsigned int detail, unsigned int tap)
{
	struct debox_options options = {.size = sizeof(options), .detail = detail, .tap = tap};
	int error = debox_enable(&options);

	CHECK(error == 0, "%s: %s", debox_strerror(error), debox_last_error_text());
}

/* Far more calls than there are records, none lost and none added; the clocks agree. */
static void counts_are_exact(void)
{
	unsigned long long before, first, last, after, cpu;
	struct debox_scope scope;
	struct debox_sums sums;

	enable();
	for (int round = 0; round < 3; round++) {
		cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID); /* a call */
		before = clock_ns(CLOCK_MONOTONIC);
		begin(&scope, 0);
		first = clock_ns(CLOCK_MONOTONIC);
		for (int i = 0; i < 100000; i++)
			syscall(SYS_getppid);
		last = clock_ns(CLOCK_MONOTONIC);
		sums = end(&scope);
		after = clock_ns(CLOCK_MONOTONIC);
		cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
		CHECK(sums.calls == 100000, "%llu calls", (unsigned long long)sums.calls);
		CHECK(sums.wall_ns >= last - first && sums.wall_ns <= after - before,
		      "wall %llu, from %llu to %llu", (unsigned long long)sums.wall_ns,
		      last - first, after - before);
		/* It includes interrupts, which the kernel may leave out of its own figure. */
		CHECK(sums.budget.cpu_ns + cpu / 10 + 10 * MS > cpu &&
			      sums.budget.cpu_ns < cpu + cpu / 2 + 50 * MS,
		      "CPU %llu, the kernel says %llu", (unsigned long long)sums.budget.cpu_ns,
		      cpu);
		CHECK(sums.in_calls.cpu_ns > sums.wall_ns / 100 &&
			      sums.budget.cpu_ns > sums.in_calls.cpu_ns,
		      "kernel %llu of %llu", (unsigned long long)sums.in_calls.cpu_ns,
		      (unsigned long long)sums.budget.cpu_ns);
		CHECK(!sums.flags, "flags %x", sums.flags);
	}
	/* An empty scope has empty sums. */
	begin(&scope, 0);
	sums = end(&scope);
	CHECK(sums.calls == 0 && sums.sleeps == 0 && sums.in_calls.cpu_ns == 0, "%llu calls",
	      (unsigned long long)sums.calls);
	/* Scopes need no records. */
	CHECK(debox_pause() == 0, "pause");
	begin(&scope, 0);
	for (int i = 0; i < 1000; i++)
		syscall(SYS_getppid);
	sums = end(&scope);
	CHECK(sums.calls == 1000, "%llu calls while paused", (unsigned long long)sums.calls);
}

static void sleeps_are_measured(void)
{
	struct debox_scope scope;
	struct debox_sums sums;

	enable();
	begin(&scope, 0);
	for (int i = 0; i < 20; i++)
		sleep_ms(10);
	sums = end(&scope);
	CHECK(sums.calls == 20 && sums.sleeps >= 20, "%llu calls, %llu sleeps",
	      (unsigned long long)sums.calls, (unsigned long long)sums.sleeps);
	/* A timer does not ring earlier; what comes after it is a wait for a CPU. */
	CHECK(sums.budget.blocked_ns + sums.budget.runqueue_ns + sums.unseen_ns +
			      sums.budget.cpu_ns >=
		      200 * MS,
	      "blocked %llu", (unsigned long long)sums.budget.blocked_ns);
	/* It may lose its CPU after the timer was set and before it sleeps. */
	CHECK(sums.unseen || sums.budget.blocked_ns + sums.budget.preempted_ns >= 199 * MS,
	      "blocked %llu", (unsigned long long)sums.budget.blocked_ns);
	CHECK(sums.budget.blocked_ns < 2000 * MS, "blocked %llu",
	      (unsigned long long)sums.budget.blocked_ns);
	CHECK(sums.in_calls.blocked_ns == sums.budget.blocked_ns, "asleep outside of calls: %llu",
	      (unsigned long long)(sums.budget.blocked_ns - sums.in_calls.blocked_ns));
}

static char *pages;
static long page_size;
static int faults;

/* Provides each page that is asked for, 30 ms later. */
static void *serve_faults(void *unused)
{
	struct uffd_msg message;

	while (read(faults, &message, sizeof(message)) == sizeof(message)) {
		struct uffdio_zeropage zero = {
			.range = {message.arg.pagefault.address & -page_size, page_size},
		};

		if (message.event != UFFD_EVENT_PAGEFAULT)
			break;
		sleep_ms(30);
		CHECK(ioctl(faults, UFFDIO_ZEROPAGE, &zero) == 0, "a page");
	}
	return unused;
}

/* A fault of the program's own code sleeps, outside of any call. */
static void faults_between_calls_are_measured(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register area = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	struct debox_scope scope;
	struct debox_sums sums;
	pthread_t thread;

	page_size = sysconf(_SC_PAGESIZE);
	faults = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (faults < 0) {
		fprintf(stderr, "SKIPPED faults that sleep: no userfaultfd\n");
		return;
	}
	CHECK(ioctl(faults, UFFDIO_API, &api) == 0, "userfaultfd");
	pages = mmap(NULL, 4 * page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	area.range.start = (__u64)pages;
	area.range.len = 4 * page_size;
	CHECK(ioctl(faults, UFFDIO_REGISTER, &area) == 0, "userfaultfd");
	enable();
	CHECK(pthread_create(&thread, NULL, serve_faults, NULL) == 0, "thread");
	begin(&scope, 0);
	for (int i = 0; i < 4; i++) {
		((volatile char *)pages)[i * page_size] = 1;
		/* Known at once, not at the next call. */
		sums = end(&scope);
		CHECK(sums.calls == 0, "%llu calls", (unsigned long long)sums.calls);
		CHECK(sums.unseen || sums.budget.blocked_ns >= (i + 1) * 29 * MS,
		      "%d: blocked %llu", i, (unsigned long long)sums.budget.blocked_ns);
		CHECK(sums.budget.blocked_ns < (i + 1) * 1000 * MS, "%d: blocked %llu", i,
		      (unsigned long long)sums.budget.blocked_ns);
		CHECK(sums.in_calls.blocked_ns == 0 && sums.sleeps >= (__u64)i + 1, "%llu sleeps",
		      (unsigned long long)sums.sleeps);
	}
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	CHECK(sched_setaffinity(0, sizeof(set), &set) == 0, "pin");
}

static atomic_int stop;

static void *compete(void *unused)
{
	pin(sched_getcpu());
	while (!stop)
		;
	return unused;
}

/* Two threads want one CPU, and neither makes a call. */
static void preemption_is_known_at_once(void)
{
	unsigned long long ran, waited, ran_after, waited_after, until;
	struct debox_scope scope, outer;
	struct debox_sums sums, all;
	pthread_t thread;

	pin(sched_getcpu());
	enable();
	CHECK(pthread_create(&thread, NULL, compete, NULL) == 0, "thread");
	sleep_ms(20);
	begin(&outer, 0);
	schedstat(&ran, &waited);
	begin(&scope, 0);
	until = clock_ns(CLOCK_MONOTONIC) + 400 * MS;
	while (clock_ns(CLOCK_MONOTONIC) < until)
		;
	sums = end(&scope);
	schedstat(&ran_after, &waited_after);
	all = end(&outer);
	stop = 1;
	pthread_join(thread, NULL);
	waited_after -= waited;
	ran_after -= ran;
	CHECK(sums.calls == 0 && sums.wall_ns >= 400 * MS, "%llu calls",
	      (unsigned long long)sums.calls);
	CHECK(sums.in_calls.cpu_ns == 0, "in calls");
	/* About half of it; on a machine that others use, more. */
	CHECK(sums.unseen_ns || sums.budget.preempted_ns > 100 * MS, "preempted %llu",
	      (unsigned long long)sums.budget.preempted_ns);
	/* The scheduler's account was read outside of the inner scope and inside the outer one. */
	CHECK(sums.budget.preempted_ns <= waited_after + waited_after / 20 + 10 * MS &&
		      all.budget.preempted_ns + all.budget.runqueue_ns + all.unseen_ns +
				      waited_after / 20 + 10 * MS >=
			      waited_after,
	      "waited %llu to %llu, the scheduler says %llu",
	      (unsigned long long)sums.budget.preempted_ns,
	      (unsigned long long)(all.budget.preempted_ns + all.budget.runqueue_ns), waited_after);
	CHECK(sums.budget.cpu_ns <= ran_after + sums.unseen_ns + ran_after / 10 + 50 * MS &&
		      all.budget.cpu_ns + ran_after / 20 + 10 * MS >= ran_after,
	      "ran %llu to %llu, the scheduler says %llu", (unsigned long long)sums.budget.cpu_ns,
	      (unsigned long long)all.budget.cpu_ns, ran_after);
}

static struct debox_scope of_another;

static void *end_anothers(void *unused)
{
	struct debox_scope own;
	struct debox_sums sums;

	CHECK(debox_scope_end(&of_another, &sums) == DEBOX_ERROR_OTHER_THREAD, "another's scope");
	begin(&own, 0);
	for (int i = 0; i < 1000; i++)
		syscall(SYS_getppid);
	sums = end(&own);
	CHECK(sums.calls == 1000, "%llu calls", (unsigned long long)sums.calls);
	return unused;
}

static void *begin_and_leave(void *unused)
{
	begin(&of_another, 0);
	return unused;
}

static void threads_have_their_own(void)
{
	struct debox_sums sums;
	pthread_t threads[4];

	enable();
	begin(&of_another, 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, end_anothers, NULL) == 0, "thread");
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	sums = end(&of_another);
	CHECK(sums.calls < 200, "%llu calls are not only this thread's",
	      (unsigned long long)sums.calls);
	/* A thread that has ended; the next one may well have its place and its number. */
	pthread_create(&threads[0], NULL, begin_and_leave, NULL);
	pthread_join(threads[0], NULL);
	pthread_create(&threads[0], NULL, end_anothers, NULL);
	pthread_join(threads[0], NULL);
}

static void forked_children_begin_anew(void)
{
	struct debox_scope scope, own;
	struct debox_sums sums;
	int status;
	pid_t child;

	enable();
	begin(&scope, 0);
	child = fork();
	if (!child) {
		CHECK(debox_scope_end(&scope, &sums) == DEBOX_ERROR_INTERRUPTED,
		      "the parent's scope");
		begin(&own, 0);
		syscall(SYS_getppid);
		sleep_ms(10);
		sums = end(&own);
		CHECK(sums.calls == 2 && sums.budget.blocked_ns > 9 * MS, "%llu calls",
		      (unsigned long long)sums.calls);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0, "child: %x", status);
	sums = end(&scope);
	CHECK(sums.calls >= 2 && sums.budget.blocked_ns > 5 * MS, "waited %llu",
	      (unsigned long long)sums.budget.blocked_ns);
}

static void scopes_nest(void)
{
	struct debox_sums all, first, second, again;
	struct debox_scope outer, inner;

	enable();
	begin(&outer, 0);
	begin(&inner, 0);
	for (int i = 0; i < 100; i++)
		syscall(SYS_getppid);
	first = end(&inner);
	begin(&inner, 0);
	sleep_ms(10);
	second = end(&inner);
	all = end(&outer);
	CHECK(first.calls == 100 && second.calls == 1 && all.calls == 101, "%llu, %llu of %llu",
	      (unsigned long long)first.calls, (unsigned long long)second.calls,
	      (unsigned long long)all.calls);
	CHECK(first.wall_ns + second.wall_ns <= all.wall_ns, "wall");
	CHECK(first.budget.blocked_ns + second.budget.blocked_ns == all.budget.blocked_ns ||
		      all.unseen,
	      "blocked");
	again = end(&outer);
	CHECK(again.wall_ns >= all.wall_ns && again.calls == 101, "asked again");
}

static void faults_are_counted(void)
{
	struct debox_scope scope, all;
	struct debox_sums sums;
	char *area;

	page_size = sysconf(_SC_PAGESIZE);
	area = mmap(NULL, 300 * page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	madvise(area, 300 * page_size, MADV_NOHUGEPAGE);
	enable();
	begin(&scope, 0);
	begin(&all, DEBOX_SCOPE_ALL_FAULTS);
	for (int i = 0; i < 200; i++)
		((volatile char *)area)[i * page_size] = 1;
	sums = end(&all);
	CHECK(sums.calls == 0, "its own calls are counted: %llu", (unsigned long long)sums.calls);
	CHECK(sums.faults_minor >= 200 && sums.faults_minor < 250, "%llu faults",
	      (unsigned long long)sums.faults_minor);
	CHECK(sums.flags == DEBOX_SUMS_ALL_FAULTS, "flags %x", sums.flags);
	sums = end(&scope);
	CHECK(sums.faults_minor <= 2 && sums.calls == 2, "%llu faults in calls",
	      (unsigned long long)sums.faults_minor);
	CHECK(debox_scope_begin(&scope, 0) == 0, "begin");
	{
		int zero = open("/dev/zero", O_RDONLY);
		CHECK(read(zero, area + 200 * page_size, 100 * page_size) == 100 * page_size,
		      "read");
		close(zero);
	}
	sums = end(&scope);
	CHECK(sums.faults_minor >= 100 && sums.faults_minor < 110, "%llu faults in calls",
	      (unsigned long long)sums.faults_minor);
}

static atomic_ulong handled;

static void sum_up(int signal)
{
	static struct debox_scope scope;
	int saved = errno;

	(void)signal;
	if (handled)
		end(&scope);
	begin(&scope, 0);
	syscall(SYS_getppid);
	CHECK(end(&scope).calls == 1, "in the handler");
	handled++;
	errno = saved;
}

/* A signal handler, or a switch, may come between any two of the loads. */
static void readings_are_whole(void)
{
	struct sigaction action = {.sa_handler = sum_up};
	struct itimerval often = {{0, 200}, {0, 200}};
	unsigned long long until, scopes = 0;
	struct debox_scope scope;
	sigset_t alarms;
	pthread_t thread;

	pin(sched_getcpu());
	enable();
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarms, NULL); /* they are for this thread only */
	CHECK(pthread_create(&thread, NULL, compete, NULL) == 0, "thread");
	pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	until = clock_ns(CLOCK_MONOTONIC) + 1000 * MS;
	while (clock_ns(CLOCK_MONOTONIC) < until) {
		unsigned long long before = clock_ns(CLOCK_MONOTONIC), after;
		struct debox_sums sums;

		begin(&scope, 0);
		if (scopes % 3 == 0)
			syscall(SYS_getppid);
		sums = end(&scope);
		after = clock_ns(CLOCK_MONOTONIC);
		CHECK(sums.wall_ns <= after - before, "wall %llu of %llu",
		      (unsigned long long)sums.wall_ns, after - before);
		scopes++;
	}
	setitimer(ITIMER_REAL, &(struct itimerval){}, NULL);
	stop = 1;
	pthread_join(thread, NULL);
	CHECK(scopes > 1000 && handled > 10, "%llu scopes, %lu signals", scopes, handled);
}

static void interrupts_are_measured(void)
{
	unsigned long long until, irq = 0;
	struct debox_scope scope;
	struct debox_sums sums;

	enable_with(DEBOX_DETAIL_SLEEPS | DEBOX_DETAIL_IRQ, DEBOX_TAP_KERNEL);
	begin(&scope, 0);
	until = clock_ns(CLOCK_MONOTONIC) + 300 * MS;
	while (clock_ns(CLOCK_MONOTONIC) < until)
		;
	sums = end(&scope);
	irq = sums.budget.irq_ns;
	CHECK(sums.flags == DEBOX_SUMS_IRQ_MEASURED && sums.calls == 0, "flags %x", sums.flags);
	CHECK(irq > 0 && irq < sums.wall_ns / 2, "%llu ns of interrupts", irq);
}

static void errors_are_told(void)
{
	struct debox_scope scope = {};
	struct debox_sums sums;

	CHECK(debox_scope_end(&scope, &sums) == DEBOX_ERROR_ARGUMENT, "never begun");
	CHECK(debox_scope_begin(NULL, 0) == DEBOX_ERROR_ARGUMENT, "no scope");
	CHECK(debox_scope_begin(&scope, 0) == DEBOX_ERROR_NOT_ENABLED, "not enabled");
	CHECK(debox_scope_end(&scope, &sums) == DEBOX_ERROR_NOT_ENABLED, "not enabled");
	enable();
	CHECK(debox_scope_begin(&scope, 6) == DEBOX_ERROR_ARGUMENT, "flags");
	begin(&scope, 0);
	CHECK(debox_scope_end(&scope, NULL) == DEBOX_ERROR_ARGUMENT, "no room");
	CHECK(debox_disable() == 0, "disable");
	CHECK(debox_scope_end(&scope, &sums) == DEBOX_ERROR_INTERRUPTED, "disabled");
	enable();
	CHECK(debox_scope_end(&scope, &sums) == DEBOX_ERROR_INTERRUPTED, "enabled anew");
	begin(&scope, 0);
	end(&scope);
	CHECK(debox_disable() == 0, "disable");
}

/* The process's own user tap: the calls that it sees, and the time of the whole thread. */
static void the_user_tap_sums_up(void)
{
	struct timespec time = {0, 20 * MS};
	struct debox_scope scope;
	struct debox_sums sums;

	enable_with(DEBOX_DETAIL_SLEEPS, DEBOX_TAP_USER);
	begin(&scope, 0);
	for (int i = 0; i < 100000; i++)
		debox_call(SYS_getppid);
	sums = end(&scope);
	CHECK(sums.calls == 100000 && (sums.flags & DEBOX_SUMS_USER_TAP), "%llu calls",
	      (unsigned long long)sums.calls);
	CHECK(sums.in_calls.cpu_ns > sums.wall_ns / 100 && sums.in_calls.cpu_ns < sums.wall_ns,
	      "in calls %llu of %llu", (unsigned long long)sums.in_calls.cpu_ns,
	      (unsigned long long)sums.wall_ns);
	begin(&scope, 0);
	debox_call(SYS_nanosleep, &time, NULL);
	sums = end(&scope);
	CHECK(sums.calls == 1 && (sums.sleeps >= 1 || sums.unseen), "%llu calls, %llu sleeps",
	      (unsigned long long)sums.calls, (unsigned long long)sums.sleeps);
	CHECK(sums.unseen ||
		      (sums.budget.blocked_ns > 19 * MS && sums.in_calls.blocked_ns > 19 * MS),
	      "blocked %llu", (unsigned long long)sums.budget.blocked_ns);
	begin(&scope, 0);
	syscall(SYS_nanosleep, &time, NULL); /* not seen as a call */
	sums = end(&scope);
	CHECK(sums.calls == 0 && sums.sleeps >= 1 && sums.in_calls.blocked_ns == 0, "%llu calls",
	      (unsigned long long)sums.calls);
	CHECK(sums.unseen || sums.budget.blocked_ns > 19 * MS, "blocked %llu",
	      (unsigned long long)sums.budget.blocked_ns);
}

/* Under `debox run --tap user`: ordinary calls of libc. */
static void the_running_session_is_joined(void)
{
	struct timespec time = {0, 20 * MS};
	struct debox_scope scope;
	struct debox_sums sums;

	enable();
	begin(&scope, 0);
	for (int i = 0; i < 1000; i++)
		getppid();
	CHECK(nanosleep(&time, NULL) == 0, "nanosleep");
	sums = end(&scope);
	CHECK((sums.flags & DEBOX_SUMS_USER_TAP) && sums.calls >= 1, "%llu calls",
	      (unsigned long long)sums.calls);
	CHECK(sums.unseen ||
		      (sums.budget.blocked_ns > 19 * MS && sums.in_calls.blocked_ns > 19 * MS),
	      "blocked %llu", (unsigned long long)sums.budget.blocked_ns);
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"counts", counts_are_exact},
		{"sleeps", sleeps_are_measured},
		{"faults", faults_between_calls_are_measured},
		{"preemption", preemption_is_known_at_once},
		{"threads", threads_have_their_own},
		{"fork", forked_children_begin_anew},
		{"nested", scopes_nest},
		{"counted_faults", faults_are_counted},
		{"whole", readings_are_whole},
		{"interrupts", interrupts_are_measured},
		{"errors", errors_are_told},
		{"tap", the_user_tap_sums_up},
		{"joined", the_running_session_is_joined},
	};

	return run_check(checks, sizeof(checks) / sizeof(*checks), argc > 1 ? argv[1] : NULL);
}
