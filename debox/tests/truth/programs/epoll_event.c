/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* epoll_event MS ROUNDS: an idle event loop whose events the thread "ringer" makes. */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include "known.h"

static struct appointment *with;
static uint64_t wait_ns, rounds;
static int bell;

static void *ringer(void *unused)
{
	uint64_t one = 1;

	(void)unused;
	prctl(PR_SET_NAME, "ringer");
	for (uint64_t i = 0; i < rounds; i++) {
		meet_and_pass(with, wait_ns);
		MUST(write(bell, &one, sizeof(one)) == sizeof(one));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct epoll_event event = {.events = EPOLLIN};
	pthread_t thread;
	uint64_t before, rings;
	int queue;

	facts_start();
	wait_ns = argument(argc, argv, 1, 50) * MILLISECOND;
	rounds = argument(argc, argv, 2, 4);
	with = new_appointment();
	bell = eventfd(0, 0);
	queue = epoll_create1(0);
	MUST(bell >= 0 && queue >= 0 && epoll_ctl(queue, EPOLL_CTL_ADD, bell, &event) == 0);
	MUST(pthread_create(&thread, NULL, ringer, NULL) == 0);
	for (uint64_t i = 0; i < rounds; i++) {
		before = keep_appointment(with);
		MUST(epoll_wait(queue, &event, 1, -1) == 1);
		end_appointment(with, before);
		MUST(read(bell, &rings, sizeof(rings)) == sizeof(rings));
	}
	MUST(pthread_join(thread, NULL) == 0);
	fact_appointment(with);
	facts_end();
	return 0;
}
