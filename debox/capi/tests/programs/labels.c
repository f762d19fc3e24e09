/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * labels.c: triggers that ask where a call slept. The first thread that sleeps at a place finds out
 * its label; that thread's callback, too, runs before the program goes on, with the record of that
 * call.
 */
#include "checks.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SEEN_MAX 16

/* What a trigger's callbacks saw on this thread. */
struct seen {
	int calls;
	int call[SEEN_MAX];
	unsigned long long arg[SEEN_MAX], number[SEEN_MAX];
	long long ret[SEEN_MAX];
};

enum { TIMER, PIPE, NEVER, NEITHER, TRIGGERS };

static __thread volatile struct seen seen[TRIGGERS];
/* Sleeps whose place was not seen, in all processes. */
static atomic_uint *unnamed;

static int numbers[TRIGGERS] = {TIMER, PIPE, NEVER, NEITHER};

static void note(const struct debox_record *record, void *argument)
{
	volatile struct seen *of = &seen[*(int *)argument];
	int at = of->calls++ % SEEN_MAX;

	of->call[at] = record->call;
	of->arg[at] = record->args[0];
	of->number[at] = record->number;
	of->ret[at] = record->ret;
}

static void arm(const char *predicate, int number, unsigned int limit)
{
	CHECK(!debox_trigger(predicate, SIGRTMIN + 1, limit, note, &numbers[number]), "%s",
	      debox_last_error_text());
}

static void arm_all(void)
{
	arm("label == timer && wall > 1us", TIMER, 0);
	arm("label == \"pipe empty\" && class == process", PIPE, 0);
	arm("label == epoll || syscall != nanosleep && label == timer", NEVER, 0);
	arm("class == disk && label == timer || class != idle && syscall == nanosleep", NEITHER, 0);
}

static struct debox_trigger_counts counts_of(unsigned int trigger)
{
	struct debox_trigger_counts counts;

	CHECK(!debox_trigger_counts(trigger, &counts), "no trigger %u", trigger);
	return counts;
}

/*
 * In addition, sleeps whose place was not seen count as missed, for each trigger that asks for the
 * place.
 */
static void check_counts(unsigned int trigger, unsigned int fired, unsigned int missed)
{
	struct debox_trigger_counts counts = counts_of(trigger);

	CHECK(counts.fired == fired && !counts.unsent, "trigger %u fired %llu times of %u", trigger,
	      (unsigned long long)counts.fired, fired);
	CHECK(counts.missed >= missed && counts.missed <= missed + *unnamed,
	      "trigger %u missed %llu, not %u, %u unnamed", trigger,
	      (unsigned long long)counts.missed, missed, *unnamed);
}

/* The newest record of a call; a handler's return may have come after it. */
static struct debox_record newest(int call)
{
	struct debox_record records[DEBOX_HISTORY_MAX];
	int count = debox_history(records, DEBOX_HISTORY_MAX);

	for (int i = 0; i < count; i++) {
		if (records[i].call == call)
			return records[i];
	}
	CHECK(false, "no record of call %d among %d", call, count);
}

/*
 * Whether a call slept at a known place. Some virtual machines now and then hide from the probes
 * that a thread leaves the CPU: such a sleep has no stack.
 */
static bool has_slept(int call)
{
	struct debox_record record = newest(call);

	if (!record.sleeps_used)
		return false; /* a short timer may ring before the thread has left its CPU */
	if (!record.sleeps[0].stack)
		atomic_fetch_add(unnamed, 1);
	return record.sleeps[0].stack;
}

static bool nap(struct timespec *time)
{
	CHECK(!syscall(SYS_nanosleep, time, NULL), "interrupted: errno %d", errno);
	return has_slept(SYS_nanosleep);
}

/*
 * Naps, and checks that there was a callback for exactly this call, or that the nap was no sleep
 * and there was none.
 */
