/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* many_threads THREADS MS CALLS: all threads at once make CALLS getppid calls and sleep MS. */
#include "known.h"

static uint64_t wait_ns, calls;
static pthread_barrier_t barrier;
static _Atomic uint64_t most_ns;

static void *worker(void *unused)
{
	struct timespec time = {(time_t)(wait_ns / 1000000000ULL), (long)(wait_ns % 1000000000ULL)};
	uint64_t before;

	(void)unused;
	prctl(PR_SET_NAME, "worker");
	pthread_barrier_wait(&barrier);
	for (uint64_t i = 0; i < calls; i++)
		syscall(SYS_getppid);
	before = now_ns();
	MUST(syscall(SYS_nanosleep, &time, NULL) == 0);
	atomic_fetch_add(&most_ns, now_ns() - before);
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t count = argument(argc, argv, 1, 64);
	pthread_t *threads = calloc(count, sizeof(*threads));
	pthread_attr_t small;

	facts_start();
	wait_ns = argument(argc, argv, 2, 100) * MILLISECOND;
	calls = argument(argc, argv, 3, 100);
	MUST(threads && pthread_barrier_init(&barrier, NULL, (unsigned)count) == 0);
	MUST(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 65536) == 0);
	for (uint64_t i = 0; i < count; i++)
		MUST(pthread_create(&threads[i], &small, worker, NULL) == 0);
	for (uint64_t i = 0; i < count; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
	fact("threads", count + 1);
	fact("calls", count * calls);
	fact("least_ns", count * wait_ns);
	fact("most_ns", atomic_load(&most_ns));
	facts_end();
	free(threads);
	return 0;
}
