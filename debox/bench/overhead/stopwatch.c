/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * stopwatch: times a command from inside the peer's session, so that the start and the end of the
 * session are not in the time.  Usage: stopwatch RESULT NAME COMMAND [ARGUMENT...]
 *
 * Reports the wall time, and apart from it the CPU time of the command and all it waited for.
 */
#include "measure.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static double seconds_of(struct timeval time)
{
	return time.tv_sec + time.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
	struct rusage usage;
	FILE *result;
	uint64_t from;
	pid_t pid;
	int status;

	if (argc < 4)
		return 2;
	result = open_result(argv[1]);
	from = now_ns();
	pid = fork();
	if (pid < 0)
		fail("fork");
	if (pid == 0) {
		execvp(argv[3], argv + 3);
		perror(argv[3]);
		_exit(127);
	}
	if (wait4(pid, &status, 0, &usage) != pid)
		fail("wait4");
	fprintf(result, "time %s %llu\n", argv[2], (unsigned long long)(now_ns() - from));
	fprintf(result, "time %s, CPU %.0f\n", argv[2],
		(seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime)) * 1e9);
	return status ? 1 : 0;
}