static bool nap_and_look(long ms)
{
	struct timespec time = sleep_of_ms(ms);
	int before = seen[TIMER].calls, at = before % SEEN_MAX;
	bool slept = nap(&time);

	CHECK(seen[TIMER].calls == before + slept, "%d callbacks after %d, slept: %d",
	      seen[TIMER].calls, before, slept);
	if (slept) {
		CHECK(seen[TIMER].call[at] == SYS_nanosleep, "call %d", seen[TIMER].call[at]);
		CHECK(seen[TIMER].arg[at] == (unsigned long)&time, "another call's argument");
		CHECK(seen[TIMER].number[at] == newest(SYS_nanosleep).number, "call %llu",
		      seen[TIMER].number[at]);
	}
	CHECK(!seen[NEVER].calls && !seen[NEITHER].calls, "%d, %d", seen[NEVER].calls,
	      seen[NEITHER].calls);
	return slept;
}

/* The same until it slept at a known place; once is nearly always enough. */
static void nap_asleep(void)
{
	while (!nap_and_look(20))
		;
}

static int ends[2];
static volatile pid_t reader;

static char state_of(pid_t tid)
{
	char path[64], line[256] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	file = fopen(path, "r");
	CHECK(file && fgets(line, sizeof(line), file), "%s", path);
	fclose(file);
	return strrchr(line, ')')[2];
}

/* Writes when the reader is asleep. Makes no call that sleeps itself. */
static void *write_to_sleeper(void *unused)
{
	while (!reader || state_of(reader) != 'S')
		sched_yield();
	CHECK(write(ends[1], "x", 1) == 1, "write");
	return unused;
}

static void read_asleep(void)
{
	char byte;

	reader = syscall(SYS_gettid);
	CHECK(syscall(SYS_read, ends[0], &byte, 1) == 1, "read");
	reader = 0;
}

/* Reads an empty pipe. Returns whether the place of its sleep is known. */
static bool read_and_look(void)
{
	int before = seen[PIPE].calls, at = before % SEEN_MAX;
	pthread_t writer;
	bool slept;

	CHECK(!pipe(ends), "pipe");
	CHECK(!pthread_create(&writer, NULL, write_to_sleeper, NULL), "thread");
	read_asleep();
	slept = has_slept(SYS_read);
	CHECK(seen[PIPE].calls == before + slept, "%d callbacks after %d", seen[PIPE].calls,
	      before);
	if (slept)
		CHECK(seen[PIPE].call[at] == SYS_read && seen[PIPE].ret[at] == 1 &&
			      seen[PIPE].arg[at] == (unsigned long)ends[0],
		      "call %d returned %lld", seen[PIPE].call[at], seen[PIPE].ret[at]);
	CHECK(!pthread_join(writer, NULL), "join");
	close(ends[0]);
	close(ends[1]);
	return slept;
}

static void read_empty(void)
{
	while (!read_and_look())
		;
}

static void first(void)
{
	struct debox_trigger_counts counts;

	arm_all();
	enable();
	nap_asleep();
	read_empty();
	nap_asleep();
	check_counts(TIMER, 2, 0);
	check_counts(PIPE, 1, 0);
	check_counts(NEVER, 0, 0);
	check_counts(NEITHER, 0, 0);
	CHECK(debox_trigger_counts(TRIGGERS, &counts) == DEBOX_ERROR_ARGUMENT, "a fifth trigger");
	CHECK(syscall(SYS_close, -1) == -1 && errno == EBADF, "errno is left alone");
}

static void thousand(void)
{
	int slept = 0;

	arm_all();
	enable();
	for (int i = 0; i < 1000; i++)
		slept += nap_and_look(1);
	CHECK(slept > 500, "%d slept", slept);
	check_counts(TIMER, slept, 0);
	check_counts(NEVER, 0, 0);
	check_counts(NEITHER, 0, 0);
}

static void *nap_often(void *slept)
{
	for (int i = 0; i < 50; i++)
		*(long *)slept += nap_and_look(2);
	return NULL;
}

