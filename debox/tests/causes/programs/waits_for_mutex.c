// SPDX-License-Identifier: MIT OR Apache-2.0
// Four threads want a mutex, which a fifth has most of the time.
#include "planted.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *wants(void *unused)
{
	while (goes_on()) {
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
		sleep_ms(1);
	}
	return unused;
}

static void *has(void *unused)
{
	name_thread("has-the-mutex");
	while (goes_on()) {
		pthread_mutex_lock(&mutex);
		sleep_ms(60);
		pthread_mutex_unlock(&mutex);
		sleep_ms(1);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t holder, threads[4];

	(void)argc;
	ready(argv);
	holder = start(has, NULL);
	for (int i = 0; i < 4; i++)
		threads[i] = start(wants, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	pthread_join(holder, NULL);
	return 0;
}
