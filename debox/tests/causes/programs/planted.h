/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the C programs of the corpus share. Each is called as PROGRAM SECONDS DIRECTORY [PLACE],
 * prepares what it needs, says that it is ready, and then does one thing until the time is over.
 */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static double planted_end;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* Preparation is over. */
static inline void ready(char **argv)
{
	planted_end = now() + atof(argv[1]);
	printf("ready\n");
	fflush(stdout);
}

static inline int goes_on(void)
{
	return now() < planted_end;
}

static inline void sleep_ms(long ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&time, NULL);
}

/* Ends the program, with a message, if what it does cannot be done. */
static inline void must(int succeeded, const char *what)
{
	if (!succeeded) {
		perror(what);
		exit(2);
	}
}

static inline void end_now(int signal)
{
	(void)signal;
	_exit(0);
}

/* Of a program that waits for ever: it ends when its time is over. */
static inline void ends_by_itself(char **argv)
{
	long us = atof(argv[1]) * 1e6;
	struct itimerval end = {.it_value = {us / 1000000, us % 1000000}};

	signal(SIGALRM, end_now);
	must(setitimer(ITIMER_REAL, &end, NULL) == 0, "setitimer");
}

static inline void name_thread(const char *name)
{
	prctl(PR_SET_NAME, name);
}

static inline pthread_t start(void *(*body)(void *), void *argument)
{
	pthread_t thread;

	must(pthread_create(&thread, NULL, body, argument) == 0, "pthread_create");
	return thread;
}
