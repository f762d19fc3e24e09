/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* pipe_full MS: writes into a full pipe; "reader" makes room a known time later. */
#include "known.h"

static struct appointment *with;
static int ends[2];
static uint64_t wait_ns;
static char bulk[65536];

static void *reader(void *unused)
{
	static char sink[65536];

	(void)unused;
	prctl(PR_SET_NAME, "reader");
	meet_and_pass(with, wait_ns);
	MUST(read(ends[0], sink, sizeof(sink)) > 0);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	uint64_t before;
	int room;

	facts_start();
	wait_ns = argument(argc, argv, 1, 200) * MILLISECOND;
	with = new_appointment();
	MUST(pipe(ends) == 0);
	room = fcntl(ends[1], F_GETPIPE_SZ);
	MUST(room > 0);
	for (int filled = 0; filled < room; filled += 4096) {
		struct iovec page = {bulk, 4096};

		MUST(writev(ends[1], &page, 1) == 4096);
	}
	MUST(pthread_create(&thread, NULL, reader, NULL) == 0);
	before = keep_appointment(with);
	MUST(write(ends[1], bulk, 4096) == 4096);
	end_appointment(with, before);
	MUST(pthread_join(thread, NULL) == 0);
	fact_appointment(with);
	facts_end();
	return 0;
}
