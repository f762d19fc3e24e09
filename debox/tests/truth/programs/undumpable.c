/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * undumpable COUNT: a second thread makes COUNT calls of getppid, then the first thread forbids
 * that others look into the process, then the second makes COUNT more. Each thread waits for the
 * other by looking at a word, so that no other call comes between.
 */
#include <err.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int turn;
static int count;

static void make_calls(void)
{
	for (int i = 0; i < count; i++)
		syscall(SYS_getppid);
}

static void *second(void *unused)
{
	(void)unused;
	make_calls();
	turn = 1;
	while (turn != 2)
		;
	make_calls();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	count = argc > 1 ? atoi(argv[1]) : 1;
	if (pthread_create(&thread, NULL, second, NULL))
		errx(1, "no thread");
	while (turn != 1)
		;
	if (prctl(PR_SET_DUMPABLE, 0))
		err(1, "prctl");
	turn = 2;
	pthread_join(thread, NULL);
	return 0;
}
