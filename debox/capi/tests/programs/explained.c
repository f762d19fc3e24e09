/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * explained.c: debox_enable() has read what explanations need, and the work of explaining counts as
 * the library's own.
 */
#include "checks.h"

#include <fcntl.h>
#include <sys/stat.h>

/* The record of a sleep, after it. */
static struct debox_record nap(void)
{
	const struct debox_record *last;

	for (;;) {
		sleep_ms(10);
		last = debox_last();
		CHECK(last && last->call == SYS_nanosleep, "call %d", last ? last->call : -1);
		/* Some virtual machines hide the place of a sleep. */
		if (last->sleeps_used && last->sleeps[0].stack)
			return *last;
	}
}

static void explain(const struct debox_record *record)
{
	struct debox_explanation out;
	int error = debox_explain(record, 0, &out);

	CHECK(!error, "%s: %s", debox_strerror(error), debox_last_error_text());
	CHECK(!strcmp(out.label, "timer") && !strcmp(out.wait_class, "idle"), "%s: %s in %s",
	      out.label, out.wait_class, out.function);
	CHECK(strstr(out.function, "nanosleep"), "%s", out.function);
	CHECK(out.offset > 0 && out.offset < 0x10000, "offset %llx",
	      (unsigned long long)out.offset);
}

static void in_another_root(void)
{
	char root[] = "/tmp/debox-root-XXXXXX";
	int outside = open("/", O_PATH | O_CLOEXEC);
	struct debox_record record;

	enable();
	CHECK(mkdtemp(root) && !chroot(root) && !chdir("/"), "chroot");
	/* It stays this process's root, but no directory is left behind. */
	CHECK(!unlinkat(outside, root + 1, AT_REMOVEDIR), "%s", strerror(errno));
	record = nap();
	explain(&record);
}

static void without_privilege(void)
{
	struct debox_record record;

	enable();
	CHECK(!setgid(65534) && !setuid(65534), "setuid");
	CHECK(open("/etc/shadow", O_RDONLY) == -1, "there is privilege left");
	record = nap();
	explain(&record);
}

static struct debox_sums end_of(const struct debox_scope *scope)
{
	struct debox_sums sums;
	const struct debox_budget *budget = &sums.budget;
	int error = debox_scope_end(scope, &sums);

	CHECK(!error, "%s", debox_strerror(error));
	CHECK(budget->cpu_ns + budget->blocked_ns + budget->runqueue_ns + budget->preempted_ns +
			      budget->irq_ns ==
		      sums.wall_ns,
	      "the parts are not %llu", (unsigned long long)sums.wall_ns);
	return sums;
}

static unsigned long long faults_of(const struct debox_sums *sums)
{
	return sums->faults_minor + sums->faults_major;
}

/* The very first explanation, and others, in nested scopes. */
static void in_a_scope(void)
{
	struct debox_scope outer, inner, with_faults;
	struct debox_record record;
	struct debox_sums sums;

	enable();
	record = nap();
	CHECK(!debox_scope_begin(&with_faults, DEBOX_SCOPE_ALL_FAULTS), "begin");
	CHECK(!debox_scope_begin(&outer, 0), "begin");
	syscall(SYS_getppid);
	CHECK(!debox_scope_begin(&inner, 0), "begin");
	explain(&record);
	sums = end_of(&inner);
	CHECK(sums.calls == 0 && sums.sleeps == 0 && sums.in_calls.cpu_ns == 0,
	      "%llu calls, %llu ns", (unsigned long long)sums.calls,
	      (unsigned long long)sums.in_calls.cpu_ns);
	CHECK(sums.wall_ns < MS, "%llu ns", (unsigned long long)sums.wall_ns);
	syscall(SYS_getppid);
	explain(&record);
	sums = end_of(&outer);
	CHECK(sums.calls == 2, "%llu calls", (unsigned long long)sums.calls);
	CHECK(sums.wall_ns < 2 * MS, "%llu ns", (unsigned long long)sums.wall_ns);
	/* What does happen in a scope still counts. */
	sleep_ms(20);
	sums = end_of(&outer);
	CHECK(sums.calls == 3 && sums.budget.blocked_ns > 15 * MS, "%llu calls, %llu ns",
	      (unsigned long long)sums.calls, (unsigned long long)sums.budget.blocked_ns);
	sums = end_of(&with_faults);
	CHECK(faults_of(&sums) < 50, "%llu faults", faults_of(&sums));
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"root", in_another_root},
		{"privilege", without_privilege},
		{"scope", in_a_scope},
	};

	return run_check(checks, sizeof(checks) / sizeof(*checks), argc > 1 ? argv[1] : NULL);
}
