/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a client without privilege may say to the broker's socket beyond what debox says.
 *
 * broker_client slow SOCKET         asks and never reads, until the broker has had enough
 * broker_client idle SOCKET PROGRAM N...  keeps the records of a program and fetches none, until it
 *                                     has ended
 * broker_client nonsense SOCKET     everything that is no request, in a session of its own
 * broker_client others SOCKET PID...  asks for processes that are not its children, and for others'
 *                                     runs
 * broker_client often SOCKET        asks more often than it may
 * broker_client keep SOCKET         keeps the slots of runs that are over
 * broker_client beside SOCKET       is answered while probes are loaded for another connection
 * broker_client flood SOCKET        connects for two seconds as often as it can
 * broker_client greet SOCKET        is greeted
 * broker_client hundred SOCKET      connects a hundred times, and is greeted the last time
 * broker_client serve SOCKET        a false broker: says nothing, listens
 *
 * The packets are those of debox/engine/src/broker/protocol.rs, put together by hand: the number of
 * the kind of request, then its fields; integers take seven bits a byte, the lowest first.
 */
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "known.h"

enum request {
	HELLO,
	ENABLE,
	FRAMES,
	RUN,
	ENROL,
	EVENTS,
	WRAPPER,
	ALIVE,
	REPORT,
	SHAPE,
	RECORDS,
	PLACE,
	RESOURCE,
	STOP,
	LOOK,
	ASLEEP,
};
enum reply {
	WELCOME,
	ENABLED,
	NAMED,
	REFUSED,
	RUNNING,
	ENROLLED,
	SEEN,
	COUNTED,
	REPORTED,
	STACK,
	NOT_ENROLLED,
	RECORDED,
	PLACED,
	DESCRIBED,
	STOPPED,
};

static const unsigned int VERSION =
#include "../../../engine/src/broker/version.h"
	;
#define BUFFER (64 << 10) /* the fewest bytes of records that may wait */
#define CHECKS_MAX 64	  /* by which a user stack is known again */

struct packet {
	unsigned char bytes[65536];
	size_t size;
};

static const char *path;

static void add(struct packet *packet, uint64_t number)
{
	while (number > 127) {
		packet->bytes[packet->size++] = (unsigned char)(number | 128);
		number >>= 7;
	}
	packet->bytes[packet->size++] = (unsigned char)number;
}

static uint64_t take(struct packet *packet, size_t *at)
{
	uint64_t number = 0;

	for (int shift = 0; *at < packet->size; shift += 7) {
		unsigned char byte = packet->bytes[(*at)++];

		number |= (uint64_t)(byte & 127) << shift;
		if (byte < 128)
			break;
	}
	return number;
}

