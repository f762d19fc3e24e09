/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * owner_mutex held|spun|chain|cycle|word MS: waits for pthread mutexes whose holder is known, and
 * for futex words that are no mutexes. The thread "holder" sleeps in one timer, to a known end, or
 * spins; "waiter" waits for it; "middle" is held up by the holder and holds up the waiter.
 */
#include <linux/futex.h>
#include "known.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t second = PTHREAD_MUTEX_INITIALIZER;
static uint64_t wait_ns;
static _Atomic int taken, second_taken, in_wait;
static _Atomic pid_t holder_tid, middle_tid, waiter_tid;
static _Atomic uint64_t release_at;    /* the holder's timer ends no earlier */
static _Atomic uint64_t released;      /* by then it has ended */
static _Atomic uint64_t before, after; /* the waiter's stamps */
static _Atomic uint64_t waiter_asleep_at;

static void await(_Atomic int *flag)
{
	while (!atomic_load(flag))
		pass_ns(100000);
}

static pid_t await_tid(_Atomic pid_t *tid)
{
	while (!atomic_load(tid))
		pass_ns(100000);
	return atomic_load(tid);
}

/* Waits until the thread sleeps; when that was seen. */
static uint64_t await_asleep(_Atomic pid_t *tid)
{
	await_state((pid_t)syscall(SYS_getpid), await_tid(tid), "S");
	return now_ns();
}

static void sleep_to(uint64_t end)
{
	struct timespec until = {(time_t)(end / 1000000000ULL), (long)(end % 1000000000ULL)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

static void *hold(void *lock)
{
	prctl(PR_SET_NAME, "holder");
	MUST(pthread_mutex_lock(lock) == 0);
	atomic_store(&taken, 1);
	atomic_store(&release_at, now_ns() + wait_ns);
	atomic_store(&holder_tid, own_tid());
	sleep_to(atomic_load(&release_at));
	atomic_store(&released, now_ns());
	MUST(pthread_mutex_unlock(lock) == 0);
	return NULL;
}

static void *spin(void *lock)
{
	prctl(PR_SET_NAME, "holder");
	MUST(pthread_mutex_lock(lock) == 0);
	atomic_store(&holder_tid, own_tid());
	atomic_store(&taken, 1);
	while (now_ns() < atomic_load(&before) + wait_ns || !atomic_load(&before))
		;
	MUST(pthread_mutex_unlock(lock) == 0);
	return NULL;
}

static void *wait_for(void *lock)
{
	prctl(PR_SET_NAME, "waiter");
	atomic_store(&waiter_tid, own_tid());
	atomic_store(&before, now_ns());
	MUST(pthread_mutex_lock(lock) == 0);
	atomic_store(&after, now_ns());
	MUST(pthread_mutex_unlock(lock) == 0);
	return NULL;
}

static void *stand_between(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "middle");
	MUST(pthread_mutex_lock(&mutex) == 0);
	atomic_store(&second_taken, 1);
	atomic_store(&middle_tid, own_tid());
	MUST(pthread_mutex_lock(&second) == 0);
	MUST(pthread_mutex_unlock(&second) == 0);
	MUST(pthread_mutex_unlock(&mutex) == 0);
	return NULL;
}

static pthread_t start(void *(*body)(void *), void *argument)
{
	pthread_t thread;

	MUST(pthread_create(&thread, NULL, body, argument) == 0);
	return thread;
}

static void held(void)
{
	pthread_t holder = start(hold, &mutex), waiter;

	await(&taken);
	await_asleep(&holder_tid);
	waiter = start(wait_for, &mutex);
	atomic_store(&waiter_asleep_at, await_asleep(&waiter_tid));
	MUST(pthread_join(waiter, NULL) == 0);
	MUST(pthread_join(holder, NULL) == 0);
	fact("least_ns", atomic_load(&release_at) - atomic_load(&waiter_asleep_at));
	fact("most_ns", atomic_load(&after) - atomic_load(&before));
	fact("holder_most_ns", atomic_load(&released) - atomic_load(&before));
}

static void chain(void)
{
	pthread_t holder = start(hold, &second), middle, waiter;

	await(&taken);
	await_asleep(&holder_tid);
	middle = start(stand_between, NULL);
	await(&second_taken);
	await_asleep(&middle_tid);
	waiter = start(wait_for, &mutex);
	atomic_store(&waiter_asleep_at, await_asleep(&waiter_tid));
	MUST(pthread_join(waiter, NULL) == 0);
	MUST(pthread_join(middle, NULL) == 0);
	MUST(pthread_join(holder, NULL) == 0);
	fact("least_ns", atomic_load(&release_at) - atomic_load(&waiter_asleep_at));
	fact("most_ns", atomic_load(&after) - atomic_load(&before));
	fact("holder_most_ns", atomic_load(&released) - atomic_load(&before));
	fact("middle_tid", (uint64_t)atomic_load(&middle_tid));
}

static void spun(void)
{
	for (int round = 0; round < 10; round++) {
		pthread_t holder, waiter;

		atomic_store(&taken, 0);
		atomic_store(&before, 0);
		holder = start(spin, &mutex);
		await(&taken);
		waiter = start(wait_for, &mutex);
		MUST(pthread_join(waiter, NULL) == 0);
		MUST(pthread_join(holder, NULL) == 0);
	}
}

static void lock_for(pthread_mutex_t *lock, uint64_t ns, int expected)
{
	struct timespec until;
	uint64_t end;

	clock_gettime(CLOCK_REALTIME, &until);
	end = (uint64_t)until.tv_sec * 1000000000ULL + (uint64_t)until.tv_nsec + ns;
	until.tv_sec = (time_t)(end / 1000000000ULL);
	until.tv_nsec = (long)(end % 1000000000ULL);
	MUST(pthread_mutex_timedlock(lock, &until) == expected);
}

/* Each holds what the other wants; "impatient" gives up first. */
static void *impatient(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "impatient");
	MUST(pthread_mutex_lock(&mutex) == 0);
	atomic_store(&taken, 1);
	await(&second_taken);
	atomic_store(&waiter_tid, own_tid());
	atomic_store(&before, now_ns());
	lock_for(&second, wait_ns, ETIMEDOUT);
	atomic_store(&after, now_ns());
	MUST(pthread_mutex_unlock(&mutex) == 0);
	return NULL;
}

