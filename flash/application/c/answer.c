// SPDX-License-Identifier: MIT OR Apache-2.0
// Answers, and the content of requests: what goes through the client's socket. It may be set not to
// wait, so each call that would wait polls, for as long as the server says that a client may take
// nothing.
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// The server hears of an answer that takes long once in this time.
#define PROGRESS_MS 1000
// What of a request's content is read and discarded before the connection is given up.
#define DISCARDED (64 << 10)
// One call of sendfile.
#define PIECE (1 << 20)

int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void flash_progress(struct flash_request *request)
{
	request->said_at = now_ms();
	say(request->app, &(struct said){
				  .version = VERSION,
				  .kind = PROGRESS,
				  .status = request->status,
				  .number = request->order.head.number,
				  .content = request->sent,
			  });
}

static void tell(struct flash_request *request)
{
	if (now_ms() - request->said_at > PROGRESS_MS)
		flash_progress(request);
}

static int cut(struct flash_request *request, int why)
{
	request->is_cut = true;
	errno = why;
	return -1;
}

// After a call that would have waited.
static bool waits(struct flash_request *request, short event)
{
	struct pollfd ready = {.fd = request->client, .events = event};
	int64_t until = now_ms() + request->order.head.patience_ms;
	int done;

	while ((done = poll(&ready, 1, PROGRESS_MS)) <= 0) {
		if ((done < 0 && errno != EINTR) || now_ms() >= until)
			return false;
		// It is the client that is slow, not this process.
		if (!done)
			flash_progress(request);
	}
	return true;
}

// True: the call is to be made again.
static bool again(struct flash_request *request, short event)
{
	if (errno == EINTR)
		return true;
	if (errno != EAGAIN && errno != EWOULDBLOCK)
		return false;
	if (waits(request, event))
		return true;
	errno = ETIMEDOUT;
	return false;
}

static int send_all(struct flash_request *request, struct iovec *parts, int count, int flags)
{
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};

	while (message.msg_iovlen) {
		ssize_t sent =
			sendmsg(request->client, &message, MSG_NOSIGNAL | MSG_DONTWAIT | flags);

		if (sent < 0) {
			if (!again(request, POLLOUT))
				return cut(request, errno);
			continue;
		}
		while (message.msg_iovlen && (size_t)sent >= message.msg_iov->iov_len) {
			sent -= message.msg_iov->iov_len;
			message.msg_iov++;
			message.msg_iovlen--;
		}
		if (message.msg_iovlen) {
			message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
			message.msg_iov->iov_len -= sent;
		}
		tell(request);
	}
	return 0;
}

ssize_t flash_read(struct flash_request *request, void *into, size_t room)
{
	struct order *order = &request->order;
	ssize_t length;

	if (order->content_length) {
		if (room > order->content_length)
			room = order->content_length;
		memcpy(into, order->content, room);
		order->content += room;
		order->content_length -= room;
		return room;
	}
	if (!request->unread || request->is_cut)
		return request->is_cut ? -1 : 0;
	if (request->expects) {
		static char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
		struct iovec part = {interim, sizeof(interim) - 1};

		request->expects = false;
		if (!request->status && send_all(request, &part, 1, 0))
			return -1;
	}
	if (room > request->unread)
		room = request->unread;
	do
		length = recv(request->client, into, room, MSG_DONTWAIT);
	while (length < 0 && again(request, POLLIN));
	if (length <= 0)
		return cut(request, length ? errno : ECONNRESET);
	request->unread -= length;
	tell(request);
	return length;
}

__attribute__((format(printf, 2, 3))) static int put(struct flash_request *request,
						     const char *format, ...)
{
	size_t room = MAX_HEAD - request->head_length;
	va_list values;
	int length;

	va_start(values, format);
	length = vsnprintf(request->app->head + request->head_length, room, format, values);
	va_end(values);
	if (length < 0 || (size_t)length >= room)
		return cut(request, EINVAL);
	request->head_length += length;
	return 0;
}

static const char *reason(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 201:
		return "Created";
	case 204:
		return "No Content";
	case 301:
		return "Moved Permanently";
	case 302:
		return "Found";
	case 303:
		return "See Other";
	case 304:
		return "Not Modified";
	case 400:
		return "Bad Request";
	case 403:
		return "Forbidden";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 413:
		return "Content Too Large";
	case 500:
		return "Internal Server Error";
	case 503:
		return "Service Unavailable";
	default:
		return "Unknown";
	}
}

