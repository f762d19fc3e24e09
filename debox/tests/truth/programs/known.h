/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * known.h: what the truth programs share. A truth program makes calls whose waiting it knows from
 * its own clock, and prints what it knows as one flat JSON object of integers on standard output.
 *
 * A known wait has two provable bounds. The waker first sees the sleeper asleep, takes stamp A,
 * lets time pass, takes stamp B and only then wakes it: the sleep lasted at least B - A. The
 * sleeper takes its own stamps around the call: the sleep lasted at most their distance. They are
 * printed as `least_ns` and `most_ns`.
 *
 * A section is measured by the scheduler's own account of the thread: wall time without CPU time
 * and without waiting for a CPU is time asleep, in nanoseconds and without help from DeBox.
 *
 * The calls made here for measuring go by names (preadv, clock_nanosleep, writev) that no program
 * measures, so that counts of the calls under test stay exact.
 */
#ifndef KNOWN_H
#define KNOWN_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MILLISECOND 1000000ULL

/* Ends the program when a step of the set-up fails: a wait that did not happen proves nothing. */
#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition))                                                                  \
			known_fail(#condition, __LINE__);                                          \
	} while (0)

static inline void known_fail(const char *what, int line)
{
	dprintf(2, "truth program: line %d: %s: %s\n", line, what, strerror(errno));
	_exit(99);
}

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static inline uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* Lets time pass under a name of its own: the programs measure nanosleep, not this. */
static inline void pass_ns(uint64_t ns)
{
	struct timespec until;
	uint64_t end = now_ns() + ns;

	until.tv_sec = (time_t)(end / 1000000000ULL);
	until.tv_nsec = (long)(end % 1000000000ULL);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

static inline pid_t own_tid(void)
{
	return (pid_t)syscall(SYS_gettid);
}

/* Reads a small file of /proc whole; returns its length. */
static inline size_t read_proc(const char *path, char *text, size_t size)
{
	struct iovec part = {text, size - 1};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	MUST(fd >= 0);
	length = preadv(fd, &part, 1, 0);
	MUST(length >= 0);
	syscall(SYS_close_range, fd, fd, 0);
	text[length] = 0;
	return (size_t)length;
}

/* R, S, D, T, Z ... of one thread. */
static inline char thread_state(pid_t pid, pid_t tid)
{
	char path[64], text[512], *after_name;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	read_proc(path, text, sizeof(text));
	after_name = strrchr(text, ')');
	MUST(after_name && after_name[1] == ' ');
	return after_name[2];
}

/* Waits until the thread is in one of `states`. */
static inline void await_state(pid_t pid, pid_t tid, const char *states)
{
	uint64_t limit = now_ns() + 20000 * MILLISECOND;

	while (!strchr(states, thread_state(pid, tid))) {
		MUST(now_ns() < limit);
		pass_ns(100000);
	}
}

/* Waits until a thread of this process sleeps in a system call. */
static inline void await_call(pid_t tid, long call)
{
	uint64_t limit = now_ns() + 20000 * MILLISECOND;
	char path[64], text[256], *end;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	do {
		MUST(now_ns() < limit);
		pass_ns(100000);
		read_proc(path, text, sizeof(text)); /* "running" if it is not asleep */
	} while (strtol(text, &end, 10) != call || end == text);
}

/*
 * Two threads, or two processes through a shared mapping, agree here that one is about to sleep:
 * it publishes its tid as its last act before the call under test.
 */
struct appointment {
	_Atomic pid_t pid, tid;
	_Atomic uint64_t least_ns, most_ns;
	_Atomic uint64_t spare[8];
};

static inline struct appointment *new_appointment(void)
{
	struct appointment *made = mmap(NULL, sizeof(*made), PROT_READ | PROT_WRITE,
					MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	MUST(made != MAP_FAILED);
	return made;
}

/* The sleeper: the call under test comes right after this. Returns the stamp before it. */
static inline uint64_t keep_appointment(struct appointment *with)
{
	pid_t pid = (pid_t)syscall(SYS_getpid), tid = own_tid();
	uint64_t before;

	atomic_store(&with->pid, pid);
	before = now_ns();
	atomic_store(&with->tid, tid);
	return before;
}

/* The waker: waits until the sleeper sleeps, then lets `ns` pass; the caller wakes it next. */
static inline void meet_and_pass(struct appointment *with, uint64_t ns)
{
	uint64_t limit = now_ns() + 20000 * MILLISECOND, asleep_at;

	while (!atomic_load(&with->tid)) {
		MUST(now_ns() < limit);
		pass_ns(100000);
	}
	await_state(atomic_load(&with->pid), atomic_load(&with->tid), "SD");
	asleep_at = now_ns();
	pass_ns(ns);
	atomic_fetch_add(&with->least_ns, now_ns() - asleep_at);
	atomic_store(&with->tid, 0);
}

/* The sleeper, right after the call. */
static inline void end_appointment(struct appointment *with, uint64_t before)
{
	atomic_fetch_add(&with->most_ns, now_ns() - before);
}

/* The scheduler's account of the calling thread. */
struct section {
	uint64_t wall_ns, cpu_ns, delay_ns, asleep_ns;
	uint64_t sleeps; /* voluntary context switches */
	uint64_t faults_minor, faults_major;
};

static inline uint64_t run_delay_ns(void)
{
	char path[64], text[128];
	unsigned long long cpu, delay;

	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", own_tid());
	read_proc(path, text, sizeof(text));
	MUST(sscanf(text, "%llu %llu", &cpu, &delay) == 2);
	return delay;
}

static inline struct section section_now(void)
{
	struct section now = {0};
	struct rusage usage;

	MUST(getrusage(RUSAGE_THREAD, &usage) == 0);
	now.sleeps = (uint64_t)usage.ru_nvcsw;
	now.faults_minor = (uint64_t)usage.ru_minflt;
	now.faults_major = (uint64_t)usage.ru_majflt;
	/* Of one moment: a wait for a CPU between them would be in some and not in others. */
	do {
		now.delay_ns = run_delay_ns();
		now.cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		now.wall_ns = now_ns();
	} while (run_delay_ns() != now.delay_ns);
	return now;
}

static inline struct section section_since(struct section start)
{
	struct section end = section_now();

	end.wall_ns -= start.wall_ns;
	end.cpu_ns -= start.cpu_ns;
	end.delay_ns -= start.delay_ns;
	end.sleeps -= start.sleeps;
	end.faults_minor -= start.faults_minor;
	end.faults_major -= start.faults_major;
	/* Without sleeps the clocks' own order may take the difference below zero. */
	end.asleep_ns = end.wall_ns > end.cpu_ns + end.delay_ns
				? end.wall_ns - end.cpu_ns - end.delay_ns
				: 0;
	return end;
}

/* The facts, gathered in memory and written by one call at the end. */
static char known_text[16384];
static size_t known_length;
static struct {
	uint64_t faults_minor, faults_major, cpu_ns, delay_ns;
} known_before_main;

static inline void fact(const char *name, uint64_t value)
{
	int length = snprintf(known_text + known_length, sizeof(known_text) - known_length,
			      "%s\"%s\":%llu", known_length ? "," : "{", name,
			      (unsigned long long)value);

	MUST(length > 0 && known_length + (size_t)length < sizeof(known_text) - 2);
	known_length += (size_t)length;
}

static inline void fact_section(struct section section)
{
	fact("section_wall_ns", section.wall_ns);
	fact("section_cpu_ns", section.cpu_ns);
	fact("section_delay_ns", section.delay_ns);
	fact("section_asleep_ns", section.asleep_ns);
	fact("section_sleeps", section.sleeps);
	fact("section_faults_minor", section.faults_minor);
	fact("section_faults_major", section.faults_major);
}

static inline void fact_appointment(struct appointment *with)
{
	fact("least_ns", atomic_load(&with->least_ns));
	fact("most_ns", atomic_load(&with->most_ns));
}

/*
 * First thing in main: what happened before is the loader's, and older still that of the process
 * that became the program by execve. How much of it is in a report is not the program's to know.
 */
static inline void facts_start(void)
{
	struct rusage usage;

	MUST(getrusage(RUSAGE_SELF, &usage) == 0);
	known_before_main.faults_minor = (uint64_t)usage.ru_minflt;
	known_before_main.faults_major = (uint64_t)usage.ru_majflt;
	known_before_main.delay_ns = run_delay_ns();
	known_before_main.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static inline uint64_t timeval_ns(struct timeval time)
{
	return (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_usec * 1000ULL;
}

/* Last thing in main, when threads have been joined and children waited for. */
static inline void facts_end(void)
{
	struct rusage own, children;
	struct iovec part;

	getrusage(RUSAGE_SELF, &own);
	getrusage(RUSAGE_CHILDREN, &children);
	fact("pid", (uint64_t)syscall(SYS_getpid));
	fact("faults_minor_before_main", known_before_main.faults_minor);
	fact("faults_major_before_main", known_before_main.faults_major);
	fact("cpu_ns_before_main", known_before_main.cpu_ns);
	fact("main_delay_ns_before_main", known_before_main.delay_ns);
	fact("faults_minor", (uint64_t)(own.ru_minflt + children.ru_minflt));
	fact("faults_major", (uint64_t)(own.ru_majflt + children.ru_majflt));
	fact("main_delay_ns", run_delay_ns());
	fact("preemptions", (uint64_t)(own.ru_nivcsw + children.ru_nivcsw));
	fact("cpu_ns", clock_ns(CLOCK_PROCESS_CPUTIME_ID) + timeval_ns(children.ru_utime) +
			       timeval_ns(children.ru_stime));
	known_text[known_length++] = '}';
	known_text[known_length++] = '\n';
	part.iov_base = known_text;
	part.iov_len = known_length;
	MUST(writev(1, &part, 1) == (ssize_t)known_length);
}

static inline uint64_t argument(int argc, char **argv, int index, uint64_t otherwise)
{
	return argc > index ? strtoull(argv[index], NULL, 10) : otherwise;
}

#endif
