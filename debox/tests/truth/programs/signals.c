/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * signals stop MS      a child is stopped inside read for MS, continued, and gets its byte MS later
 * signals eintr MS     a handler that makes calls interrupts nanosleep after MS
 * signals restart MS   a handler that makes calls interrupts read after MS; SA_RESTART, byte MS
 * later
 */
#include "known.h"

static struct appointment *with;
static int ends[2];
static uint64_t wait_ns;
static _Atomic int handled;

static void handler(int number)
{
	int saved = errno;

	(void)number;
	for (int i = 0; i < 7; i++)
		syscall(SYS_getppid);
	atomic_fetch_add(&handled, 1);
	errno = saved;
}

static void catch_signal(int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

	MUST(sigaction(SIGUSR1, &action, NULL) == 0);
}

static void stop_inside_read(void)
{
	uint64_t stopped_at, least_stopped;
	int status;
	pid_t child = fork();
	char byte;

	MUST(child >= 0);
	if (child == 0) {
		uint64_t before;

		prctl(PR_SET_NAME, "stopped");
		before = keep_appointment(with);
		MUST(read(ends[0], &byte, 1) == 1);
		end_appointment(with, before);
		_exit(0);
	}
	meet_and_pass(with, wait_ns);
	MUST(kill(child, SIGSTOP) == 0 && wait4(child, &status, WUNTRACED, NULL) == child);
	stopped_at = now_ns();
	pass_ns(wait_ns);
	least_stopped = now_ns() - stopped_at;
	atomic_store(&with->pid, child);
	atomic_store(&with->tid, child);
	MUST(kill(child, SIGCONT) == 0);
	meet_and_pass(with, wait_ns);
	MUST(write(ends[1], "x", 1) == 1 && wait4(child, &status, 0, NULL) == child);
	fact("child_tid", (uint64_t)child);
	fact("stopped_ns", least_stopped);
}

static void *interrupter(void *sleeper)
{
	prctl(PR_SET_NAME, "interrupter");
	meet_and_pass(with, wait_ns);
	MUST(pthread_kill(*(pthread_t *)sleeper, SIGUSR1) == 0);
	return NULL;
}

static void interrupt_nanosleep(void)
{
	struct timespec time = {60, 0};
	pthread_t self = pthread_self(), thread;
	uint64_t before;

	catch_signal(0);
	MUST(pthread_create(&thread, NULL, interrupter, &self) == 0);
	before = keep_appointment(with);
	MUST(syscall(SYS_nanosleep, &time, NULL) == -1 && errno == EINTR);
	end_appointment(with, before);
	MUST(pthread_join(thread, NULL) == 0);
}

static void *interrupter_then_writer(void *sleeper)
{
	interrupter(sleeper);
	while (!atomic_load(&handled))
		pass_ns(100000);
	atomic_store(&with->tid, atomic_load(&with->pid)); /* the main thread, asleep again */
	meet_and_pass(with, wait_ns);
	MUST(write(ends[1], "x", 1) == 1);
	return NULL;
}

static void interrupt_read(void)
{
	pthread_t self = pthread_self(), thread;
	uint64_t before;
	char byte;

	catch_signal(SA_RESTART);
	MUST(pthread_create(&thread, NULL, interrupter_then_writer, &self) == 0);
	before = keep_appointment(with);
	MUST(read(ends[0], &byte, 1) == 1);
	end_appointment(with, before);
	MUST(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "eintr";

	facts_start();
	wait_ns = argument(argc, argv, 2, 100) * MILLISECOND;
	with = new_appointment();
	MUST(pipe(ends) == 0);
	if (!strcmp(what, "stop"))
		stop_inside_read();
	else if (!strcmp(what, "eintr"))
		interrupt_nanosleep();
	else
		interrupt_read();
	fact("handled", (uint64_t)atomic_load(&handled));
	fact_appointment(with);
	facts_end();
	return 0;
}
