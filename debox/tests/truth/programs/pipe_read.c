/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* pipe_read thread|child MS [ROUNDS]: reads an empty pipe; "writer" fills it a known time later. */
#include "known.h"

static struct appointment *with;
static int ends[2];
static uint64_t wait_ns, rounds;

static void *writer(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "writer");
	for (uint64_t i = 0; i < rounds; i++) {
		meet_and_pass(with, wait_ns);
		MUST(write(ends[1], "x", 1) == 1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int as_child = argc > 1 && !strcmp(argv[1], "child");
	pthread_t thread;
	pid_t child = 0;
	char byte;

	facts_start();
	wait_ns = argument(argc, argv, 2, 200) * MILLISECOND;
	rounds = argument(argc, argv, 3, 1);
	with = new_appointment();
	MUST(pipe(ends) == 0);
	if (as_child) {
		child = fork();
		MUST(child >= 0);
		if (child == 0) {
			writer(NULL);
			_exit(0);
		}
		fact("writer_tid", (uint64_t)child);
	} else {
		MUST(pthread_create(&thread, NULL, writer, NULL) == 0);
	}
	for (uint64_t i = 0; i < rounds; i++) {
		uint64_t before = keep_appointment(with);

		MUST(read(ends[0], &byte, 1) == 1);
		end_appointment(with, before);
	}
	if (as_child)
		MUST(waitpid(child, NULL, 0) == child);
	else
		MUST(pthread_join(thread, NULL) == 0);
	fact_appointment(with);
	facts_end();
	return 0;
}