static void threads(void)
{
	pthread_t thread[8];
	long slept[8] = {0}, all = 0;

	arm_all();
	enable();
	for (int i = 0; i < 8; i++)
		CHECK(!pthread_create(&thread[i], NULL, nap_often, &slept[i]), "thread");
	for (int i = 0; i < 8; i++) {
		CHECK(!pthread_join(thread[i], NULL), "join");
		all += slept[i];
	}
	CHECK(all > 200, "%ld slept", all);
	check_counts(TIMER, all, 0);
	check_counts(NEVER, 0, 0);
}

/*
 * The first call at a place may be a child's; the label that it finds out holds in all processes.
 */
static void forked(void)
{
	int status;

	arm_all();
	enable();
	if (!fork()) {
		nap_asleep();
		nap_asleep();
		read_empty();
		if (!fork()) {
			nap_asleep();
			_exit(3);
		}
		wait(&status);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3, "the grandchild: %x", status);
		CHECK(!debox_disable(), "disable");
		_exit(3);
	}
	CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 3, "the child: %x",
	      status);
	CHECK(!seen[TIMER].calls && !seen[PIPE].calls, "told of a child's call");
	nap_asleep();
	read_empty();
	check_counts(PIPE, 2, 0);
	check_counts(TIMER, 4, 0);
}

static void again(void)
{
	struct timespec time = sleep_of_ms(20);

	arm_all();
	for (int i = 0; i < 3; i++) {
		enable();
		nap_asleep();
		nap_asleep();
		check_counts(TIMER, 2, 0);
		CHECK(!debox_disable(), "disable");
		syscall(SYS_nanosleep, &time, NULL);
		CHECK(seen[TIMER].calls == 2 * i + 2, "%d callbacks", seen[TIMER].calls);
		check_counts(TIMER, 2, 0);
	}
}

static void limit(void)
{
	struct timespec time = sleep_of_ms(2);
	int slept = 0;
	unsigned long long counted;

	arm("label == timer", TIMER, 2);
	enable();
	for (int i = 0; i < 10; i++)
		slept += nap(&time);
	counted = counts_of(0).fired + counts_of(0).suppressed;
	CHECK(seen[TIMER].calls >= 2, "%d callbacks", seen[TIMER].calls);
	CHECK(counts_of(0).fired == (unsigned)seen[TIMER].calls, "%d callbacks", seen[TIMER].calls);
	CHECK(counted == (unsigned)slept, "%llu counted, %d slept", counted, slept);
	if (!getenv("DEBOX_TESTS_SLOWNESS"))
		CHECK(counts_of(0).suppressed >= 2, "the limit is not kept");
}

/*
 * A call inside malloc(), which holds a lock then: a handler that asks for memory before the call
 * has returned waits for ever.
 */
static pthread_mutex_t heap = PTHREAD_MUTEX_INITIALIZER;
static __thread volatile bool naps_inside;
static __thread volatile int asked_inside, slept_inside;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void __libc_free(void *memory);

static void lock_heap(void)
{
	struct timespec time = sleep_of_ms(5);

	if (slept_inside == 1) {
		asked_inside++; /* by the handler, which would wait for this thread */
		return;
	}
	pthread_mutex_lock(&heap);
	if (naps_inside) {
		naps_inside = false;
		slept_inside = 1;
		syscall(SYS_nanosleep, &time, NULL);
		slept_inside = 2;
	}
	pthread_mutex_unlock(&heap);
}

void *malloc(size_t size)
{
	lock_heap();
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	lock_heap();
	return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
	lock_heap();
	return __libc_realloc(memory, size);
}

void free(void *memory)
{
	lock_heap();
	__libc_free(memory);
}

static void inside_malloc(void)
{
	void *volatile memory;

	arm_all();
	enable();
	for (int i = 1; i <= 2; i++) {
		naps_inside = true;
		slept_inside = 0;
		memory = malloc(1000);
		free(memory);
		CHECK(slept_inside == 2 && !naps_inside, "malloc() is not this program's");
		CHECK(asked_inside == 0, "the handler asked for memory %d times", asked_inside);
		CHECK(seen[TIMER].calls == i, "%d callbacks after %d", seen[TIMER].calls, i);
	}
	check_counts(TIMER, 2, 0);
}

