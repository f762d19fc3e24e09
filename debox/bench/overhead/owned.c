/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * owned: what it costs to find the owner of a lock.  Usage: owned RESULT SECONDS
 *
 * Two threads on one CPU wake each other in turn; each sleeps on its own futex word. The words are
 * plain, or look like a glibc mutex whose holder waits for the CPU (the other thread), or like one
 * whose holder sleeps (a third thread), so that its stack is captured. A round trip is two sleeps
 * and four calls.
 */
#include "measure.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BATCH 200
#define LOST_WAKE_NS 5000000 /* limit, as a wake-up between the check and the wait is lost */

struct word { /* pthread_mutex_t */
	uint32_t lock, count;
	int32_t owner;
	uint32_t users, kind, rest[5];
};

static struct word words[2];
static atomic_int turn, over;
static _Atomic int tids[3];

static void wait_for_turn(int own)
{
	struct timespec limit = {0, LOST_WAKE_NS};

	while (atomic_load(&turn) != own)
		syscall(SYS_futex, &words[own].lock, FUTEX_WAIT_PRIVATE, words[own].lock, &limit,
			NULL, 0);
}

static void pass_turn(int to)
{
	atomic_store(&turn, to);
	syscall(SYS_futex, &words[to].lock, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void settle(int nth)
{
	struct sched_param none = {0};
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	if (sched_setaffinity(0, sizeof(set), &set) || sched_setscheduler(0, SCHED_BATCH, &none))
		fail("sched_setaffinity, sched_setscheduler");
	atomic_store(&tids[nth], (int)syscall(SYS_gettid));
}

static void *partner(void *unused)
{
	(void)unused;
	settle(1);
	for (;;) {
		wait_for_turn(1);
		if (atomic_load(&over))
			return NULL;
		pass_turn(0);
	}
}

static void *sleeper(void *unused)
{
	(void)unused;
	settle(2);
	pause();
	return NULL;
}

static void round_trips(void *unused, int count)
{
	(void)unused;
	while (count--) {
		pass_turn(1);
		wait_for_turn(0);
	}
}

static void mark(uint32_t lock, int owner_of_first, int owner_of_second)
{
	struct word first = {.lock = lock, .owner = owner_of_first, .users = 1};
	struct word second = {.lock = lock, .owner = owner_of_second, .users = 1};

	words[0] = first;
	words[1] = second;
}

int main(int argc, char **argv)
{
	double seconds = argc > 2 ? atof(argv[2]) : 1;
	pthread_t threads[2];
	FILE *result;

	if (argc < 2)
		return 2;
	result = open_result(argv[1]);
	mark(7, 0, 0);
	settle(0);
	if (pthread_create(&threads[0], NULL, partner, NULL) ||
	    pthread_create(&threads[1], NULL, sleeper, NULL))
		fail("pthread_create");
	while (!atomic_load(&tids[1]) || !atomic_load(&tids[2]))
		usleep(1000);
	usleep(20000);
	measure(result, "plain", seconds, BATCH, round_trips, NULL);
	mark(2, atomic_load(&tids[1]), atomic_load(&tids[0]));
	measure(result, "held_by_runnable", seconds, BATCH, round_trips, NULL);
	mark(2, atomic_load(&tids[2]), atomic_load(&tids[2]));
	measure(result, "held_by_sleeper", seconds, BATCH, round_trips, NULL);
	atomic_store(&over, 1);
	pass_turn(1);
	pthread_join(threads[0], NULL);
	return 0;
}