int flash_begin(struct flash_request *request, int status, const char *type, uint64_t length)
{
	struct head *head = &request->order.head;
	bool has_none = status == 204 || status == 304;
	int failed;

	if (request->status || request->client < 0 || status < 200 || status > 599) {
		errno = EINVAL;
		return -1;
	}
	request->status = status;
	request->is_bare = has_none || head->flags & IS_HEAD;
	request->left = length;
	failed = put(request, "HTTP/1.1 %d %s\r\n%.*s", status, reason(status), (int)head->fields,
		     request->order.fields);
	if (length != FLASH_UNKNOWN && !has_none)
		failed |= put(request, "Content-Length: %llu\r\n", (unsigned long long)length);
	if (length == FLASH_UNKNOWN && !has_none) {
		if (head->flags & IS_11) {
			request->is_chunked = !request->is_bare;
			failed |= put(request, "Transfer-Encoding: chunked\r\n");
		} else {
			request->keeps = false;
		}
	}
	// It is not known whether the rest of the content will come.
	if (request->unread > DISCARDED || (request->expects && request->unread))
		request->keeps = false;
	if (!request->keeps)
		failed |= put(request, "Connection: close\r\n");
	else if (!(head->flags & IS_11))
		failed |= put(request, "Connection: keep-alive\r\n");
	if (type)
		failed |= flash_field(request, "Content-Type", type);
	return failed ? -1 : 0;
}

int flash_field(struct flash_request *request, const char *name, const char *value)
{
	if (!request->status || !request->head_length || strpbrk(name, "\r\n: ") ||
	    strpbrk(value, "\r\n"))
		return cut(request, EINVAL);
	return put(request, "%s: %s\r\n", name, value);
}

// The head becomes whole, and the first of the parts to be sent.
static int take_head(struct flash_request *request, struct iovec *parts)
{
	if (!request->head_length)
		return 0;
	if (put(request, "\r\n"))
		return -1;
	parts[0] = (struct iovec){request->app->head, request->head_length};
	request->head_length = 0;
	return 1;
}

// What is in front of so much content.
static int begin_part(struct flash_request *request, size_t length, char *size, size_t room,
		      struct iovec *parts)
{
	int count;

	if (request->is_cut || !request->status)
		return cut(request, request->is_cut ? EPIPE : EINVAL);
	if (!request->is_bare && request->left != FLASH_UNKNOWN) {
		if (length > request->left)
			return cut(request, EINVAL);
		request->left -= length;
	}
	count = take_head(request, parts);
	if (count >= 0 && request->is_chunked && length) {
		int digits = snprintf(size, room, "%zx\r\n", length);

		parts[count++] = (struct iovec){size, digits};
	}
	return count;
}

int flash_write(struct flash_request *request, const void *content, size_t length)
{
	struct iovec parts[4];
	char size[24];
	int count = begin_part(request, length, size, sizeof(size), parts);

	if (count < 0)
		return -1;
	if (length && !request->is_bare) {
		parts[count++] = (struct iovec){(void *)content, length};
		if (request->is_chunked)
			parts[count++] = (struct iovec){"\r\n", 2};
		request->sent += length;
	}
	return send_all(request, parts, count, 0);
}

int flash_write_file(struct flash_request *request, int file, uint64_t length)
{
	struct iovec parts[2];
	char size[24];
	int count = begin_part(request, length, size, sizeof(size), parts);

	if (count < 0 || send_all(request, parts, count, length ? MSG_MORE : 0))
		return -1;
	if (request->is_bare)
		return 0;
	while (length) {
		ssize_t sent =
			sendfile(request->client, file, NULL, length < PIECE ? length : PIECE);

		if (sent < 0 && again(request, POLLOUT))
			continue;
		if (sent <= 0)
			return cut(request, sent ? errno : EIO);
		length -= sent;
		request->sent += sent;
		tell(request);
	}
	if (request->is_chunked) {
		struct iovec end = {"\r\n", 2};

		return send_all(request, &end, 1, 0);
	}
	return 0;
}

int flash_answer(struct flash_request *request, int status, const char *type, const void *content,
		 size_t length)
{
	if (flash_begin(request, status, type, length))
		return -1;
	return flash_write(request, content, length);
}

static void give_back(struct flash_request *request)
{
	// First of all: what the server does with the connection afterwards is none of this
	// process's business.
	close(request->client);
	request->client = -1;
	say(request->app, &(struct said){
				  .version = VERSION,
				  .kind = DONE,
				  .status = request->status ? request->status : 500,
				  .flags = request->is_cut  ? CUT
					   : request->keeps ? KEPT
							    : 0,
				  .number = request->order.head.number,
				  .content = request->sent,
				  .unread = request->unread,
			  });
}

void flash_end(struct flash_request *request)
{
	struct iovec parts[2];
	int count;

	if (!request->app || request->client < 0)
		return;
	if (!request->status)
		flash_answer(request, 500, "text/plain", "500 Internal Server Error\n", 26);
	if (!request->is_cut) {
		count = take_head(request, parts);
		if (count >= 0 && request->is_chunked)
			parts[count++] = (struct iovec){"0\r\n\r\n", 5};
		if (count > 0)
			send_all(request, parts, count, 0);
		if (!request->is_bare && request->left != FLASH_UNKNOWN && request->left)
			request->is_cut = true;
	}
	while (request->keeps && !request->is_cut && request->unread) {
		char discarded[4096];

		request->order.content_length = 0;
		if (flash_read(request, discarded, sizeof(discarded)) <= 0)
			break;
	}
	give_back(request);
}

void flash_cut(struct flash_request *request)
{
	if (!request->app || request->client < 0)
		return;
	request->is_cut = true;
	give_back(request);
}
