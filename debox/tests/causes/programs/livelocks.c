// SPDX-License-Identifier: MIT OR Apache-2.0
// Two threads give way to each other: each takes its own lock, waits its turn, cannot have the
// other's, lets go and tries again at once.
#include "planted.h"

#include <sched.h>

/* Calls of sched_yield that a turn takes: most of the time is the kernel's. */
#define YIELDS 8

static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

static void *gives_way(void *own)
{
	long mine = (long)own;

	while (goes_on()) {
		pthread_mutex_lock(&locks[mine]);
		for (int i = 0; i < YIELDS; i++)
			sched_yield();
		if (pthread_mutex_trylock(&locks[!mine]) == 0)
			pthread_mutex_unlock(&locks[!mine]);
		pthread_mutex_unlock(&locks[mine]);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];

	(void)argc;
	ready(argv);
	for (long i = 0; i < 2; i++)
		threads[i] = start(gives_way, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
