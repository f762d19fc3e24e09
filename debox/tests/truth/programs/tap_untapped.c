/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * tap_untapped: sleeps in calls that no entry point of libc stands before: of stdio (fgets from a
 * pipe), of a condition variable, and of a bare instruction (nanosleep). Each lasts 50 ms.
 */
#include "known.h"

static int ends[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static volatile int rung;

static void *ring(void *nothing)
{
	struct iovec line = {"line\n", 5};

	pass_ns(50 * MILLISECOND);
	MUST(writev(ends[1], &line, 1) == 5);
	pass_ns(50 * MILLISECOND);
	pthread_mutex_lock(&mutex);
	rung = 1;
	pthread_cond_signal(&condition);
	pthread_mutex_unlock(&mutex);
	return nothing;
}

int main(void)
{
	struct timespec time = {0, 50 * MILLISECOND};
	pthread_t thread;
	char text[16];
	FILE *file;
	long result;

	facts_start();
	MUST(pipe(ends) == 0 && (file = fdopen(ends[0], "r")));
	MUST(pthread_create(&thread, NULL, ring, NULL) == 0);
	MUST(fgets(text, sizeof(text), file));
	pthread_mutex_lock(&mutex);
	while (!rung)
		pthread_cond_wait(&condition, &mutex);
	pthread_mutex_unlock(&mutex);
	pthread_join(thread, NULL);
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"((long)SYS_nanosleep), "D"(&time), "S"(0L)
			 : "rcx", "r11", "memory");
	MUST(result == 0);
	facts_end();
	return 0;
}
