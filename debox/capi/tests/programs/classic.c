/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* classic.c: the interface of 2004. */
#include "checks.h"
#include "debox_2004.h"
#include <sys/mman.h>

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
	int trace = geteuid() == 0 ? 200 : 0; /* the broker's sessions have no call tree */

	CHECK(DeBoxControl(&first, 5, trace) == 0, "%s", debox_last_error_text());
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

/* Fetching a result whose site is known makes no call: only the program's own calls are counted. */
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

/*
 * Memory that is filled in during the call: dozens of functions are entered, or tracepoints passed.
 */
static void *fill_memory(void)
{
	void *memory = (void *)syscall(SYS_mmap, 0, 1 << 20, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	CHECK(memory != MAP_FAILED, "mmap");
	return memory;
}

static void calls_are_traced(void)
{
	struct debox_trace_entry entries[DEBOX_TRACE_MAX];
	struct debox_explanation explanation;
	struct debox_record record;
	int count;

	CHECK(debox_start_trace(NULL) == DEBOX_ERROR_NOT_ENABLED, "before a session");
	CHECK(DeBoxControl(&first, 5, 200) == 0, "%s", debox_last_error_text());
	fill_memory();
	CHECK(DeBoxFetch() == 1 && first.syscallNum == SYS_mmap, "call %d", first.syscallNum);
	CHECK(first.traceDepth > 0 && first.traceDepth <= 200, "%d entries", first.traceDepth);
	for (int i = 0; i < first.traceDepth; i++)
		CHECK(first.ct[i].callSite && first.ct[i].deltaTime >= 0, "entry %d", i);

	fill_memory();
	record = *debox_last();
	count = debox_trace(&record, entries, DEBOX_TRACE_MAX);
	CHECK(count == record.trace_used && count > 0, "%d of %d entries", count,
	      record.trace_used);
	for (int i = 0; i < count; i++) {
		CHECK(entries[i].kind <= DEBOX_TRACE_EVENT, "kind %d", entries[i].kind);
		CHECK(entries[i].delta_ns <= record.wall_ns, "longer than its call");
		CHECK(entries[i].kind == DEBOX_TRACE_FUNCTION || !entries[i].delta_ns, "a time");
	}
	CHECK(debox_trace(&record, entries, 1) == 1, "room for one");
	CHECK(debox_explain_trace(&entries[0], &explanation) == 0, "%s", debox_last_error_text());
	CHECK(explanation.function[0] && explanation.function[0] != '0', "no name");

	CHECK(DeBoxControl(&second, 5, 1) == 0, "%s", debox_last_error_text());
	fill_memory();
	CHECK(DeBoxFetch() == 1 && second.traceDepth == 1, "%d entries", second.traceDepth);
	CHECK(debox_last()->trace_lost > 0, "what did not fit is not counted");
	syscall(SYS_getppid);
	CHECK(debox_last()->trace_lost == 0, "counted for another call");
}

/*
 * A thread keeps a limited number of entries: those of an old call are gone, and are not replaced
 * by another call's.
 */
static void old_entries_are_gone(void)
{
	struct debox_trace_entry entries[DEBOX_TRACE_MAX];
	struct debox_record record;

	CHECK(DeBoxControl(&first, 5, 200) == 0, "%s", debox_last_error_text());
	fill_memory();
	record = *debox_last();
	CHECK(debox_trace(&record, entries, DEBOX_TRACE_MAX) == record.trace_used, "no entries");
	CHECK(record.trace_used > 100, "%d entries", record.trace_used);
	for (int i = 0; i < 3; i++)
		fill_memory();
	CHECK(debox_trace(&record, entries, DEBOX_TRACE_MAX) == 0, "another call's entries");
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"results", results_are_those_of_2004},
		{"buffers", buffers_and_limits_change},
		{"null", null_deactivates},
		{"privilege", privilege_is_needed},
		{"warm", warm_fetches_are_no_call},
		{"trace", calls_are_traced},
		{"old", old_entries_are_gone},
	};

	return run_check(checks, sizeof(checks) / sizeof(checks[0]), argc > 1 ? argv[1] : NULL);
}
