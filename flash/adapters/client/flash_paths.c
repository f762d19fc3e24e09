/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * One connection for each question. A question is asked only where a disk would be waited for, so
 * what a connection costs does not matter, and there is nothing that threads, forked processes and
 * signal handlers could get in each other's way with. The calls are made by syscall(2): the
 * functions of libc are points of cancellation, at which a descriptor would be lost. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "flash_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef RESOLVE_CACHED
#define RESOLVE_CACHED 0x20 /* Linux 5.12 */
#endif

enum { VERSION = 1, QUESTION_HEAD = 20 };

/* The path server waits for so much of a file. */
enum { FIRST = 64 << 10 };

/* Bits of a question's flags. */
enum { NOFOLLOW = 1, DIRECTORY = 2, NONBLOCK = 4, NOATIME = 8 };

static void put32(unsigned char *at, uint32_t value)
{
	for (int byte = 0; byte < 4; byte++)
		at[byte] = (unsigned char)(value >> 8 * byte);
}

static uint32_t get32(const unsigned char *at)
{
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t get64(const unsigned char *at)
{
	return get32(at) | (uint64_t)get32(at + 4) << 32;
}

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int flash_paths_init(struct flash_paths *server, const char *socket_path, int64_t deadline_ms)
{
	size_t length = strlen(socket_path);
	memset(server, 0, sizeof *server);
	if (socket_path[0] != '/' || length >= sizeof server->address.sun_path)
		return -1;
	server->address.sun_family = AF_UNIX;
	memcpy(server->address.sun_path, socket_path, length);
	server->deadline_ns = deadline_ms * 1000000;
	return 0;
}

int flash_paths_read(const unsigned char *bytes, size_t length, struct flash_paths_answer *answer)
{
	static const unsigned char head[8] = {'F', 'P', 'A', '!', VERSION, 0, 0, 0};
	if (length != FLASH_PATHS_ANSWER_SIZE || memcmp(bytes, head, sizeof head) != 0)
		return -1;
	answer->id = get32(bytes + 8);
	answer->error = get32(bytes + 12);
	answer->root_length = get32(bytes + 16);
	answer->root_device_major = get32(bytes + 44);
	answer->root_device_minor = get32(bytes + 48);
	answer->root_inode = get64(bytes + 64);
	return answer->root_length > FLASH_PATHS_PATH_MAX ? -1 : 0;
}

static int open_cached(const char *path, int flags)
{
	struct open_how how;
	memset(&how, 0, sizeof how);
	how.flags = (unsigned)flags;
	how.resolve = RESOLVE_CACHED;
	return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

/* Whether the name before the last one is in memory, and no directory: ENOTDIR. The kernel says
 * EAGAIN of such a path each time. Apache asks for .htaccess below each file. */
static int is_below_file(const char *path)
{
	char parent[FLASH_PATHS_PATH_MAX + 1];
	const char *last = strrchr(path, '/');
	size_t length = last ? (size_t)(last - path) : 0;
	int descriptor;
	if (length == 0 || length > FLASH_PATHS_PATH_MAX)
		return 0;
	memcpy(parent, path, length);
	parent[length] = '\0';
	descriptor = open_cached(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (descriptor < 0)
		return errno == ENOTDIR;
	syscall(SYS_close, descriptor);
	return 0;
}

int flash_paths_open_cached(const char *path, int flags)
{
	int descriptor = open_cached(path, flags);
	if (descriptor < 0 && errno == EAGAIN)
		errno = is_below_file(path) ? ENOTDIR : EAGAIN;
	return descriptor;
}

static int is_resident(int descriptor, off_t at)
{
	char byte;
	struct iovec part = {.iov_base = &byte, .iov_len = 1};
	return preadv2(descriptor, &part, 1, at, RWF_NOWAIT) >= 0 || errno != EAGAIN;
}

/* 0 for all that is no regular file. */
static off_t size_of_file(int descriptor)
{
	struct statx found;
	if (syscall(SYS_statx, descriptor, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
		    STATX_TYPE | STATX_SIZE, &found) != 0 ||
	    !S_ISREG(found.stx_mode))
		return 0;
	return (off_t)found.stx_size;
}

int flash_paths_is_ready(int descriptor)
{
	int before = errno;
	off_t size = size_of_file(descriptor);
	int is_ready = size == 0 || (is_resident(descriptor, 0) &&
				     is_resident(descriptor, (size < FIRST ? size : FIRST) - 1));
	errno = before;
	return is_ready;
}

int flash_paths_is_warm(const char *path)
{
	int before = errno;
	int inode = flash_paths_open_cached(path, O_PATH | O_CLOEXEC);
	int is_warm = inode >= 0 || errno != EAGAIN;
	if (inode >= 0 && size_of_file(inode) > 0) {
		/* A pipe may have taken its place, which must not be waited for. */
		int file =
			flash_paths_open_cached(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (file >= 0) {
			is_warm = flash_paths_is_ready(file);
			syscall(SYS_close, file);
		}
	}
	if (inode >= 0)
		syscall(SYS_close, inode);
	errno = before;
	return is_warm;
}

/* Whether the root of an answer is the same directory here as it is for the path server; in a
 * container it may be another one. */
static int has_same_root(const struct flash_paths_answer *answer, const char *path)
{
	char root[FLASH_PATHS_PATH_MAX + 1];
	struct statx found;
	size_t length = answer->root_length;
	if (length == 0 || length > strlen(path))
		return 0;
	memcpy(root, path, length);
	root[length] = '\0';
	if (syscall(SYS_statx, AT_FDCWD, root, 0, STATX_INO, &found) != 0)
		return 0;
	return found.stx_ino == answer->root_inode &&
	       found.stx_dev_major == answer->root_device_major &&
	       found.stx_dev_minor == answer->root_device_minor;
}

/* The descriptor of a message, or -1. There may be room for two, of which the second is closed. */
static int passed(struct msghdr *message)
{
	int descriptors[2];
	struct cmsghdr *one = CMSG_FIRSTHDR(message);
	size_t length;
	if (!one || one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS ||
	    one->cmsg_len < CMSG_LEN(sizeof(int)) || one->cmsg_len > CMSG_LEN(sizeof descriptors))
		return -1;
	length = one->cmsg_len - CMSG_LEN(0);
	memcpy(descriptors, CMSG_DATA(one), length);
	if (length == sizeof descriptors)
		syscall(SYS_close, descriptors[1]);
	return descriptors[0];
}

/* Waits for an answer. A descriptor, -1 if there is none, or -2 if no answer came in time. */
static int receive(int server, int64_t until_ns, uint32_t id, const char *path, int cloexec)
{
	unsigned char bytes[FLASH_PATHS_ANSWER_SIZE + 1];
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof control};
	struct flash_paths_answer answer;
	long got;
	int descriptor = -1;

	for (;;) {
		int64_t left = until_ns - now_ns();
		struct pollfd ready = {.fd = server, .events = POLLIN};
		struct timespec timeout;
		long status;
		if (left < 0)
			left = 0;
		timeout.tv_sec = left / 1000000000;
		timeout.tv_nsec = left % 1000000000;
		/* A signal does not interrupt open(2) of a file on a disk either. */
		status = syscall(SYS_ppoll, &ready, 1, &timeout, NULL, 0);
		if (status == 1)
			break;
		if (status == 0 || errno != EINTR)
			return -2;
	}
	got = syscall(SYS_recvmsg, server, &message,
		      MSG_DONTWAIT | (cloexec ? MSG_CMSG_CLOEXEC : 0));
	if (got < 0)
		return -1;
	descriptor = passed(&message);
	if (descriptor >= 0 &&
	    (flash_paths_read(bytes, (size_t)got, &answer) != 0 || answer.id != id ||
	     answer.error != 0 || !has_same_root(&answer, path))) {
		syscall(SYS_close, descriptor);
		descriptor = -1;
	}
	return descriptor;
}

/* The connection had the lowest number, which open(2) has to return. */
static int lowest(int descriptor, int cloexec)
{
	int lower = (int)syscall(SYS_fcntl, descriptor, cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
	if (lower < 0)
		return descriptor;
	if (lower > descriptor) {
		syscall(SYS_close, lower);
		return descriptor;
	}
	syscall(SYS_close, descriptor);
	return lower;
}

static int ask(struct flash_paths *server, enum flash_paths_kind kind, const char *path, int flags)
{
	unsigned char question[QUESTION_HEAD + FLASH_PATHS_PATH_MAX];
	size_t length = strlen(path);
	int64_t begin = now_ns();
	int socket, descriptor = -1;
	uint32_t bits = 0, id = (uint32_t)begin;

	if (path[0] != '/' || length > FLASH_PATHS_PATH_MAX ||
	    begin < __atomic_load_n(&server->quiet_until_ns, __ATOMIC_RELAXED))
		return -1;
	bits |= flags & O_NOFOLLOW ? NOFOLLOW : 0;
	bits |= flags & O_DIRECTORY ? DIRECTORY : 0;
	bits |= flags & O_NONBLOCK ? NONBLOCK : 0;
	bits |= flags & O_NOATIME ? NOATIME : 0;
	memcpy(question, "FPQ?", 4);
	put32(question + 4, VERSION | (uint32_t)kind << 16);
	put32(question + 8, bits);
	put32(question + 12, id);
	put32(question + 16, (uint32_t)length);
	memcpy(question + QUESTION_HEAD, path, length);

	socket =
		(int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (socket < 0)
		return -1;
	/* It fails at once if no process listens, or if too many connections wait. */
	if (syscall(SYS_connect, socket, &server->address, sizeof server->address) == 0 &&
	    syscall(SYS_sendto, socket, question, QUESTION_HEAD + length, MSG_NOSIGNAL, NULL, 0) >=
		    0)
		descriptor = receive(socket, begin + server->deadline_ns, id, path,
				     (flags & O_CLOEXEC) != 0);
	syscall(SYS_close, socket);
	if (descriptor == -2) {
		/* It hangs, or the disk does. */
		int64_t until = now_ns() + server->deadline_ns;
		__atomic_store_n(&server->quiet_until_ns, until, __ATOMIC_RELAXED);
	}
	return descriptor < 0 ? -1 : lowest(descriptor, (flags & O_CLOEXEC) != 0);
}

int flash_paths_ask(struct flash_paths *server, enum flash_paths_kind kind, const char *path,
		    int flags)
{
	int before = errno;
	int descriptor = ask(server, kind, path, flags);
	errno = before;
	return descriptor;
}
