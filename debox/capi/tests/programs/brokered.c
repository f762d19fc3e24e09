/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a program without privilege sees through the broker, and that it gets no more than that. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "checks.h"

static const char *argument;

/* Waits until the condition holds. */
#define EVENTUALLY(condition, ...)                                                                 \
	do {                                                                                       \
		int tries_ = 0;                                                                    \
		while (!(condition)) {                                                             \
			CHECK(tries_++ < 1000, __VA_ARGS__);                                       \
			sleep_ms(10);                                                              \
		}                                                                                  \
	} while (0)

static int status_of(pid_t child)
{
	int status = -1;

	waitpid(child, &status, 0);
	return status;
}

/* The end of a read() that waited, as a record. */
static struct debox_record read_byte(int fd)
{
	char byte;

	CHECK(read(fd, &byte, 1) == 1, "read: %s", strerror(errno));
	CHECK(debox_last(), "no record");
	return *debox_last();
}

static void check_no_address(const struct debox_record *record)
{
	const __u64 *words = (const void *)record;

	for (size_t i = 0; i < sizeof(*record) / sizeof(*words); i++)
		CHECK(words[i] >> 47 != 0x1ffff || (__s64)words[i] >= -4095,
		      "word %zu is the address %llx", i, (unsigned long long)words[i]);
}

/*
 * Explains a sleep, and tries for a minute: attaching and detaching probes takes the broker
 * milliseconds, but seconds on an emulated processor. It answers no client in that time.
 */
static void explain(const struct debox_record *record, struct debox_explanation *explained)
{
	for (int try = 0; try < 6; try++) {
		if (debox_explain(record, 0, explained) == 0)
			return;
		CHECK(strstr(debox_last_error_text(), "does not answer"), "%s",
		      debox_last_error_text());
	}
	CHECK(0, "%s", debox_last_error_text());
}

/* The name of the place in the kernel is shown, but not its address. */
static void check_addresses(void)
{
	struct debox_explanation explained;
	struct debox_record last, record = {};

	enable();
	for (int round = 0; round < 20; round++) {
		/*
		 * Long enough that a thread on a busy machine has left the CPU before its timer
		 * rings.
		 */
		sleep_ms(20);
		CHECK(debox_last(), "no record");
		last = *debox_last();
		check_no_address(&last);
		CHECK(last.sleeps_used == 1, "%d sleeps", last.sleeps_used);
		/* Some virtual machines hide switches: then the place is not known. */
		if (last.sleeps[0].stack && last.sleeps[0].site)
			record = last;
	}
	CHECK(record.sleeps_used, "no sleep has a place");
	explain(&record, &explained);
	CHECK(strstr(explained.function, "nanosleep"), "%s", explained.function);
	record.sleeps[0].stack ^= 1; /* an unknown stack is not an error, and has no explanation */
	explain(&record, &explained);
	CHECK(!strcmp(explained.function, "unknown"), "%s", explained.function);
}

/* Until the parent sleeps, on a machine that may be slow. */
static void await_sleep_of_parent(void)
{
	char path[64], status[256], *state;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", getppid());
	for (int try = 0; try < 1000; try++) {
		sleep_ms(30);
		file = fopen(path, "r");
		CHECK(file && fgets(status, sizeof(status), file), "%s", path);
		fclose(file);
		state = strrchr(status, ')');
		if (state && state[2] == 'S')
			return;
	}
}

/* A waker of the same user has its name and number, as this PID namespace has it. */
static void check_own_waker(void)
{
	struct debox_record record;
	int pair[2];
	pid_t child;

	enable();
	CHECK(pipe(pair) == 0, "pipe");
	child = fork();
	if (!child) {
		prctl(PR_SET_NAME, "own child");
		await_sleep_of_parent();
		_exit(write(pair[1], "x", 1) != 1);
	}
	record = read_byte(pair[0]);
	CHECK(record.sleeps_used == 1, "%d sleeps", record.sleeps_used);
	CHECK(record.sleeps[0].waker_kind == DEBOX_WAKER_TASK, "kind %u",
	      record.sleeps[0].waker_kind);
	CHECK(record.sleeps[0].waker_tid == (__u32)child, "%u is not %d",
	      record.sleeps[0].waker_tid, child);
	CHECK(!strcmp(record.sleeps[0].waker_comm, "own child"), "%s", record.sleeps[0].waker_comm);
	CHECK(status_of(child) == 0, "the child");
}

