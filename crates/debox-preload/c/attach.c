/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * attach.c: how a process finds its session, and a thread its slot.
 *
 * The session's address is in the environment. One message each way brings the descriptors of the
 * slots, of the threads' ids and of the rows; they are mapped and closed at once, so that the
 * program's own descriptors keep their numbers. Raw system calls only: libc's functions are
 * interposed, and this must work in signal handlers and before constructors have run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "debox_tap.h"
#include "attach.h"

struct debox_tap_process debox_tap_process;
__thread struct debox_slot *debox_tap_slot __attribute__((tls_model("initial-exec")));
__thread struct debox_tap_row *debox_tap_rows __attribute__((tls_model("initial-exec")));

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
/* What threads without a slot point to: paused, so that nothing is recorded. */
static struct debox_slot nowhere = {.paused = 1};
static const volatile __u32 always = 1;

static long raw(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

static void *map(int fd, size_t size, int protection)
{
	long address = raw(SYS_mmap, 0, size, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);

	return address < 0 && address >= -4095 ? NULL : (void *)address;
}

/* A page that reads 1 here and 0 in forked children. */
static const volatile __u32 *mark_process(void)
{
	long page = raw(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page < 0 && page >= -4095)
		return NULL;
	if (raw(SYS_madvise, page, 4096, MADV_WIPEONFORK, 0, 0, 0)) {
		raw(SYS_munmap, page, 4096, 0, 0, 0, 0);
		return NULL;
	}
	*(volatile __u32 *)page = 1;
	return (const volatile __u32 *)page;
}

static int connect_session(void)
{
	const char *name = getenv(DEBOX_TAP_VARIABLE);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length;
	int fd;

	if (!name)
		return -1;
	length = strlen(name);
	if (length == 0 || length >= sizeof(address.sun_path) - 1)
		return -1;
	memcpy(address.sun_path + 1, name, length); /* the abstract name space */
	fd = raw(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, 0, 0, 0);
	if (fd < 0)
		return -1;
	if (raw(SYS_connect, fd, (long)&address, offsetof(struct sockaddr_un, sun_path) + 1 + length, 0,
		0, 0)) {
		raw(SYS_close, fd, 0, 0, 0, 0, 0);
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

	do {
		received = raw(SYS_recvmsg, fd, (long)&message, MSG_CMSG_CLOEXEC, 0, 0, 0);
	} while (received == -EINTR);
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
	const volatile __u32 *mine;
	int fds[3], fd, i;

	if (debox_tap_process.mine && debox_tap_process.mine != &always) {
		/* A forked child: the parent's mappings are of no use here. */
		raw(SYS_munmap, (long)slots, slot_count * sizeof(*slots), 0, 0, 0, 0);
		raw(SYS_munmap, (long)rows, DEBOX_TAP_FILE_SIZE(slot_count), 0, 0, 0, 0);
		raw(SYS_munmap, (long)tids, slot_count * sizeof(*tids), 0, 0, 0, 0);
		raw(SYS_munmap, (long)debox_tap_process.mine, 4096, 0, 0, 0, 0);
	}
	debox_tap_process.mine = &always;
	fd = connect_session();
	if (fd < 0)
		return -1;
	i = receive(fd, &welcome, fds);
	raw(SYS_close, fd, 0, 0, 0, 0, 0);
	if (i)
		return -1;
	slot_count = welcome.slots;
	slots = map(fds[0], slot_count * sizeof(*slots), PROT_READ | PROT_WRITE);
	tids = map(fds[1], slot_count * sizeof(*tids), PROT_READ);
	rows = map(fds[2], DEBOX_TAP_FILE_SIZE(slot_count), PROT_READ | PROT_WRITE);
	for (i = 0; i < 3; i++)
		raw(SYS_close, fds[i], 0, 0, 0, 0, 0);
	mine = mark_process();
	if (!slots || !tids || !rows || !mine)
		return -1;
	debox_tap_process.clock = (const struct debox_tap_clock *)rows;
	debox_tap_process.mine = mine;
	return 0;
}

/* Not while another thread, or the call that this handler interrupted, is at it. */
static int ready(void)
{
	int expected = UNTRIED;

	if (state == ATTACHED && !*debox_tap_process.mine)
		__atomic_store_n(&state, UNTRIED, __ATOMIC_SEQ_CST);
	if (__atomic_compare_exchange_n(&state, &expected, TRYING, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		__atomic_store_n(&state, attach_process() ? NO_SESSION : ATTACHED, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&state, __ATOMIC_SEQ_CST);
}

struct debox_slot *debox_tap_attach(void)
{
	__u32 i, tid;
	int now = ready();

	if (now == TRYING)
		return &nowhere;
	debox_tap_slot = &nowhere;
	debox_tap_rows = NULL;
	if (now == NO_SESSION)
		return debox_tap_slot;
	tid = raw(SYS_gettid, 0, 0, 0, 0, 0, 0);
	for (i = 0; i < slot_count; i++) {
		if ((__u32)((const volatile __u64 *)tids)[i] != tid)
			continue;
		debox_tap_rows = (struct debox_tap_row *)(rows + DEBOX_TAP_ROWS_AT(i));
		debox_tap_slot = &slots[i];
		debox_tap_slot->tap_call = 0; /* of an image that this one replaced */
		break;
	}
	return debox_tap_slot;
}

/* The main thread, before the program makes calls of its own. */
__attribute__((constructor)) static void attach_main_thread(void)
{
	debox_tap_attach();
}
