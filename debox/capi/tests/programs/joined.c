/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* joined.c: run under `debox run`, a program reads records all the same. */
#include "checks.h"
#include "debox_2004.h"

#include <sys/wait.h>

static DeBoxInfo info;

/* Ordinary calls of libc, made with the preload shim in the process. */
static void the_running_session_is_joined(void)
{
	struct timespec time = {0, 20 * MS};
	struct debox_explanation explained;
	const struct debox_record *last;
	int ends[2], status;
	pid_t child;

	enable();
	CHECK(!debox_last(), "what joining did is shown: %d", debox_last()->call);
	CHECK(pipe(ends) == 0 && write(ends[1], "abc", 3) == 3, "pipe");
	last = debox_last();
	CHECK(last && last->call == SYS_write && last->ret == 3 && (last->flags & DEBOX_USER_TAP),
	      "no record of write");
	CHECK(last->args[0] == (__u64)ends[1] && last->sleeps_used == 0, "arguments");
	check_sums(last);
	CHECK(debox_call(SYS_read, ends[0], &status, 3L) == 3, "debox_call");
	CHECK(debox_last()->call == SYS_read && debox_last()->ret == 3, "debox_call's record");
	CHECK(nanosleep(&time, NULL) == 0, "nanosleep");
	last = debox_last();
	/* The timer runs from a little before the thread leaves the CPU: long before it under
	 * emulation. */
	CHECK(last->sleeps_used == 1 && last->budget.blocked_ns >= 15 * MS &&
		      last->budget.blocked_ns + last->budget.cpu_ns >= 20 * MS,
	      "%d sites, %llu ns blocked, %llu on the CPU", last->sleeps_used,
	      last->budget.blocked_ns, last->budget.cpu_ns);
	CHECK(last->sleeps[0].waker_kind == DEBOX_WAKER_HARDIRQ, "waker");
	CHECK(debox_explain(last, 0, &explained) == 0, "%s", debox_last_error_text());
	CHECK(strstr(explained.function, "nanosleep") && !strcmp(explained.wait_class, "idle"),
	      "%s at %s", explained.label, explained.function);
	CHECK(last == debox_last(), "explaining was recorded: call %d", debox_last()->call);

	child = fork();
	if (child == 0) {
		CHECK(!debox_last(), "the parent's record");
		CHECK(write(ends[1], "x", 1) == 1 && debox_last()->call == SYS_write, "child");
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0, "child: %x", status);
	CHECK(debox_last()->call == SYS_wait4, "parent: %d", debox_last()->call);
	CHECK(debox_pause() == 0 && write(ends[1], "x", 1) == 1, "pause");
	CHECK(debox_last()->call == SYS_wait4 && debox_resume() == 0, "recorded while paused");
	CHECK(debox_disable() == 0 && !debox_last(), "disable");
	CHECK(write(ends[1], "x", 1) == 1, "afterwards");
}

static void results_come_at_the_end(void)
{
	struct timespec time = {0, 20 * MS};

	CHECK(DeBoxControl(&info, 5, 0) == 0, "%s", debox_last_error_text());
	CHECK(nanosleep(&time, NULL) == 0, "nanosleep");
	CHECK(info.numPerSleepInfo == 1 && strstr(info.psi[0].blockingFile, "nanosleep"),
	      "call %d, site %s", info.syscallNum, info.psi[0].blockingFile);
	CHECK(write(-1, "", 1) == -1 && errno == EBADF && info.syscallNum == SYS_write, "call %d",
	      info.syscallNum);
	CHECK(DeBoxFetch() == 1, "fetch");
	CHECK(DeBoxControl(NULL, 0, 0) == 0, "end");
	CHECK(debox_disable() == DEBOX_ERROR_NOT_ENABLED, "still enabled");
}

/* Two sessions at once: the program's own, and that of `debox run`. */
static void sessions_stand_side_by_side(void)
{
	struct debox_options options = {.size = sizeof(options), .tap = DEBOX_TAP_USER};

	enable();
	sleep_ms(20);
	CHECK(debox_last()->call == SYS_nanosleep && debox_last()->sleeps_used == 1 &&
		      !(debox_last()->flags & DEBOX_USER_TAP),
	      "kernel tap");
	check_sums(debox_last());
	CHECK(debox_disable() == 0 && debox_enable(&options) == 0, "%s", debox_last_error_text());
	CHECK(debox_call(SYS_getppid) == getppid() && debox_last()->call == SYS_getppid,
	      "user tap");
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"joined", the_running_session_is_joined},
		{"results", results_come_at_the_end},
		{"beside", sessions_stand_side_by_side},
	};

	return run_check(checks, sizeof(checks) / sizeof(checks[0]), argc > 1 ? argv[1] : NULL);
}