/* Standard input is a pipe that another user writes to. */
static void check_others_waker(void)
{
	struct debox_record record;

	enable();
	CHECK(write(1, "ready\n", 6) == 6, "write");
	record = read_byte(0);
	CHECK(record.sleeps_used == 1, "%d sleeps", record.sleeps_used);
	CHECK(record.sleeps[0].waker_kind == DEBOX_WAKER_TASK, "kind %u",
	      record.sleeps[0].waker_kind);
	CHECK(record.sleeps[0].waker_tid == 0, "tid %u", record.sleeps[0].waker_tid);
	CHECK(!strcmp(record.sleeps[0].waker_comm, "(another user)"), "%s",
	      record.sleeps[0].waker_comm);
}

/* `argument` is a program that waits; whether it is monitored is the exit status. */
static void check_exec(void)
{
	struct debox_record records[4];
	pid_t child;
	int got = 0;

	enable();
	child = fork();
	if (!child) {
		execl(argument, argument, "wait", NULL);
		_exit(127);
	}
	EVENTUALLY(debox_history_of(child, records, 4) > 0 ||
			   debox_history_of(child, records, 4) == DEBOX_ERROR_NO_THREAD,
		   "nothing is told of the child");
	for (int i = 0; i < 50; i++) {
		sleep_ms(10);
		got = debox_history_of(child, records, 4);
	}
	kill(child, SIGKILL);
	status_of(child);
	if (got == DEBOX_ERROR_NO_THREAD)
		_exit(10);
	CHECK(got > 0, "%d records", got);
	_exit(11);
}

static void check_wait(void)
{
	for (int i = 0; i < 1000; i++)
		sleep_ms(10);
}

/* A process that others may not look into is not accepted. */
static void check_undumpable(void)
{
	prctl(PR_SET_DUMPABLE, 0);
	CHECK(debox_enable(NULL) == DEBOX_ERROR_SYSTEM, "let in");
	CHECK(strstr(debox_last_error_text(), "rights"), "%s", debox_last_error_text());
	prctl(PR_SET_DUMPABLE, 1);
	enable();
	sleep_ms(1);
	CHECK(debox_last(), "no record");
	/* And a process that becomes one is released. */
	prctl(PR_SET_DUMPABLE, 0);
	sleep_ms(1);
	CHECK(!debox_last() || debox_last()->call != SYS_nanosleep || debox_last()->number < 3,
	      "still monitored");
}

/* Run as a set-user-id program: its user is not its caller's. */
static void check_refused(void)
{
	CHECK(geteuid() != getuid(), "not set-user-id");
	CHECK(debox_enable(NULL) < 0, "let in");
}

/* --- The broker's own language, to misuse it. --- */

