/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Forks, threads and signals as fast as possible, for so many milliseconds, in a process that the
 * broker serves. Everything that the program computes is checked. The broker may come and go.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "checks.h"

#define THREADS 8

static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
	const struct debox_record *last = debox_last();

	(void)signal;
	alarms += last ? 1 : 0;
	syscall(SYS_getppid);
}

static long since_ms(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000;
}

/* Some calls, whose results are known. */
static void *work(void *given)
{
	long number = (long)given, got = 0;
	int pair[2];

	CHECK(pipe(pair) == 0, "pipe: %s", strerror(errno));
	for (long i = 0; i < 20; i++) {
		long sent = number * 1000 + i;

		CHECK(write(pair[1], &sent, sizeof(sent)) == sizeof(sent), "write");
		CHECK(read(pair[0], &got, sizeof(got)) == sizeof(got), "read");
		CHECK(got == sent, "%ld came back as %ld", sent, got);
		debox_last();
	}
	close(pair[0]);
	close(pair[1]);
	return (void *)(number + 1);
}

static void run_threads(void)
{
	pthread_t threads[THREADS];
	void *result;

	for (long i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0, "pthread_create");
	for (long i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &result);
		CHECK(result == (void *)(i + 1), "thread %ld", i);
	}
}

/* A child that has a child of its own, executes a program, or only ends. */
static void run_child(int round)
{
	int status, expected = round % 100;
	pid_t child = fork();

	CHECK(child >= 0, "fork: %s", strerror(errno));
	if (!child) {
		if (round % 8 == 0)
			execl("/bin/sh", "sh", "-c", "exit 7", NULL);
		if (round % 3 == 0) {
			pid_t grandchild = fork();

			if (!grandchild) {
				work((void *)(long)round);
				_exit(0);
			}
			CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0,
			      "grandchild: %x", status);
		}
		work((void *)(long)round);
		_exit(expected);
	}
	if (round % 8 == 0)
		expected = 7;
	while (waitpid(child, &status, 0) != child)
		CHECK(errno == EINTR, "waitpid: %s", strerror(errno));
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == expected, "%x is not %d", status,
	      expected);
}

int main(int argc, char **argv)
{
	struct itimerval often = {{0, 2000}, {0, 2000}};
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	long limit = argc > 1 ? atol(argv[1]) : 1000;
	struct timespec start;
	int enabled = debox_enable(NULL) == 0;
	int round = 0;

	clock_gettime(CLOCK_MONOTONIC, &start);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (; since_ms(&start) < limit; round++) {
		run_child(round);
		if (round % 4 == 0)
			run_threads();
		if (round % 64 == 63 && enabled) {
			debox_disable();
			enabled = debox_enable(NULL) == 0;
		}
	}
	printf("%d rounds, %d alarms saw a record\n", round, (int)alarms);
	return 0;
}
