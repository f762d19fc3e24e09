/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* checks.h: what the check programs share. A failed check ends the program with a line that says
 * why. */
#ifndef CHECKS_H
#define CHECKS_H

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "debox.h"

#define MS 1000000ULL

#define CHECK(condition, ...)                                                                      \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);            \
			fprintf(stderr, __VA_ARGS__);                                              \
			fprintf(stderr, "\n");                                                     \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

struct check {
	const char *name;
	void (*run)(void);
};

static inline void enable(void)
{
	int error = debox_enable(NULL);

	CHECK(error == 0, "%s: %s", debox_strerror(error), debox_last_error_text());
}

static inline unsigned long long parts_of(const struct debox_record *record)
{
	const struct debox_budget *budget = &record->budget;

	return budget->cpu_ns + budget->blocked_ns + budget->runqueue_ns + budget->preempted_ns +
	       budget->irq_ns + budget->outside_ns;
}

static inline void check_sums(const struct debox_record *record)
{
	CHECK(parts_of(record) == record->wall_ns, "call %d: parts %llu, wall %llu", record->call,
	      parts_of(record), (unsigned long long)record->wall_ns);
}

/*
 * Emulated processors take turns: a timer of a millisecond may ring before the thread that set it
 * has left its CPU. So it is longer there.
 */
static inline struct timespec sleep_of_ms(long ms)
{
	const char *slowness = getenv("DEBOX_TESTS_SLOWNESS");

	if (ms < 10 && slowness)
		ms *= atol(slowness);
	return (struct timespec){ms / 1000, ms % 1000 * 1000000};
}

static inline void sleep_ms(long ms)
{
	struct timespec time = sleep_of_ms(ms);

	syscall(SYS_nanosleep, &time, NULL);
}

static inline int run_check(const struct check *checks, int count, const char *name)
{
	for (int i = 0; i < count; i++) {
		if (name && !strcmp(checks[i].name, name)) {
			checks[i].run();
			return 0;
		}
	}
	fprintf(stderr, "no such check\n");
	return 2;
}

#endif