static int reach(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	MUST(fd >= 0);
	MUST(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	return fd;
}

/* `passed`: a descriptor that goes along, or -1. */
static int say(int fd, struct packet *packet, int passed, int flags)
{
	struct iovec part = {packet->bytes, packet->size};
	char control[CMSG_SPACE(sizeof(int))] = {};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (passed >= 0) {
		struct cmsghdr *head;

		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(head), &passed, sizeof(int));
	}
	return sendmsg(fd, &message, flags | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* The kind of the next reply, or -1 at the end of the connection. */
static int hear(int fd, struct packet *packet)
{
	struct pollfd waiting = {fd, POLLIN, 0};
	ssize_t got;
	size_t at = 0;

	MUST(poll(&waiting, 1, 30000) == 1);
	got = recv(fd, packet->bytes, sizeof(packet->bytes), 0);
	if (got <= 0)
		return -1;
	packet->size = (size_t)got;
	return (int)take(packet, &at);
}

static uint64_t greet(int fd)
{
	struct packet packet = {};
	size_t at = 1;

	add(&packet, HELLO);
	add(&packet, VERSION);
	MUST(say(fd, &packet, -1, 0) == 0);
	MUST(hear(fd, &packet) == WELCOME);
	MUST(take(&packet, &at) == VERSION);
	return take(&packet, &at);
}

static void add_text(struct packet *packet, const char *text)
{
	add(packet, strlen(text));
	memcpy(packet->bytes + packet->size, text, strlen(text));
	packet->size += strlen(text);
}

/* What a session is to do beyond a report. */
struct wish {
	uint32_t history;
	const char *trigger;
	int times; /* so often */
	bool is_live;
};

static int ask_for(int fd, uint64_t nonce, struct wish wish)
{
	struct packet packet = {};

	add(&packet, RUN);
	add(&packet, nonce);
	add(&packet, 0); /* not the user tap */
	add(&packet, 1); /* sleeps */
	add(&packet, 0);
	add(&packet, 64); /* threads */
	add(&packet, 0);
	add(&packet, 0);
	add(&packet, 0); /* not who had the CPU */
	add(&packet, 0);
	add(&packet, 0); /* does not attach */
	add(&packet, 0);
	add(&packet, wish.history);
	add(&packet, (uint64_t)wish.times);
	for (int i = 0; i < wish.times; i++)
		add_text(&packet, wish.trigger);
	add(&packet, wish.is_live);
	MUST(say(fd, &packet, -1, 0) == 0);
	return hear(fd, &packet);
}

static int ask_to_run(int fd, uint64_t nonce)
{
	return ask_for(fd, nonce, (struct wish){});
}

static int begin_run(void)
{
	int fd = reach();

	MUST(ask_to_run(fd, greet(fd)) == RUNNING);
	return fd;
}

static int begin_session(struct wish wish)
{
	int fd = reach();

	MUST(ask_for(fd, greet(fd), wish) == RUNNING);
	return fd;
}

/* A refusal, or nothing, and then the end of the connection. */
static void must_end(int fd)
{
	struct packet packet;
	int kind = hear(fd, &packet);

	if (kind != -1) {
		MUST(kind == REFUSED);
		MUST(hear(fd, &packet) == -1);
	}
	close(fd);
}

static int name_process(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	MUST(fd >= 0);
	return fd;
}

static int enrol(int fd, pid_t pid, bool is_running)
{
	struct packet packet = {};

	add(&packet, ENROL);
	add(&packet, is_running);
	MUST(say(fd, &packet, name_process(pid), 0) == 0);
	return hear(fd, &packet);
}

/* How many threads of a process are monitored. */
static uint64_t count_alive(int fd, pid_t pid)
{
	struct packet packet = {};
	size_t at = 1;

	add(&packet, ALIVE);
	add(&packet, (uint64_t)pid);
	MUST(say(fd, &packet, -1, 0) == 0);
	MUST(hear(fd, &packet) == COUNTED);
	return take(&packet, &at);
}

/* Asks for more than the socket holds the answers to. */
static void be_slow(void)
{
	int fd = begin_run();
	struct pollfd waiting = {fd, 0, 0};
	struct packet packet = {};

	add(&packet, EVENTS);
	add(&packet, 0);
	printf("ready\n");
	fflush(stdout);
	while (poll(&waiting, 1, 10) == 0) {
		while (say(fd, &packet, -1, MSG_DONTWAIT) == 0)
			;
	}
}

/* How a user stack is known again, by noise. */
static void add_shape(struct packet *packet, int checks)
{
	add(packet, SHAPE);
	/* Where it is: the code, the process, its program, the depth, and which of several. */
	add(packet, ~0ULL);
	add(packet, 0xffffffff);
	add(packet, 0xffff);
	packet->bytes[packet->size++] = 0xff;
	packet->bytes[packet->size++] = 0xff;
	/* Its name, and the words. */
	add(packet, ~0ULL);
	add(packet, (uint64_t)checks);
	for (int i = 0; i < checks; i++) {
		add(packet, ~0ULL >> (checks > CHECKS_MAX ? 57 : 0));
		add(packet, 0xfff);
	}
}

static void talk_nonsense(void)
{
	struct packet packet;
	int fd, null = open("/dev/null", O_RDONLY);

	for (int kind = 0; kind < 14; kind++) {
		int passed = -1;

		fd = begin_run();
		packet.size = 0;
		switch (kind) {
		case 0: /* a kind that there is not */
			add(&packet, 77);
			break;
		case 1: /* more than there is to say */
			add(&packet, EVENTS);
			add(&packet, 0);
			add(&packet, 0);
			break;
		case 2: /* cut off */
			add(&packet, WRAPPER);
			add(&packet, 1);
			break;
		case 3: /* longer than any request */
			memset(packet.bytes, REPORT, sizeof(packet.bytes));
			packet.size = sizeof(packet.bytes);
			break;
		case 4: /* nobody to enrol */
			add(&packet, ENROL);
			add(&packet, 0);
			break;
		case 5: /* what is not a process */
			add(&packet, ENROL);
			add(&packet, 0);
			passed = null;
			break;
		case 6: /* a request of another place in the conversation */
			add(&packet, HELLO);
			add(&packet, VERSION);
			break;
		case 7: /* a stack with more checks than there are, and one that is cut */
			add_shape(&packet, CHECKS_MAX + 1);
			break;
		case 8:
			add_shape(&packet, CHECKS_MAX);
			packet.size--;
			break;
		case 9: /* records of a session that keeps none */
			add(&packet, RECORDS);
			break;
		case 10: /* monitoring ends once */
			add(&packet, STOP);
			MUST(say(fd, &packet, -1, 0) == 0);
			MUST(hear(fd, &packet) == STOPPED);
			packet.size = 0;
			add(&packet, STOP);
			break;
		case 11: /* and does not begin again */
			add(&packet, STOP);
			MUST(say(fd, &packet, -1, 0) == 0);
			MUST(hear(fd, &packet) == STOPPED);
			packet.size = 0;
			add(&packet, ENROL);
			add(&packet, 1);
			passed = name_process(getpid());
			break;
		case 12: /* a look in a session that is for none */
			add(&packet, LOOK);
			break;
		case 13: /* stacks without a look */
			add(&packet, ASLEEP);
			break;
		}
		MUST(say(fd, &packet, passed, 0) == 0);
		must_end(fd);
	}
	/* What makes no sense and does no harm: an address of a process that there is not, and a
	 * stack. */
	fd = begin_run();
	packet.size = 0;
	add(&packet, WRAPPER);
	add(&packet, 0xffffffff);
	add(&packet, ~0ULL);
	add(&packet, 1);
	add(&packet, 0xffffffff);
	MUST(say(fd, &packet, -1, 0) == 0);
	packet.size = 0;
	add_shape(&packet, CHECKS_MAX);
	MUST(say(fd, &packet, -1, 0) == 0);
	MUST(count_alive(fd, 0) == 0);
	/* Names that nothing has. */
	packet.size = 0;
	add(&packet, PLACE);
	add(&packet, 4711);
	MUST(say(fd, &packet, -1, 0) == 0);
	MUST(hear(fd, &packet) == PLACED);
	MUST(packet.size == 3 && packet.bytes[1] == 0 && packet.bytes[2] == 0);
	packet.size = 0;
	add(&packet, RESOURCE);
	for (int field = 0; field < 8; field++)
		add(&packet, 4711);
	MUST(say(fd, &packet, -1, 0) == 0);
	MUST(hear(fd, &packet) == DESCRIBED);
	for (size_t at = 1; at < packet.size; at++)
		MUST(packet.bytes[at] == 0);
	close(fd);
	/* Triggers that are none, and more than there may be. */
	for (int i = 0; i < 3; i++) {
		static const char *const wrong[] = {"wal > 1ms", "((((((((", "wall > 1ms"};

		fd = reach();
		struct wish wish = {.trigger = wrong[i], .times = i == 2 ? 9 : 1};

		MUST(ask_for(fd, greet(fd), wish) == REFUSED);
		must_end(fd);
	}
}

/* Starts a program whose records are kept, and fetches none of them until it has ended. */
static void be_idle(char **command)
{
	struct packet packet = {};
	int fd = begin_session((struct wish){.history = BUFFER}), gate[2], status;
	uint64_t parts, lost = 0;
	size_t at;
	pid_t child;

	MUST(pipe(gate) == 0);
	child = fork();
	if (child == 0) {
		char go;

		MUST(read(gate[0], &go, 1) == 1);
		execv(command[0], command);
		_exit(127);
	}
	MUST(enrol(fd, child, false) == ENROLLED);
	MUST(write(gate[1], "g", 1) == 1);
	MUST(waitpid(child, &status, 0) == child && status == 0);
	packet.size = 0;
	add(&packet, STOP);
	MUST(say(fd, &packet, -1, 0) == 0);
	MUST(hear(fd, &packet) == STOPPED);
	uint64_t fetched = 0;
	do {
		packet.size = 0;
		add(&packet, RECORDS);
		MUST(say(fd, &packet, -1, 0) == 0);
		MUST(hear(fd, &packet) == RECORDED);
		at = 1;
		parts = take(&packet, &at);
		fetched += parts;
	} while (parts > 0);
	/* Nothing but the losses: calls, sleeps, and that there is no more. */
	lost = take(&packet, &at);
	printf("fetched %llu\nlost %llu\n", (unsigned long long)fetched, (unsigned long long)lost);
	close(fd);
}

static void ask_for_others(char **pids)
{
	struct packet packet = {};
	int fd, status;
	pid_t child;

	for (; *pids; pids++) {
		fd = begin_run();
		MUST(enrol(fd, atoi(*pids), false) == REFUSED);
		close(fd);
		/* Of one that runs it is not said why it is not monitored: it may have ended. */
		fd = begin_run();
		MUST(enrol(fd, atoi(*pids), true) == ENROLLED);
		MUST(count_alive(fd, atoi(*pids)) == 0);
		close(fd);
	}
	/* Itself is not its child either, and one that runs is. */
	fd = begin_run();
	MUST(enrol(fd, getpid(), false) == REFUSED);
	close(fd);
	child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	fd = begin_run();
	MUST(enrol(fd, child, true) == ENROLLED);
	MUST(count_alive(fd, child) == 1);
	close(fd);
	MUST(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
	/* A run is its connection: there is no other way to ask for one. */
	fd = reach();
	greet(fd);
	add(&packet, REPORT);
	add(&packet, 1);
	MUST(say(fd, &packet, -1, 0) == 0);
	must_end(fd);
	/* Who connected is who asks. */
	fd = reach();
	child = fork();
	if (child == 0)
		_exit(ask_to_run(fd, greet(fd)) == REFUSED ? 0 : 1);
	MUST(waitpid(child, &status, 0) == child && status == 0);
	/* With a number that was not given. */
	fd = reach();
	MUST(ask_to_run(fd, greet(fd) ^ 1) == REFUSED);
}

/* Two hundred requests in 20 ms are answered, and two reports in a second. */
static void ask_often(void)
{
	struct packet packet = {};
	int fd = begin_run();
	uint64_t begin = now_ns(), size, got = 0;
	size_t at = 1;

	add(&packet, WRAPPER);
	for (int field = 0; field < 4; field++)
		add(&packet, 0);
	for (int asked = 0; asked < 4000; asked++)
		MUST(say(fd, &packet, -1, 0) == 0);
	count_alive(fd, 0);
	MUST(now_ns() - begin >= 19 * 20 * MILLISECOND);
	packet.size = 0;
	add(&packet, REPORT);
	add(&packet, 0);
	MUST(say(fd, &packet, -1, 0) == 0);
	MUST(say(fd, &packet, -1, 0) == 0);
	MUST(hear(fd, &packet) == REPORTED);
	size = take(&packet, &at);
	while (got < size) {
		MUST(hear(fd, &packet) >= 0);
		got += packet.size;
	}
	MUST(got == size && size > 0);
	MUST(hear(fd, &packet) == REFUSED);
	must_end(fd);
	/* Ten looks in a second are as many as there may be, and two at once are not. */
	fd = begin_session((struct wish){.is_live = true});
	for (int looks = 0; looks < 3; looks++) {
		packet.size = 0;
		add(&packet, LOOK);
		MUST(say(fd, &packet, -1, 0) == 0);
		if (looks == 2)
			break;
		at = 1;
		MUST(hear(fd, &packet) == REPORTED);
		for (size = take(&packet, &at), got = 0; got < size; got += packet.size)
			MUST(hear(fd, &packet) >= 0);
		if (looks == 0)
			pass_ns(100 * MILLISECOND);
	}
	must_end(fd);
}

/* What a reply brought along, or -1. */
static int hear_descriptor(int fd, int *kind)
{
	struct packet packet = {};
	struct iovec part = {packet.bytes, sizeof(packet.bytes)};
	char control[CMSG_SPACE(sizeof(int))] = {};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	int passed = -1;

	*kind = recvmsg(fd, &message, 0) > 0 ? packet.bytes[0] : -1;
	if (CMSG_FIRSTHDR(&message))
		memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	if (*kind == REFUSED)
		fprintf(stderr, "%s\n", (char *)packet.bytes + (packet.bytes[1] > 127 ? 3 : 2));
	return passed;
}

/* Ends run after run and keeps the slots of each, until that is refused; then waits to be killed.
 */
static void keep_slots(void)
{
	struct packet packet;
	int kind = RUNNING, kept = 0;

	while (kind == RUNNING && kept < 50) {
		int fd = reach();
		uint64_t nonce = greet(fd);

		packet.size = 0;
		add(&packet, RUN);
		add(&packet, nonce);
		add(&packet, 1); /* the user tap */
		add(&packet, 0);
		add(&packet, 0);
		add(&packet, 512); /* threads */
		add(&packet, 0);
		add(&packet, 0);
		add(&packet, 0);
		add(&packet, 0);
		add(&packet, 0); /* does not attach */
		add(&packet, 0);
		add(&packet, 0); /* no records */
		add(&packet, 0); /* no triggers */
		add(&packet, 0); /* no looks */
		MUST(say(fd, &packet, -1, 0) == 0);
		if (hear_descriptor(fd, &kind) >= 0) {
			MUST(hear_descriptor(fd, &kind) >= 0);
			kept++;
		}
		/* The broker closes its side when the run is over. */
		shutdown(fd, SHUT_WR);
		hear(fd, &packet);
		close(fd);
	}
	printf("kept %d\n", kept);
	fflush(stdout);
	pause();
}

static void ask_beside(void)
{
	struct packet packet = {};
	int loading = reach(), other;
	uint64_t nonce = greet(loading);
	unsigned char byte;

	add(&packet, ENABLE);
	add(&packet, nonce);
	add(&packet, 0); /* not the user tap */
	add(&packet, 1); /* sleeps */
	add(&packet, 1); /* interrupts, which few ask for */
	add(&packet, 4); /* threads */
	MUST(say(loading, &packet, -1, 0) == 0);
	other = reach();
	greet(other);
	MUST(recv(loading, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN);
	MUST(hear(loading, &packet) == ENABLED);
}

static void flood(void)
{
	uint64_t end = now_ns() + 2000 * MILLISECOND;
	int count = 0;

	for (; now_ns() < end; count++)
		close(reach());
	printf("%d connections\n", count);
}

static void hundred(void)
{
	for (int count = 1; count < 100; count++)
		close(reach());
	greet(reach());
}

static void serve(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	MUST(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	MUST(chmod(path, 0666) == 0);
	MUST(listen(fd, 8) == 0);
	printf("ready\n");
	fflush(stdout);
	pause();
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	path = argv[2];
	if (!strcmp(what, "slow"))
		be_slow();
	else if (!strcmp(what, "idle") && argc > 3)
		be_idle(argv + 3);
	else if (!strcmp(what, "nonsense"))
		talk_nonsense();
	else if (!strcmp(what, "others") && argc > 3)
		ask_for_others(argv + 3);
	else if (!strcmp(what, "often"))
		ask_often();
	else if (!strcmp(what, "keep"))
		keep_slots();
	else if (!strcmp(what, "beside"))
		ask_beside();
	else if (!strcmp(what, "flood"))
		flood();
	else if (!strcmp(what, "greet"))
		greet(reach());
	else if (!strcmp(what, "hundred"))
		hundred();
	else if (!strcmp(what, "serve"))
		serve();
	else
		return 2;
	return 0;
}
