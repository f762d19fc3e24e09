/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * socket_wait unix|tcp accept|recv|poll|polls|select|send MS: one side waits in accept4, recvfrom,
 * poll, select or sendto; the thread "peer" ends the wait a known time later by connecting, sending
 * or receiving. With "polls" and "select" it waits for a pipe, too, which stays empty.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "known.h"

static struct appointment *with;
static uint64_t wait_ns;
static const char *what;
static union {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_un un;
} address;
static socklen_t address_size;
static char bulk[65536];
static _Atomic int finished;

static void *peer(void *unused)
{
	int fd = socket(address.any.sa_family, SOCK_STREAM, 0);
	struct iovec part = {bulk, sizeof(bulk)};

	(void)unused;
	prctl(PR_SET_NAME, "peer");
	MUST(fd >= 0);
	if (!strcmp(what, "accept"))
		meet_and_pass(with, wait_ns);
	MUST(connect(fd, &address.any, address_size) == 0);
	if (!strcmp(what, "recv") || !strncmp(what, "poll", 4) || !strcmp(what, "select")) {
		meet_and_pass(with, wait_ns);
		MUST(send(fd, "x", 1, 0) == 1);
	} else if (!strcmp(what, "send")) {
		meet_and_pass(with, wait_ns);
		while (!atomic_load(&finished) && readv(fd, &part, 1) > 0)
			;
	}
	return NULL;
}

static uint64_t wait_for_one_of_two(int connection)
{
	int empty[2];
	struct pollfd waiting[2];
	uint64_t before;
	fd_set set;

	MUST(pipe(empty) == 0);
	waiting[0] = (struct pollfd){empty[0], POLLIN, 0};
	waiting[1] = (struct pollfd){connection, POLLIN, 0};
	FD_ZERO(&set);
	FD_SET(empty[0], &set);
	FD_SET(connection, &set);
	before = keep_appointment(with);
	if (!strcmp(what, "polls"))
		MUST(poll(waiting, 2, -1) == 1);
	else
		MUST(select(FD_SETSIZE, &set, NULL, NULL, NULL) == 1);
	return before;
}

/* Fills the socket until it takes no more, then sends once more and waits. */
static uint64_t send_into_full(int fd)
{
	uint64_t before;

	while (sendmsg(fd,
		       &(struct msghdr){.msg_iov = &(struct iovec){bulk, 4096}, .msg_iovlen = 1},
		       MSG_DONTWAIT) > 0)
		;
	/* Loopback hands data on by itself for a moment: let it settle, then fill up once more. */
	pass_ns(20 * MILLISECOND);
	while (sendmsg(fd,
		       &(struct msghdr){.msg_iov = &(struct iovec){bulk, 4096}, .msg_iovlen = 1},
		       MSG_DONTWAIT) > 0)
		;
	before = keep_appointment(with);
	MUST(send(fd, bulk, sizeof(bulk), 0) == sizeof(bulk));
	return before;
}

int main(int argc, char **argv)
{
	int tcp = argc > 1 && !strcmp(argv[1], "tcp"), listener, connection;
	uint64_t before = 0;
	pthread_t thread;
	char byte;

	facts_start();
	what = argc > 2 ? argv[2] : "recv";
	wait_ns = argument(argc, argv, 3, 200) * MILLISECOND;
	with = new_appointment();
	if (tcp) {
		address.in.sin_family = AF_INET;
		address.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		address_size = sizeof(address.in);
	} else {
		address.un.sun_family = AF_UNIX;
		/* The kernel chooses an abstract name: nothing is left in the file system. */
		address_size = sizeof(sa_family_t);
	}
	listener = socket(address.any.sa_family, SOCK_STREAM, 0);
	MUST(listener >= 0 && bind(listener, &address.any, address_size) == 0);
	address_size = sizeof(address);
	MUST(getsockname(listener, &address.any, &address_size) == 0 && listen(listener, 8) == 0);
	MUST(pthread_create(&thread, NULL, peer, NULL) == 0);
	if (!strcmp(what, "accept"))
		before = keep_appointment(with);
	connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	MUST(connection >= 0);
	if (!strcmp(what, "recv")) {
		before = keep_appointment(with);
		MUST(recv(connection, &byte, 1, 0) == 1);
	} else if (!strcmp(what, "poll")) {
		struct pollfd waiting = {connection, POLLIN, 0};

		before = keep_appointment(with);
		MUST(poll(&waiting, 1, -1) == 1);
		fact("port", ntohs(address.in.sin_port));
	} else if (!strcmp(what, "polls") || !strcmp(what, "select")) {
		before = wait_for_one_of_two(connection);
		fact("port", ntohs(address.in.sin_port));
	} else if (!strcmp(what, "send")) {
		before = send_into_full(connection);
	}
	end_appointment(with, before);
	atomic_store(&finished, 1);
	shutdown(connection, SHUT_RDWR);
	MUST(pthread_join(thread, NULL) == 0);
	fact_appointment(with);
	facts_end();
	return 0;
}
