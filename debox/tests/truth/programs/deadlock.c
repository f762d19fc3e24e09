/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * deadlock two|three|self|join|shared|flock|rwlock|limit: threads or processes that wait for each
 * other and stay so; "rwlock" and "limit" end after MS: a reader behind a writer, and a circle with
 * a time limit. Threads are called "one", "two" and "three", and each waits in a function of its
 * name.
 */
#include <sys/file.h>
#include "known.h"

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t second = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t third = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t all_hold;
static _Atomic pid_t reader_tid;
static uint64_t wait_ns;

#define LOCKS(name, has, wants)                                                                    \
	static __attribute__((noinline)) void wait_in_##name(void)                                 \
	{                                                                                          \
		MUST(pthread_mutex_lock(&(wants)) == 0);                                           \
		__asm__ volatile("");                                                              \
	}                                                                                          \
	static void *name(void *unused)                                                            \
	{                                                                                          \
		prctl(PR_SET_NAME, #name);                                                         \
		MUST(pthread_mutex_lock(&(has)) == 0);                                             \
		pthread_barrier_wait(&all_hold);                                                   \
		wait_in_##name();                                                                  \
		return unused;                                                                     \
	}

LOCKS(one, first, second)
LOCKS(two, second, first)
LOCKS(middle, second, third)
LOCKS(three, third, first)

static pthread_t start(void *(*body)(void *))
{
	pthread_t thread;

	MUST(pthread_create(&thread, NULL, body, NULL) == 0);
	return thread;
}

static void circle(void *(*const bodies[])(void *), unsigned int count)
{
	pthread_t threads[3];

	pthread_barrier_init(&all_hold, NULL, count);
	for (unsigned int i = 0; i < count; i++)
		threads[i] = start(bodies[i]);
	for (unsigned int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

static void *worker(void *unused)
{
	prctl(PR_SET_NAME, "two");
	MUST(pthread_mutex_lock(&first) == 0);
	return unused;
}

/* Two processes, each with one of two mutexes that both have mapped. */
static void shared(void)
{
	struct {
		pthread_mutex_t locks[2];
		pthread_barrier_t both;
	} *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t kind;
	pthread_barrierattr_t all;
	int child;

	MUST(memory != MAP_FAILED);
	pthread_mutexattr_init(&kind);
	pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
	pthread_barrierattr_init(&all);
	pthread_barrierattr_setpshared(&all, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&memory->locks[0], &kind);
	pthread_mutex_init(&memory->locks[1], &kind);
	pthread_barrier_init(&memory->both, &all, 2);
	child = fork() == 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	MUST(pthread_mutex_lock(&memory->locks[child]) == 0);
	pthread_barrier_wait(&memory->both);
	MUST(pthread_mutex_lock(&memory->locks[!child]) == 0);
}

/* Two processes, each with one of two files locked. */
static void locked_files(const char *path)
{
	char other[512], byte;
	int files[2], child, flags = O_RDWR | O_CREAT | O_CLOEXEC, ready[2][2];

	snprintf(other, sizeof(other), "%s.other", path);
	MUST(pipe(ready[0]) == 0 && pipe(ready[1]) == 0);
	child = fork() == 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	files[0] = open(path, flags, 0600);
	files[1] = open(other, flags, 0600);
	MUST(files[0] >= 0 && files[1] >= 0);
	MUST(flock(files[child], LOCK_EX) == 0);
	/* Each has its own before one goes for the other's. */
	MUST(write(ready[!child][1], "", 1) == 1);
	MUST(read(ready[child][0], &byte, 1) == 1);
	MUST(flock(files[!child], LOCK_EX) == 0);
}

static void *read_table(void *unused)
{
	prctl(PR_SET_NAME, "reader");
	atomic_store(&reader_tid, own_tid());
	MUST(pthread_rwlock_rdlock(&table) == 0);
	MUST(pthread_rwlock_unlock(&table) == 0);
	return unused;
}

static void rwlock(void)
{
	pthread_t reader;

	MUST(pthread_rwlock_wrlock(&table) == 0);
	reader = start(read_table);
	pass_ns(wait_ns);
	MUST(pthread_rwlock_unlock(&table) == 0);
	MUST(pthread_join(reader, NULL) == 0);
}

int main(int argc, char **argv)
{
	static void *(*const of_two[])(void *) = {one, two};
	static void *(*const of_three[])(void *) = {one, middle, three};
	const char *what = argc > 1 ? argv[1] : "two";

	if (!strcmp(what, "two")) {
		circle(of_two, 2);
	} else if (!strcmp(what, "three")) {
		circle(of_three, 3);
	} else if (!strcmp(what, "self")) {
		MUST(pthread_mutex_lock(&first) == 0);
		MUST(pthread_mutex_lock(&first) == 0);
	} else if (!strcmp(what, "join")) {
		MUST(pthread_mutex_lock(&first) == 0);
		pthread_join(start(worker), NULL);
	} else if (!strcmp(what, "shared")) {
		shared();
	} else if (!strcmp(what, "flock")) {
		locked_files(argv[2]);
	} else {
		wait_ns = argument(argc, argv, 2, 200) * MILLISECOND;
		rwlock();
	}
	return 0;
}
