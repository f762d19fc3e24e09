/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * attach.c: how a process finds its session, and a thread its slot.
 *
 * The session's address is in the environment. One message each way brings the descriptors of the
 * slots, of the threads' ids and of the rows; they are mapped and closed at once, so that the
 * program's own descriptors keep their numbers. Forked children inherit the mappings and ask
 * nobody: they may have left their privileges or allowed themselves few system calls by then. A
 * thread, and a child, needs one gettid to find its slot.
 *
 * Raw system calls only: libc's functions are interposed, and this must work in signal handlers and
 * before constructors have run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "attach.h"

/* Answers of the session are not slept for this often: they come within some tens of microseconds.
 */
#define ATTEMPTS 20000

enum attach_state {
	UNTRIED,
	TRYING,
	ATTACHED,
	NO_SESSION,
};

static int state = UNTRIED;
static struct debox_slot *slots;
static const __u64 *tids;
static unsigned char *rows;
static __u32 slot_count;
static volatile __u32 always = 1;

/* Of a slot that nothing is recorded in, only the control words are looked at. */
static struct debox_slot unattached = {.paused = 1};
struct debox_slot debox_tap_nowhere = {.paused = 1};

struct debox_tap_process debox_tap_process = {.mine = &always};
__thread struct debox_tap_thread debox_tap_thread = {.slot = &unattached};

static void *map(int fd, size_t size, int protection)
{
	long address = debox_raw(SYS_mmap, 0, size, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);

	if (address < 0 && address >= -4095)
		return NULL;
	debox_raw(SYS_madvise, address, size, MADV_DONTDUMP, 0, 0,
		  0); /* no part of the program's core */
	return (void *)address;
}

static void unmap(void *address, size_t size)
{
	if (address)
		debox_raw(SYS_munmap, (long)address, size, 0, 0, 0, 0);
}

/* A page that reads 1 here and 0 in forked children. */
static volatile __u32 *mark_process(void)
{
	long page = debox_raw(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page < 0 && page >= -4095)
		return NULL;
	if (debox_raw(SYS_madvise, page, 4096, MADV_WIPEONFORK, 0, 0, 0)) {
		debox_raw(SYS_munmap, page, 4096, 0, 0, 0, 0);
		return NULL;
	}
	*(volatile __u32 *)page = 1;
	return (volatile __u32 *)page;
}

/* How many seccomp filters this process is under. Reads a file: a dynamic program may do that. */
static long seccomp_filters(void)
{
	static const char wanted[] = "\nSeccomp_filters:";
	char text[4096], *found;
	long length = 0, count = 0, got;
	int fd = debox_raw(SYS_openat, AT_FDCWD, (long)"/proc/self/status", O_RDONLY | O_CLOEXEC, 0,
			   0, 0);

	if (fd < 0)
		return 0;
	do {
		got = debox_raw(SYS_read, fd, (long)text + length, sizeof(text) - 1 - length, 0, 0,
				0);
		length += got > 0 ? got : 0;
	} while (got > 0 && length < (long)sizeof(text) - 1);
	debox_raw(SYS_close, fd, 0, 0, 0, 0, 0);
	text[length] = 0;
	found = strstr(text, wanted);
	if (!found)
		return 0;
	for (found += sizeof(wanted) - 1; *found && *found != '\n'; found++)
		if (*found >= '0' && *found <= '9')
			count = count * 10 + (*found - '0');
	return count;
}

/*
 * A program that was executed under filters that the session is not under may die of the calls
 * that it takes to ask for the session.
 */
static int may_ask(const char *of_session)
{
	return seccomp_filters() <= (*of_session == ':' ? atol(of_session + 1) : 0);
}

static int connect_session(void)
{
	const char *name = getenv(DEBOX_TAP_VARIABLE);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length;
	int fd;

	if (!name)
		return -1;
	length = strcspn(name, ":");
	if (length == 0 || length >= sizeof(address.sun_path) - 1 || !may_ask(name + length))
		return -1;
	memcpy(address.sun_path + 1, name, length); /* the abstract name space */
	fd = debox_raw(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, 0, 0, 0);
	if (fd < 0)
		return -1;
	if (debox_raw(SYS_connect, fd, (long)&address,
		      offsetof(struct sockaddr_un, sun_path) + 1 + length, 0, 0, 0)) {
		debox_raw(SYS_close, fd, 0, 0, 0, 0, 0);
		return -1;
	}
	return fd;
}

