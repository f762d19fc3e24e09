/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * semaphore FILE SLEEPS MS: threads read a file of which each reading takes the console's
 * semaphore, the one that a kernel offers to everybody. Who finds it taken sleeps: nobody spins for
 * a semaphore, and nothing else in these calls can sleep. "holder" reads without a pause; it too
 * has to wait at times. The "reader"s pause, so that the semaphore is not handed from one to the
 * next for ever, in which time it has no owner. They go on until each has slept SLEEPS times, or MS
 * are over.
 */
#include "known.h"

#define READERS 2

static const char *path;
static uint64_t wanted, limit_ns;
static _Atomic uint64_t sleeps;
static _Atomic pid_t holder_tid;
static _Atomic int done;

/* Reads once; returns how often the thread slept meanwhile. */
static uint64_t read_once(int fd)
{
	struct rusage before, after;
	char text[16384];

	MUST(getrusage(RUSAGE_THREAD, &before) == 0);
	MUST(pread(fd, text, sizeof(text), 0) > 0);
	MUST(getrusage(RUSAGE_THREAD, &after) == 0);
	return (uint64_t)(after.ru_nvcsw - before.ru_nvcsw);
}

static void *holder(void *unused)
{
	int fd = open(path, O_RDONLY);

	(void)unused;
	prctl(PR_SET_NAME, "holder");
	MUST(fd >= 0);
	atomic_store(&holder_tid, own_tid());
	while (!atomic_load(&done))
		atomic_fetch_add(&sleeps, read_once(fd));
	return NULL;
}

static void *reader(void *unused)
{
	uint64_t begun = now_ns(), own = 0;
	int fd = open(path, O_RDONLY);

	(void)unused;
	prctl(PR_SET_NAME, "reader");
	MUST(fd >= 0);
	while (own < wanted && now_ns() - begun < limit_ns) {
		pass_ns(200000);
		own += read_once(fd);
	}
	atomic_fetch_add(&sleeps, own);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t holding, threads[READERS];

	facts_start();
	MUST(argc > 1);
	path = argv[1];
	wanted = argument(argc, argv, 2, 20);
	limit_ns = argument(argc, argv, 3, 2000) * MILLISECOND;
	MUST(pthread_create(&holding, NULL, holder, NULL) == 0);
	for (int i = 0; i < READERS; i++)
		MUST(pthread_create(&threads[i], NULL, reader, NULL) == 0);
	for (int i = 0; i < READERS; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
	atomic_store(&done, 1);
	MUST(pthread_join(holding, NULL) == 0);
	fact("holder_tid", (uint64_t)atomic_load(&holder_tid));
	fact("sleeps", atomic_load(&sleeps));
	facts_end();
	return 0;
}
