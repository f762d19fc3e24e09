/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * children wait4 MS      the parent waits for "sleeper", which ends a known time later
 * children vfork MS      the parent is held in vfork until the child ends
 * children many COUNT    COUNT fork children, each making 10 getuid calls
 */
#include "known.h"

/* vfork's child runs on the parent's stack: it makes raw calls only and returns to nobody. */
static uint64_t vfork_and_wait(uint64_t wait_ns, uint64_t *most_ns)
{
	struct timespec time = {(time_t)(wait_ns / 1000000000ULL), (long)(wait_ns % 1000000000ULL)};
	uint64_t before = now_ns();
	pid_t child = vfork();

	if (child == 0) {
		prctl(PR_SET_NAME, "sleeper");
		syscall(SYS_nanosleep, &time, NULL);
		_exit(0);
	}
	*most_ns = now_ns() - before;
	MUST(child > 0 && waitpid(child, NULL, 0) == child);
	return (uint64_t)child;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "wait4";
	uint64_t number = argument(argc, argv, 2, 200), most_ns;
	struct appointment *with = new_appointment();
	pid_t child;

	facts_start();
	if (!strcmp(what, "wait4")) {
		uint64_t before;

		child = fork();
		MUST(child >= 0);
		if (child == 0) {
			prctl(PR_SET_NAME, "sleeper");
			meet_and_pass(with, number * MILLISECOND);
			_exit(0);
		}
		before = keep_appointment(with);
		MUST(wait4(child, NULL, 0, NULL) == child);
		end_appointment(with, before);
		fact("child_tid", (uint64_t)child);
		fact_appointment(with);
	} else if (!strcmp(what, "vfork")) {
		fact("child_tid", vfork_and_wait(number * MILLISECOND, &most_ns));
		fact("least_ns", number * MILLISECOND);
		fact("most_ns", most_ns);
	} else {
		for (uint64_t i = 0; i < number; i++) {
			child = fork();
			MUST(child >= 0);
			if (child == 0) {
				for (int call = 0; call < 10; call++)
					syscall(SYS_getuid);
				_exit(0);
			}
		}
		for (uint64_t i = 0; i < number; i++)
			MUST(wait4(-1, NULL, 0, NULL) > 0);
		fact("children", number);
	}
	facts_end();
	return 0;
}
