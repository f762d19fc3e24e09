/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * futex_wait cond|mutex|join MS: a pthread wait that the thread "waker" ends a known time later.
 * futex_wait limit MS: the same condition, first with a time limit of MS that passes.
 * futex_wait turns COUNT: two threads that wake each other, and go to sleep at once.
 */
#include <semaphore.h>
#include "known.h"

static struct appointment *with;
static uint64_t wait_ns;
static const char *what;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static _Atomic int held;
static int ready;

static void *waker(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "waker");
	if (!strcmp(what, "mutex")) {
		pthread_mutex_lock(&mutex);
		atomic_store(&held, 1);
		meet_and_pass(with, wait_ns);
		pthread_mutex_unlock(&mutex);
	} else if (!strcmp(what, "cond") || !strcmp(what, "limit")) {
		meet_and_pass(with, wait_ns);
		pthread_mutex_lock(&mutex);
		ready = 1;
		pthread_cond_signal(&condition);
		pthread_mutex_unlock(&mutex);
	} else {
		meet_and_pass(with, wait_ns);
	}
	return NULL;
}

__attribute__((noinline)) static void wait_with_limit(void)
{
	struct timespec limit;
	uint64_t ns;

	MUST(clock_gettime(CLOCK_REALTIME, &limit) == 0);
	ns = limit.tv_nsec + wait_ns;
	limit.tv_sec += ns / 1000000000;
	limit.tv_nsec = ns % 1000000000;
	while (pthread_cond_timedwait(&condition, &mutex, &limit) == 0)
		;
	__asm__ volatile(""); /* no tail call, so that it is in the stack */
}

__attribute__((noinline)) static void wait_without_limit(void)
{
	while (!ready)
		pthread_cond_wait(&condition, &mutex);
	__asm__ volatile("");
}

static sem_t turns[2];
static uint64_t turn_count;

static void *taker_of_turns(void *own)
{
	int number = (int)(intptr_t)own;

	for (uint64_t i = 0; i < turn_count; i++) {
		while (sem_wait(&turns[number]) != 0)
			;
		sem_post(&turns[!number]);
	}
	return NULL;
}

static void take_turns(void)
{
	pthread_t threads[2];

	MUST(sem_init(&turns[0], 0, 1) == 0 && sem_init(&turns[1], 0, 0) == 0);
	for (intptr_t i = 0; i < 2; i++)
		MUST(pthread_create(&threads[i], NULL, taker_of_turns, (void *)i) == 0);
	for (int i = 0; i < 2; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv)
{
	pthread_t thread;
	uint64_t before;

	facts_start();
	what = argc > 1 ? argv[1] : "cond";
	if (!strcmp(what, "turns")) {
		turn_count = argument(argc, argv, 2, 1000);
		take_turns();
		facts_end();
		return 0;
	}
	wait_ns = argument(argc, argv, 2, 200) * MILLISECOND;
	with = new_appointment();
	MUST(pthread_create(&thread, NULL, waker, NULL) == 0);
	if (!strcmp(what, "mutex")) {
		while (!atomic_load(&held))
			pass_ns(100000);
		before = keep_appointment(with);
		pthread_mutex_lock(&mutex);
	} else if (!strcmp(what, "cond") || !strcmp(what, "limit")) {
		pthread_mutex_lock(&mutex);
		if (!strcmp(what, "limit"))
			wait_with_limit();
		before = keep_appointment(with);
		wait_without_limit();
	} else {
		before = keep_appointment(with);
		MUST(pthread_join(thread, NULL) == 0);
	}
	end_appointment(with, before);
	if (strcmp(what, "join"))
		MUST(pthread_join(thread, NULL) == 0);
	fact_appointment(with);
	facts_end();
	return 0;
}