/* Receives the session's answer: what there is, and three descriptors. */
static int receive(int fd, struct debox_tap_welcome *welcome, int fds[3])
{
	union {
		char bytes[CMSG_SPACE(3 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec data = {.iov_base = welcome, .iov_len = sizeof(*welcome)};
	struct msghdr message = {
		.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *header;
	long received;
	int attempts = 0, flags;

	/* Waiting without sleep keeps the tap's own wait out of what it reports of the program. */
	do {
		flags = MSG_CMSG_CLOEXEC | (attempts < ATTEMPTS ? MSG_DONTWAIT : 0);
		received = debox_raw(SYS_recvmsg, fd, (long)&message, flags, 0, 0, 0);
		if (received == -EAGAIN)
			debox_raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
		attempts++;
	} while (received == -EINTR || received == -EAGAIN);
	header = CMSG_FIRSTHDR(&message);
	if (received != sizeof(*welcome) || !header || header->cmsg_type != SCM_RIGHTS ||
	    header->cmsg_len != CMSG_LEN(3 * sizeof(int)))
		return -1;
	memcpy(fds, CMSG_DATA(header), 3 * sizeof(int));
	return welcome->version == DEBOX_VERSION ? 0 : -1;
}

static int attach_process(void)
{
	struct debox_tap_welcome welcome;
	volatile __u32 *mine;
	int fds[3], fd, i;

	fd = connect_session();
	if (fd < 0)
		return -1;
	i = receive(fd, &welcome, fds);
	debox_raw(SYS_close, fd, 0, 0, 0, 0, 0);
	if (i)
		return -1;
	slot_count = welcome.slots;
	slots = map(fds[0], slot_count * sizeof(*slots), PROT_READ | PROT_WRITE);
	tids = map(fds[1], slot_count * sizeof(*tids), PROT_READ);
	rows = map(fds[2], DEBOX_TAP_FILE_SIZE(slot_count), PROT_READ | PROT_WRITE);
	for (i = 0; i < 3; i++)
		debox_raw(SYS_close, fds[i], 0, 0, 0, 0, 0);
	mine = mark_process();
	if (!slots || !tids || !rows || !mine) {
		unmap(slots, slot_count * sizeof(*slots));
		unmap((void *)tids, slot_count * sizeof(*tids));
		unmap(rows, DEBOX_TAP_FILE_SIZE(slot_count));
		unmap((void *)mine, DEBOX_TAP_PAGE);
		return -1;
	}
	debox_tap_process.clock = (const struct debox_tap_clock *)rows;
	debox_tap_process.mine = mine;
	return 0;
}

/* In a forked child: this thread, its only one, has the parent's words, and calls open as there. */
static void begin_anew(void)
{
	debox_tap_thread.slot = &unattached;
	debox_tap_thread.start = 0;
	debox_tap_thread.depth = 0;
	DEBOX_BARRIER();
	*debox_tap_process.mine = 1;
}

/* Not while another thread, or the call that this handler interrupted, is at it. */
static int ready(void)
{
	int expected = UNTRIED;

	if (__atomic_compare_exchange_n(&state, &expected, TRYING, 0, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST))
		__atomic_store_n(&state, attach_process() ? NO_SESSION : ATTACHED,
				 __ATOMIC_SEQ_CST);
	return __atomic_load_n(&state, __ATOMIC_SEQ_CST);
}

struct debox_slot *debox_tap_attach(void)
{
	struct debox_tap_thread *thread = &debox_tap_thread;
	struct debox_slot *slot = &debox_tap_nowhere;
	__u32 i, tid;
	int now = ready();

	if (now == TRYING)
		return &debox_tap_nowhere;
	if (!*debox_tap_process.mine)
		begin_anew();
	if (thread->slot != &unattached)
		return thread->slot;
	thread->rows = NULL;
	tid = now == ATTACHED ? debox_raw(SYS_gettid, 0, 0, 0, 0, 0, 0) : 0;
	for (i = 0; tid && i < slot_count; i++) {
		if ((__u32)((const volatile __u64 *)tids)[i] != tid)
			continue;
		thread->rows = (struct debox_tap_row *)(rows + DEBOX_TAP_ROWS_AT(i));
		slot = &slots[i];
		slot->tap_call = 0; /* of an image that this one replaced */
		slot->tap_touched = 0;
		slot->tap_handler = 0;
		for (tid = 0; tid < DEBOX_HISTORY_MAX; tid++) {
			slot->history[tid].version = DEBOX_VERSION;
			slot->history[tid].size = sizeof(slot->history[tid]);
		}
		break;
	}
	DEBOX_BARRIER();
	thread->slot = slot;
	return slot;
}

int debox_tap_is_attached(void)
{
	return debox_tap_thread.slot != &unattached && *debox_tap_process.mine;
}

/* The main thread, before the program makes calls of its own. */
__attribute__((constructor)) static void attach_main_thread(void)
{
	debox_tap_attach();
}
