/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* classic.c: the interface of 2004. */
#include "checks.h"
#include "debox_2004.h"

static DeBoxInfo first, second;

static void results_are_those_of_2004(void)
{
	CHECK(DeBoxFetch() == -1 && errno == EINVAL, "no buffer yet");
	CHECK(DeBoxControl(&first, -1, 0) == -1 && errno == EINVAL, "negative limit");
	CHECK(DeBoxControl(&first, 5, 0) == 0, "%s", debox_last_error_text());
	CHECK(DeBoxFetch() == 0, "a result before a call");
	sleep_ms(20);
	CHECK(DeBoxFetch() == 1, "no result");
	CHECK(DeBoxFetch() == 0, "the same result twice");
	CHECK(first.syscallNum == SYS_nanosleep, "call %d", first.syscallNum);
	CHECK(first.CallTime.callTimeval.tv_sec == 0 &&
		      first.CallTime.callTimeval.tv_usec >= 20000 &&
		      first.CallTime.callTimeval.tv_usec < 30000,
	      "time %ld", (long)first.CallTime.callTimeval.tv_usec);
	CHECK(first.numPerSleepInfo == 1 && first.traceDepth == 0, "%d sleeps",
	      first.numPerSleepInfo);
	CHECK(first.psi[0].numSleeps == 1, "%d times", first.psi[0].numSleeps);
	CHECK(first.psi[0].blockedTime.tv_usec >= 20000, "blocked %ld",
	      (long)first.psi[0].blockedTime.tv_usec);
	CHECK(strlen(first.psi[0].wmesg) > 0, "no label");
	CHECK(strstr(first.psi[0].blockingFile, "nanosleep") && first.psi[0].blockingLine == 0,
	      "site %s:%d", first.psi[0].blockingFile, first.psi[0].blockingLine);
	CHECK(write(-1, "", 1) == -1 && DeBoxFetch() == 1, "no result");
	CHECK(first.syscallNum == SYS_write && first.numPerSleepInfo == 0, "call %d",
	      first.syscallNum);
}

static void buffers_and_limits_change(void)
{
	CHECK(DeBoxControl(&first, 5, 200) == 0, "%s", debox_last_error_text());
	sleep_ms(1);
	CHECK(DeBoxFetch() == 1 && first.numPerSleepInfo == 1, "first buffer");
	CHECK(DeBoxControl(&second, 0, 0) == 0, "second buffer");
	CHECK(DeBoxFetch() == 0 && second.syscallNum == 0, "an old result in a new buffer");
	syscall(SYS_getppid);
	CHECK(DeBoxFetch() == 1 && second.syscallNum == SYS_getppid, "second buffer");
	CHECK(first.syscallNum == SYS_nanosleep, "both buffers are written");
	sleep_ms(1);
	CHECK(DeBoxFetch() == 1 && second.numPerSleepInfo == 0, "limit 0");
}

static void null_deactivates(void)
{
	CHECK(DeBoxControl(NULL, 0, 0) == 0, "nothing to end");
	CHECK(DeBoxControl(&first, 5, 0) == 0, "%s", debox_last_error_text());
	CHECK(DeBoxControl(NULL, 0, 0) == 0, "end");
	CHECK(DeBoxFetch() == -1 && errno == EINVAL, "ended");
	CHECK(debox_disable() == DEBOX_ERROR_NOT_ENABLED, "the session was left open");
	CHECK(DeBoxControl(&second, 5, 0) == 0, "once more");
	sleep_ms(1);
	CHECK(DeBoxFetch() == 1 && second.numPerSleepInfo == 1, "once more");
	CHECK(DeBoxControl(NULL, 0, 0) == 0, "end");

	enable();
	CHECK(DeBoxControl(&first, 5, 0) == 0 && DeBoxControl(NULL, 0, 0) == 0, "inside a session");
	CHECK(debox_disable() == 0, "somebody else's session was ended");
}

static void privilege_is_needed(void)
{
	CHECK(!setuid(65534), "setuid");
	CHECK(DeBoxControl(&first, 5, 0) == -1 && errno == EPERM, "errno %d", errno);
}

/* A result whose site is known takes no call: only the program's own are counted. */
static void warm_fetches_are_no_call(void)
{
	unsigned long long before;

	CHECK(DeBoxControl(&first, 5, 0) == 0, "%s", debox_last_error_text());
	sleep_ms(1);
	CHECK(DeBoxFetch() == 1, "no result");
	syscall(SYS_getppid); /* the look-up's own calls have numbers before this one */
	before = debox_last()->number;
	for (int i = 0; i < 20; i++) {
		sleep_ms(1);
		CHECK(DeBoxFetch() == 1 && first.numPerSleepInfo == 1, "no result");
	}
	CHECK(debox_last()->number == before + 20, "%llu calls",
	      (unsigned long long)debox_last()->number - before);
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"results", results_are_those_of_2004},
		{"buffers", buffers_and_limits_change},
		{"null", null_deactivates},
		{"privilege", privilege_is_needed},
		{"warm", warm_fetches_are_no_call},
	};

	return run_check(checks, sizeof(checks) / sizeof(checks[0]), argc > 1 ? argv[1] : NULL);
}