static void block(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 1);
	CHECK(!pthread_sigmask(how, &set, NULL), "the signal's mask");
}

static void blocked(void)
{
	struct timespec times[6];

	arm_all();
	enable();
	block(SIG_BLOCK);
	for (int i = 0; i < 6; i++) {
		times[i] = sleep_of_ms(20);
		while (!nap(&times[i]))
			;
	}
	CHECK(seen[TIMER].calls == 0, "%d callbacks", seen[TIMER].calls);
	block(SIG_UNBLOCK);
	CHECK(seen[TIMER].calls == 4, "%d callbacks", seen[TIMER].calls);
	for (int i = 0; i < 4; i++)
		CHECK(seen[TIMER].arg[i] == (unsigned long)&times[i], "another call for nap %d", i);
	check_counts(TIMER, 4, 2);

	/* Its record has been overwritten when the signal comes. */
	CHECK(!pipe(ends), "pipe");
	block(SIG_BLOCK);
	do {
		reader = syscall(SYS_gettid);
		if (!fork()) {
			write_to_sleeper(NULL);
			_exit(0);
		}
		read_asleep();
	} while (!has_slept(SYS_read));
	for (int i = 0; i < DEBOX_HISTORY_MAX; i++)
		syscall(SYS_getppid);
	block(SIG_UNBLOCK);
	CHECK(seen[PIPE].calls == 0, "%d callbacks", seen[PIPE].calls);
	check_counts(PIPE, 1, 3); /* two of the naps might have matched, too */
}

/* In a program without the library's handler its signal would end the program. */
static void executed(void)
{
	char *const nap[] = {"sleep", "0.05", NULL};
	int status;
	pid_t child;

	arm("label == epoll", NEVER, 0);
	arm("syscall in (nanosleep, clock_nanosleep, execve)", TIMER, 0);
	enable();
	for (int i = 0; i < 2; i++) {
		child = i ? 0 : fork();
		if (i)
			CHECK(!posix_spawnp(&child, nap[0], NULL, NULL, nap, environ), "spawn");
		if (!child) {
			execvp(nap[0], nap);
			_exit(127);
		}
		CHECK(waitpid(child, &status, 0) == child, "wait");
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "program %d: %x", i, status);
	}
	check_counts(TIMER, 0, 0);
	nap_asleep();
}

static void refused(void)
{
	struct debox_options plain = {.size = sizeof(plain), .max_threads = 16};

	CHECK(debox_trigger(
		      "label == timer && label == epoll && label == futex && label == flock && "
		      "label == timerfd && label == poll && label == \"pipe empty\" && "
		      "label == \"pipe full\" && label == \"child process\"",
		      SIGUSR1, 0, note, &numbers[0]) == DEBOX_ERROR_ARGUMENT,
	      "nine tests of labels");
	CHECK(strstr(debox_last_error_text(), "more than 8 times"), "%s", debox_last_error_text());
	arm("label == timer", TIMER, 0);
	check_counts(TIMER, 0, 0);
	CHECK(debox_enable(&plain) == DEBOX_ERROR_SYSTEM, "enabled without sleeps");
	CHECK(strstr(debox_last_error_text(), "it asks for sleeps"), "%s", debox_last_error_text());
	enable();
	nap_asleep();
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"first", first},	   {"thousand", thousand}, {"threads", threads},
		{"fork", forked},	   {"again", again},	   {"limit", limit},
		{"malloc", inside_malloc}, {"blocked", blocked},   {"refused", refused},
		{"exec", executed},
	};

	unnamed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(unnamed != MAP_FAILED, "memory");
	return run_check(checks, sizeof(checks) / sizeof(*checks), argc > 1 ? argv[1] : NULL);
}
