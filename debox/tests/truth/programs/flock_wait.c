/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* flock_wait FILE MS: waits in flock for the child "holder", which keeps the lock a known time. */
#include <sys/file.h>
#include "known.h"

int main(int argc, char **argv)
{
	struct appointment *with = new_appointment();
	uint64_t wait_ns = argument(argc, argv, 2, 200) * MILLISECOND, before;
	pid_t child;
	int fd;

	facts_start();
	MUST(argc > 1);
	child = fork();
	MUST(child >= 0);
	fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	MUST(fd >= 0);
	if (child == 0) {
		prctl(PR_SET_NAME, "holder");
		MUST(flock(fd, LOCK_EX) == 0);
		atomic_store(&with->spare[0], 1);
		meet_and_pass(with, wait_ns);
		MUST(flock(fd, LOCK_UN) == 0);
		_exit(0);
	}
	while (!atomic_load(&with->spare[0]))
		pass_ns(100000);
	before = keep_appointment(with);
	MUST(flock(fd, LOCK_EX) == 0);
	end_appointment(with, before);
	MUST(waitpid(child, NULL, 0) == child);
	fact("holder_tid", (uint64_t)child);
	fact_appointment(with);
	facts_end();
	return 0;
}
