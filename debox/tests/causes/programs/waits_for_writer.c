// SPDX-License-Identifier: MIT OR Apache-2.0
// Four threads want to read what a writer has locked most of the time.
#include "planted.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static void *reads(void *unused)
{
	while (goes_on()) {
		pthread_rwlock_rdlock(&lock);
		pthread_rwlock_unlock(&lock);
		sleep_ms(1);
	}
	return unused;
}

static void *writes(void *unused)
{
	name_thread("writer");
	while (goes_on()) {
		pthread_rwlock_wrlock(&lock);
		sleep_ms(8);
		pthread_rwlock_unlock(&lock);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t writer, threads[4];

	(void)argc;
	ready(argv);
	writer = start(writes, NULL);
	for (int i = 0; i < 4; i++)
		threads[i] = start(reads, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	pthread_join(writer, NULL);
	return 0;
}
