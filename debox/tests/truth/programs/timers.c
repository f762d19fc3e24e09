/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * timers nanosleep|epoll|poll|select MS ROUNDS: sleeps that nothing but the call's own timer ends.
 * Such a sleep lasts at least the time asked for, less the call's own way into the kernel.
 */
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include "known.h"

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "nanosleep";
	uint64_t ms = argument(argc, argv, 2, 100), rounds = argument(argc, argv, 3, 3);
	uint64_t before, most = 0;
	int queue;

	facts_start();
	queue = epoll_create1(0);
	MUST(queue >= 0);
	for (uint64_t i = 0; i < rounds; i++) {
		before = now_ns();
		if (!strcmp(what, "nanosleep")) {
			struct timespec time = {(time_t)(ms / 1000),
						(long)(ms % 1000 * MILLISECOND)};

			/* glibc's nanosleep() is clock_nanosleep; the plain call has its own
			 * number. */
			MUST(syscall(SYS_nanosleep, &time, NULL) == 0);
		} else if (!strcmp(what, "epoll")) {
			struct epoll_event event;

			MUST(epoll_wait(queue, &event, 1, (int)ms) == 0);
		} else if (!strcmp(what, "poll")) {
			struct pollfd one = {queue, POLLIN, 0};

			MUST(syscall(SYS_poll, &one, 1, (int)ms) == 0);
		} else {
			struct timeval time = {(time_t)(ms / 1000),
					       (suseconds_t)(ms % 1000 * 1000)};

			MUST(syscall(SYS_select, 0, NULL, NULL, NULL, &time) == 0);
		}
		most += now_ns() - before;
	}
	fact("least_ns", ms * rounds * MILLISECOND);
	fact("most_ns", most);
	facts_end();
	return 0;
}