static int connect_broker(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strncpy(address.sun_path, getenv("DEBOX_BROKER"), sizeof(address.sun_path) - 1);
	if (fd >= 0 && connect(fd, (void *)&address, sizeof(address))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Sends a hello and returns the length of the answer, which is in `answer`. */
static ssize_t hello(int fd, unsigned char *answer, size_t room)
{
	static const unsigned char message[] = {
		0,
#include "../../../engine/src/broker/version.h"
	};

	if (send(fd, message, sizeof(message), MSG_NOSIGNAL) != sizeof(message))
		return -1;
	return recv(fd, answer, room, 0);
}

/* The request to be monitored, with the number out of the welcome. */
static int ask(int fd, const unsigned char *welcome, size_t length, unsigned char *answer,
	       size_t room)
{
	unsigned char message[64] = {1};
	size_t number = length - 2; /* after the kind and the version */

	memcpy(message + 1, welcome + 2, number);
	memcpy(message + 1 + number, "\0\1\0\10", 4); /* kernel tap, sleeps, no irq, 8 threads */
	CHECK(send(fd, message, number + 5, MSG_NOSIGNAL) == (ssize_t)number + 5, "send");
	return recv(fd, answer, room, 0) > 0 ? answer[0] : -1;
}

#define WELCOME 0
#define ENABLED 1
#define REFUSED 3

/*
 * The functions above do speak the broker's language: the misuses below fail for their own reasons.
 */
static void check_language(void)
{
	unsigned char welcome[256], answer[256];
	int fd = connect_broker();
	ssize_t length = hello(fd, welcome, sizeof(welcome));

	CHECK(length > 2 && welcome[0] == WELCOME, "%zd bytes", length);
	CHECK(ask(fd, welcome, length, answer, sizeof(answer)) == ENABLED, "not let in");
}

/* One process connects, and another asks: neither is enrolled. */
static void check_proxy(void)
{
	unsigned char welcome[256], answer[256];
	int fd = connect_broker();
	ssize_t length = hello(fd, welcome, sizeof(welcome));
	pid_t child = fork();

	if (!child)
		_exit(ask(fd, welcome, length, answer, sizeof(answer)));
	CHECK(status_of(child) == REFUSED << 8, "the child was heard");
}

/*
 * Runs as root, to choose process numbers: a process connects and ends; another one of the same
 * user gets its number and its connection, and asks.
 */
static void check_reused(void)
{
	struct {
		__u64 flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls,
			set_tid, set_tid_size, cgroup;
	} clone3 = {.exit_signal = SIGCHLD, .set_tid_size = 1};
	unsigned char *welcome =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned char answer[256];
	ssize_t *length = (void *)(welcome + 2048);
	int pair[2], fd;
	pid_t first, second;
	char control[CMSG_SPACE(sizeof(int))] = {}, byte;
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *header = (void *)control;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "socketpair");
	first = fork();
	if (!first) {
		CHECK(setresuid(65534, 65534, 65534) == 0, "setresuid");
		fd = connect_broker();
		*length = hello(fd, welcome, 256);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &fd, sizeof(int));
		_exit(sendmsg(pair[1], &message, 0) != 1);
	}
	CHECK(recvmsg(pair[0], &message, 0) == 1, "recvmsg");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	CHECK(status_of(first) == 0, "the first process");
	CHECK(*length > 2, "no welcome");
	clone3.set_tid = (uintptr_t)&first;
	second = syscall(SYS_clone3, &clone3, sizeof(clone3));
	CHECK(second >= 0, "clone3: %s", strerror(errno));
	if (!second) {
		CHECK(setresuid(65534, 65534, 65534) == 0, "setresuid");
		prctl(PR_SET_DUMPABLE, 1);
		_exit(ask(fd, welcome, *length, answer, sizeof(answer)));
	}
	CHECK(second == first, "%d is not %d", second, first);
	CHECK(status_of(second) == REFUSED << 8, "the second process was taken for the first");
}

/*
 * Messages that mean nothing, are too long, or are full of descriptors: the connection ends, and
 * nothing else happens.
 */
static void check_nonsense(void)
{
	unsigned char bytes[2048] = {0xff, 0xff, 0xff}, answer[256];
	int fds[200], fd;
	char control[CMSG_SPACE(sizeof(fds))] = {};
	struct iovec data = {bytes, 8};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *header = (void *)control;

	for (size_t length = 1; length <= sizeof(bytes); length += 187) {
		fd = connect_broker();
		CHECK(fd >= 0, "connect: %s", strerror(errno));
		CHECK(send(fd, bytes, length, MSG_NOSIGNAL) == (ssize_t)length, "send");
		while (recv(fd, answer, sizeof(answer), 0) > 0)
			CHECK(answer[0] == REFUSED, "answer %d", answer[0]);
		close(fd);
	}
	for (int i = 0; i < 200; i++)
		fds[i] = 0;
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(header), fds, sizeof(fds));
	for (int round = 0; round < 20; round++) {
		fd = connect_broker();
		CHECK(sendmsg(fd, &message, MSG_NOSIGNAL) == 8, "sendmsg");
		while (recv(fd, answer, sizeof(answer), 0) > 0)
			;
		close(fd);
	}
}

