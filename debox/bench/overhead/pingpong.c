/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * pingpong: two processes that wake each other in turn.  Usage: pingpong RESULT SECONDS
 *
 * A round trip is two sleeps. On one CPU every sleep is certain, because the other side runs only
 * when this one has gone to sleep; SCHED_BATCH ensures that a wake-up does not preempt the waking
 * side. The first round trip is reported separately, because a recorder then sees its stacks for
 * the first time.
 */
#include "measure.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATCH 200
#define PARTNER_SETTLES_US 20000 /* until the partner is asleep, before the first round trip */

struct table {
	int there[2], back[2]; /* pipes */
	int *ball;	       /* futex word: whose turn it is */
};

enum { MINE, THEIRS };

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("sched_setaffinity");
}

static void schedule_as(int policy)
{
	struct sched_param none = {0};

	if (sched_setscheduler(0, policy, &none))
		fail("sched_setscheduler");
}

static void pipe_round_trips(void *context, int count)
{
	struct table *table = context;
	char byte = 0;

	while (count--) {
		if (write(table->there[1], &byte, 1) != 1 || read(table->back[0], &byte, 1) != 1)
			fail("pipe");
	}
}

static void pipe_partner(struct table *table)
{
	char byte;

	while (read(table->there[0], &byte, 1) == 1) {
		if (write(table->back[1], &byte, 1) != 1)
			break;
	}
}

static void wait_while(int *ball, int turn)
{
	while (__atomic_load_n(ball, __ATOMIC_ACQUIRE) == turn)
		syscall(SYS_futex, ball, FUTEX_WAIT, turn, NULL, NULL, 0);
}

static void pass(int *ball, int turn)
{
	__atomic_store_n(ball, turn, __ATOMIC_RELEASE);
	syscall(SYS_futex, ball, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void futex_round_trips(void *context, int count)
{
	struct table *table = context;

	while (count--) {
		pass(table->ball, THEIRS);
		wait_while(table->ball, THEIRS);
	}
}

static void futex_partner(struct table *table)
{
	for (;;) {
		wait_while(table->ball, MINE);
		pass(table->ball, MINE);
	}
}

static long switches(int who)
{
	struct rusage usage;

	getrusage(who, &usage);
	return usage.ru_nvcsw;
}

/* Plays one game and reports it under `name`. */
static void play(FILE *result, const char *name, double seconds, struct table *table,
		 operations round_trips, void (*partner)(struct table *), int cpu, int partner_cpu)
{
	long made, slept = switches(RUSAGE_SELF) + switches(RUSAGE_CHILDREN);
	uint64_t from;
	pid_t pid;

	pin(cpu);
	schedule_as(cpu == partner_cpu ? SCHED_BATCH : SCHED_OTHER);
	pid = fork();
	if (pid < 0)
		fail("fork");
	if (pid == 0) {
		pin(partner_cpu);
		partner(table);
		_exit(0);
	}
	usleep(PARTNER_SETTLES_US);
	from = now_ns();
	round_trips(table, 1);
	fprintf(result, "value %s first %llu\n", name, (unsigned long long)(now_ns() - from));
	made = 1 + measure(result, name, seconds, BATCH, round_trips, table);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	slept = switches(RUSAGE_SELF) + switches(RUSAGE_CHILDREN) - slept;
	fprintf(result, "value %s sleeps %.3f\n", name, (double)slept / made);
	if (round_trips == pipe_round_trips)
		fprintf(result, "made read %ld\n", 2 * made);
}

int main(int argc, char **argv)
{
	int cpus[2], found = 0;
	struct table table;
	cpu_set_t allowed;
	FILE *result;
	double seconds;

	if (argc != 3)
		return 2;
	seconds = atof(argv[2]);
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		fail("sched_getaffinity");
	for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
		if (CPU_ISSET(cpu, &allowed))
			cpus[found++] = cpu;
	}
	table.ball = mmap(NULL, sizeof(*table.ball), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (table.ball == MAP_FAILED || pipe(table.there) || pipe(table.back))
		fail("setting the table");
	*table.ball = MINE;
	result = open_result(argv[1]);

	play(result, "pipe, 1 CPU", seconds, &table, pipe_round_trips, pipe_partner, cpus[0],
	     cpus[0]);
	if (found == 2)
		play(result, "pipe, 2 CPUs", seconds, &table, pipe_round_trips, pipe_partner,
		     cpus[0], cpus[1]);
	play(result, "futex, 1 CPU", seconds, &table, futex_round_trips, futex_partner, cpus[0],
	     cpus[0]);
	return 0;
}
