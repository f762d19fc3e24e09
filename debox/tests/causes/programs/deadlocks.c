// SPDX-License-Identifier: MIT OR Apache-2.0
// Two threads take two mutexes in opposite orders, and wait for ever.
#include "planted.h"

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void *one_then_other(void *unused)
{
	name_thread("one-then-other");
	pthread_mutex_lock(&one);
	pthread_barrier_wait(&both);
	pthread_mutex_lock(&other);
	return unused;
}

static void *other_then_one(void *unused)
{
	name_thread("other-then-one");
	pthread_mutex_lock(&other);
	pthread_barrier_wait(&both);
	pthread_mutex_lock(&one);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];

	(void)argc;
	ends_by_itself(argv);
	pthread_barrier_init(&both, NULL, 2);
	ready(argv);
	threads[0] = start(one_then_other, NULL);
	threads[1] = start(other_then_one, NULL);
	pthread_join(threads[0], NULL);
	return 0;
}