/* Connects again and again for so many milliseconds; prints how many connections were heard. */
static void check_flood(void)
{
	struct timespec now, start;
	unsigned char answer[256];
	long heard = 0, all = 0, limit = 2000;
	int fd;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		fd = connect_broker();
		if (fd >= 0 && hello(fd, answer, sizeof(answer)) > 0 && answer[0] == WELCOME)
			heard++;
		close(fd);
		all++;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 <
		 limit);
	printf("%ld connections, %ld heard\n", all, heard);
	CHECK(heard < 500, "%ld of %ld connections were heard", heard, all);
	CHECK(all > heard, "%ld connections", all);
}

/* Holds as many connections as it can get, silently, until it is told to end. */
static void check_hoard(void)
{
	int got = 0;
	char byte;

	for (int i = 0; i < 900; i++)
		got += connect_broker() >= 0;
	printf("%d\n", got);
	fflush(stdout);
	(void)!read(0, &byte, 1);
}

/* Fills its slots with noise until it is stopped. */
static void *scribble(void *given)
{
	unsigned long start, end, seed = 88172645463325252UL;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");

	(void)given;
	while (fgets(line, sizeof(line), maps)) {
		if (!strstr(line, "bpf-map") || sscanf(line, "%lx-%lx", &start, &end) != 2)
			continue;
		CHECK(strstr(line, "rw-s"), "%s", line);
		printf("scribbling\n");
		fflush(stdout);
		for (;;) {
			for (volatile unsigned long *at = (void *)start; at < (unsigned long *)end;
			     at++) {
				seed ^= seed << 13;
				seed ^= seed >> 7;
				seed ^= seed << 17;
				*at = seed;
			}
		}
	}
	CHECK(0, "no slots");
	return NULL;
}

static void check_scribble(void)
{
	struct debox_options options = {
		.size = sizeof(options), .max_threads = 4, .detail = DEBOX_DETAIL_SLEEPS};
	pthread_t thread;

	options.tap = argument && !strcmp(argument, "user") ? DEBOX_TAP_USER : DEBOX_TAP_KERNEL;
	CHECK(debox_enable(&options) == 0, "%s", debox_last_error_text());
	pthread_create(&thread, NULL, scribble, NULL);
	for (;;) {
		debox_call(SYS_getppid);
		debox_last();
		usleep(100);
	}
}

static int threads(void)
{
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");
	int count = 0;

	while (status && fgets(line, sizeof(line), status))
		sscanf(line, "Threads: %d", &count);
	fclose(status);
	return count;
}

/*
 * A program with one thread keeps having one: a second one would cost it something in nearly every
 * call.
 */
static void check_alone(void)
{
	enable();
	CHECK(threads() == 1, "%d threads", threads());
	sleep_ms(1);
	CHECK(debox_last() && debox_last()->call == SYS_nanosleep, "no record");
	CHECK(debox_disable() == 0, "%s", debox_last_error_text());
	CHECK(threads() == 1, "%d threads", threads());
}

static int has_record(void)
{
	sleep_ms(1);
	return debox_last() && debox_last()->call == SYS_nanosleep;
}

/*
 * A program that closes descriptors that it does not know, as daemons do, also closes the
 * connection. It notices and is enrolled again, and what it has opened under the same numbers stays
 * as it is.
 */
static void check_closes(void)
{
	char name[] = "own file 00";
	int fds[32], found;

	enable();
	CHECK(has_record(), "no record");
	CHECK(close_range(3, ~0U, 0) == 0, "close_range: %s", strerror(errno));
	for (int i = 0; i < 32; i++) {
		name[10] = 'a' + i;
		fds[i] = memfd_create(name, 0);
		CHECK(fds[i] == 3 + i, "descriptor %d", fds[i]);
	}
	EVENTUALLY(!has_record(), "old records");
	EVENTUALLY(has_record(), "no records any more");
	for (int i = 0; i < 32; i++) {
		char link[64], path[64] = "";

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fds[i]);
		found = readlink(link, path, sizeof(path) - 1);
		name[10] = 'a' + i;
		CHECK(found > 0 && strstr(path, name), "%s is %s", link, path);
	}
	CHECK(threads() == 1, "%d threads", threads());
}

