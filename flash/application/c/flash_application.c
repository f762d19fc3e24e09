// SPDX-License-Identifier: MIT OR Apache-2.0
// The process's side of the channel, and its requests. answer.c has their answers.
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CHANNEL "FLASH_APPLICATION"

static volatile sig_atomic_t ends;

static void end_comes(int signal)
{
	(void)signal;
	ends = 1;
}

static bool listens(int descriptor)
{
	int value = 0;
	socklen_t length = sizeof(value);

	return !getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) && value;
}

bool say(struct flash_application *app, const struct said *said)
{
	ssize_t sent;

	do
		sent = send(app->channel, said, sizeof(*said), MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent == sizeof(*said);
}

struct flash_application *flash_application_open(int descriptor)
{
	const char *number = getenv(CHANNEL);
	struct sigaction action = {.sa_handler = end_comes};
	struct flash_application *app;

	if (descriptor < 0) {
		if (!number) {
			errno = ENOTCONN;
			return NULL;
		}
		descriptor = atoi(number);
		unsetenv(CHANNEL);
	}
	if (fcntl(descriptor, F_SETFD, FD_CLOEXEC) < 0)
		return NULL;
	app = calloc(1, sizeof(*app));
	if (!app)
		return NULL;
	app->listener = app->channel = -1;
	// Not restarted: a process that waits for a request ends at once.
	sigaction(SIGTERM, &action, NULL);
	// sendfile cannot be told to leave it out.
	signal(SIGPIPE, SIG_IGN);
	if (listens(descriptor)) {
		app->listener = descriptor;
		return app;
	}
	app->channel = descriptor;
	if (!say(app, &(struct said){.version = VERSION, .kind = HELLO})) {
		flash_application_close(app);
		return NULL;
	}
	return app;
}

int flash_application_listen(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int made, failed;
	mode_t before;

	if (strlen(path) >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(address.sun_path, path);
	made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (made < 0)
		return -1;
	before = umask(0117);
	failed = bind(made, (struct sockaddr *)&address, sizeof(address));
	umask(before);
	if (failed || listen(made, 256)) {
		close(made);
		return -1;
	}
	return made;
}

void flash_application_close(struct flash_application *app)
{
	if (!app)
		return;
	if (app->channel >= 0)
		close(app->channel);
	if (app->listener >= 0)
		close(app->listener);
	free(app);
}

// The length of the message; 0: the server has closed the channel; -1: it makes no sense, or the
// process is to end.
static ssize_t receive(struct flash_application *app, int *client)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(8 * sizeof(int))];
	} control;
	struct iovec part = {.iov_base = app->message, .iov_len = sizeof(app->message)};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *passed;
	ssize_t length;

	*client = -1;
	do {
		// A signal between these two is seen after the next request at the latest.
		if (ends)
			return -1;
		length = recvmsg(app->channel, &message, MSG_CMSG_CLOEXEC);
	} while (length < 0 && errno == EINTR);
	if (length <= 0)
		return length;
	for (passed = CMSG_FIRSTHDR(&message); passed; passed = CMSG_NXTHDR(&message, passed)) {
		size_t bytes = passed->cmsg_len - CMSG_LEN(0);

		if (passed->cmsg_level != SOL_SOCKET || passed->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
			int descriptor;

			memcpy(&descriptor, CMSG_DATA(passed) + at, sizeof(descriptor));
			if (*client < 0)
				*client = descriptor;
			else
				close(descriptor);
		}
	}
	if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		return -1;
	return length;
}

static bool has_channel(struct flash_application *app)
{
	while (app->channel < 0) {
		if (app->listener < 0 || ends)
			return false;
		app->channel = accept4(app->listener, NULL, NULL, SOCK_CLOEXEC);
		if (app->channel < 0 && errno != EINTR && errno != ECONNABORTED)
			return false;
		if (app->channel >= 0 &&
		    !say(app, &(struct said){.version = VERSION, .kind = HELLO})) {
			close(app->channel);
			app->channel = -1;
		}
	}
	return true;
}

struct flash_request *flash_next(struct flash_application *app)
{
	struct flash_request *request = &app->request;

	flash_end(request);
	while (has_channel(app)) {
		struct order *order = &request->order;
		int client;
		ssize_t length = receive(app, &client);

		if (length > 0 && client >= 0 && read_order(app->message, length, order)) {
			*request = (struct flash_request){
				.app = app,
				.order = *order,
				.client = client,
				.unread = order->head.length - order->content_length,
				.expects = order->head.flags & EXPECTS,
				.keeps = order->head.flags & KEEPS,
				.said_at = now_ms(),
			};
			return request;
		}
		if (client >= 0)
			close(client);
		close(app->channel);
		app->channel = -1;
		if (length < 0)
			return NULL;
	}
	return NULL;
}

size_t flash_variables(const struct flash_request *request)
{
	size_t count = 0;

	while (flash_variable_at(request, count))
		count++;
	return count;
}

const char *flash_variable_at(const struct flash_request *request, size_t number)
{
	const char *at = request->order.variables;
	const char *end = at + request->order.head.variables;

	while (at < end && number--)
		at += strlen(at) + 1;
	return at < end ? at : NULL;
}

const char *flash_variable(const struct flash_request *request, const char *name)
{
	const char *at = request->order.variables;
	const char *end = at + request->order.head.variables;
	size_t length = strlen(name);

	for (; at < end; at += strlen(at) + 1)
		if (!strncmp(at, name, length) && at[length] == '=')
			return at + length + 1;
	return NULL;
}

uint64_t flash_content_length(const struct flash_request *request)
{
	return request->order.head.length;
}