static void *patient(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "patient");
	await(&taken);
	MUST(pthread_mutex_lock(&second) == 0);
	atomic_store(&second_taken, 1);
	await_asleep(&waiter_tid);
	atomic_store(&holder_tid, own_tid());
	lock_for(&mutex, wait_ns * 20, 0);
	MUST(pthread_mutex_unlock(&mutex) == 0);
	MUST(pthread_mutex_unlock(&second) == 0);
	return NULL;
}

static void cycle(void)
{
	pthread_t first = start(impatient, NULL), other = start(patient, NULL);

	MUST(pthread_join(first, NULL) == 0);
	MUST(pthread_join(other, NULL) == 0);
	fact("most_ns", atomic_load(&after) - atomic_load(&before));
}

/* Words that look like a held mutex in all but one field. */
struct word {
	uint32_t lock, count;
	int32_t owner;
	uint32_t users, kind;
	uint32_t rest[5];
};

static void *idle(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "bystander");
	atomic_store(&holder_tid, own_tid());
	await(&in_wait);
	return NULL;
}

static void word(void)
{
	struct timespec timeout = {0, (long)(wait_ns % 1000000000ULL)};
	pthread_t thread = start(idle, NULL);
	uint32_t other = (uint32_t)await_tid(&holder_tid), own = (uint32_t)own_tid();
	struct word words[] = {
		{2, 0, (int32_t)other, 1, 77, {0}}, /* no such kind of mutex */
		{2, 0, (int32_t)other, 0, 0, {0}},  /* nobody uses it */
		{7, 0, (int32_t)other, 1, 0, {0}},  /* no such state */
		{2, 3, (int32_t)other, 1, 0, {0}},  /* held several times, and not recursive */
		{2, 0, (int32_t)own, 1, 0, {0}},    /* held by the waiter itself */
		{2, 0, 1, 1, 0, {0}},		    /* by another process */
		{2, 0, 0x3ffffffe, 1, 0, {0}},	    /* by nobody who lives */
		{2, 0, 0, 1, 0, {0}},		    /* a plain word */
	};
	const size_t count = sizeof(words) / sizeof(words[0]);

	for (size_t i = 0; i < count; i++) {
		MUST(syscall(SYS_futex, &words[i].lock, FUTEX_WAIT_PRIVATE, words[i].lock, &timeout,
			     NULL, 0) == -1);
		MUST(errno == ETIMEDOUT);
	}
	atomic_store(&in_wait, 1);
	MUST(pthread_join(thread, NULL) == 0);
	fact("words", count);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "held";

	facts_start();
	wait_ns = argument(argc, argv, 2, 200) * MILLISECOND;
	if (!strcmp(what, "held"))
		held();
	else if (!strcmp(what, "spun"))
		spun();
	else if (!strcmp(what, "chain"))
		chain();
	else if (!strcmp(what, "cycle"))
		cycle();
	else
		word();
	fact("holder_tid", (uint64_t)atomic_load(&holder_tid));
	fact("waiter_tid", (uint64_t)atomic_load(&waiter_tid));
	facts_end();
	return 0;
}