static volatile int handled, handled_records;

static void look(int signal)
{
	(void)signal;
	handled++;
	errno = EXDEV;
	handled_records += debox_last() != NULL;
	CHECK(errno == EXDEV, "errno is %d", errno);
}

/*
 * Looks for its record in a signal handler at any moment, between and in malloc() and free(), and
 * prints the same as check_watch(). `argument` is the tap.
 */
static void check_handler(void)
{
	const char *told = getenv("DEBOX_TESTS_SLOWNESS");
	long slowness = told ? atol(told) : 1, pause = 1000 * slowness * slowness;
	struct itimerval often = {{0, pause}, {0, pause}};
	struct debox_options options = {.size = sizeof(options), .max_threads = 4};
	struct sigaction action = {.sa_handler = look, .sa_flags = SA_RESTART};
	int before = -1, now = 0, seen = 0;
	char *held[64] = {};

	options.tap = argument && !strcmp(argument, "user") ? DEBOX_TAP_USER : DEBOX_TAP_KERNEL;
	CHECK(debox_enable(&options) == 0, "%s", debox_last_error_text());
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (unsigned int round = 0;; round++) {
		char **place = &held[round % 64];

		free(*place);
		*place = malloc(16 + round % 5000);
		memset(*place, round, 16);
		debox_call(SYS_getppid);
		if (handled == seen)
			continue;
		seen = handled;
		if (seen % 10)
			continue;
		now = handled_records > 0;
		handled_records = 0;
		if (now != before) {
			printf(now ? "records\n" : "none\n");
			fflush(stdout);
		}
		before = now;
	}
}

/* A forked child notices, too, and may enable DeBox again; the parent tells it what to expect. */
static void check_child(void)
{
	char byte;

	enable();
	if (!fork()) {
		CHECK(has_record(), "the child has no record");
		printf("records\n");
		fflush(stdout);
		EVENTUALLY(!has_record(), "the child has old records");
		for (int i = 0; i < 50; i++)
			CHECK(!has_record(), "the child has records of the parent's");
		printf("none\n");
		fflush(stdout);
		CHECK(read(0, &byte, 1) == 1, "read");
		enable();
		CHECK(has_record(), "the child has no record with the new broker");
		_exit(0);
	}
	int status = 0;

	wait(&status);
	CHECK(status == 0, "the child: %d", status);
	EVENTUALLY(has_record(), "the parent has no records");
}

/* Prints whether it has records, each time that changes. */
static void check_watch(void)
{
	int before = -1, now;
	__u64 number = 0;

	enable();
	for (;;) {
		const struct debox_record *last;

		sleep_ms(5);
		last = debox_last();
		now = last && (last->number != number || before == -1);
		number = last ? last->number : 0;
		if (now != before)
			printf(now ? "records\n" : "none\n");
		fflush(stdout);
		before = now;
	}
}

static const struct check checks[] = {
	{"addresses", check_addresses},
	{"own_waker", check_own_waker},
	{"others_waker", check_others_waker},
	{"exec", check_exec},
	{"wait", check_wait},
	{"undumpable", check_undumpable},
	{"refused", check_refused},
	{"language", check_language},
	{"proxy", check_proxy},
	{"reused", check_reused},
	{"nonsense", check_nonsense},
	{"flood", check_flood},
	{"hoard", check_hoard},
	{"scribble", check_scribble},
	{"alone", check_alone},
	{"closes", check_closes},
	{"handler", check_handler},
	{"child", check_child},
	{"watch", check_watch},
};

int main(int argc, char **argv)
{
	argument = argc > 2 ? argv[2] : NULL;
	return run_check(checks, sizeof(checks) / sizeof(checks[0]), argc > 1 ? argv[1] : NULL);
}
