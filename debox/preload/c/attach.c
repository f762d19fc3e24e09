/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * attach.c: how a process finds its session, and a thread its slot.
 *
 * The session's address is in the environment. One message from the session brings the descriptors
 * of the slots, of the threads' ids and of the rows. They are mapped and closed at once, so that
 * the program's own descriptors keep their numbers. Forked children inherit the mappings. A thread,
 * or a child, needs one gettid to find its slot.
 *
 * The kernel fills in the page tables of slots when they are mapped, copies them to forked children
 * and removes them at the end. For all slots that takes longer than many a process lives. So the
 * range of addresses is reserved for all of them, but only as many are mapped at first as a process
 * is likely to need: slots are given out in order, and those of ended threads are reused first.
 * When a thread or a child finds that its slot is not mapped, it asks the session again. A process
 * that is about to restrict its own system calls, or to leave the file system that has the
 * session's socket (chroot, another mount namespace), maps all slots, as it may not be able to ask
 * later.
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>

#include "attach.h"

/*
 * How often the session's answer is polled for before sleeping: it comes within some tens of
 * microseconds.
 */
#define ATTEMPTS 20000

/* Slots that a process maps at first, a power of two. */
#define FIRST_SLOTS 32

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
static __u32 mapped_slots; /* the first ones; for the others, only addresses are reserved */
static __u32 mapper;	   /* the thread that is mapping more */
static volatile __u32 always = 1;

/* Of a slot in which nothing is recorded, only the control words are used. */
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
		  0); /* not in the program's core dump */
	return (void *)address;
}

static void *keep_addresses(size_t size)
{
	long address = debox_raw(SYS_mmap, 0, size, PROT_NONE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return address < 0 && address >= -4095 ? NULL : (void *)address;
}

/* Maps the slots up to `count` that are not mapped yet. BPF maps are never in a core dump. */
static int map_slots(int fd, __u32 count)
{
	size_t from = mapped_slots * sizeof(*slots), to = count * sizeof(*slots);
	long at = (long)slots + from;

	if (from < to && debox_raw(SYS_mmap, at, to - from, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_FIXED, fd, from) != at)
		return -1;
	__atomic_store_n(&mapped_slots, count, __ATOMIC_RELEASE);
	return 0;
}

/* How many slots to map for a thread with this slot: enough for as many threads again. */
static __u32 slots_for(__u32 index)
{
	__u32 count = FIRST_SLOTS;

	while (count < slot_count && count / 2 < index + 1)
		count *= 2;
	return count < slot_count ? count : slot_count;
}

static __u32 own_tid(void)
{
	return debox_raw(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

/* A thread's slot; `slot_count` if it has none. */
static __u32 find_slot(__u32 tid)
{
	__u32 i;

	for (i = 0; i < slot_count; i++)
		if ((__u32)((const volatile __u64 *)tids)[i] == tid)
			break;
	return i;
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

/* The number on the line of that name in /proc/PID/status; 0 without one. */
static long filters_in(const char *status)
{
	static const char wanted[] = "\nSeccomp_filters:";
	const char *found = strstr(status, wanted);
	long count = 0;

	if (!found)
		return 0;
	for (found += sizeof(wanted) - 1; *found && *found != '\n'; found++)
		if (*found >= '0' && *found <= '9' && count < 1000000)
			count = count * 10 + (*found - '0');
	return count;
}

/* How many seccomp filters this process is under. Reads a file, which a dynamic program may do. */
static long seccomp_filters(void)
{
	char text[4096];
	long length = 0, got;
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
	return filters_in(text);
}

/* What the environment says of the session. */
struct session_address {
	long filters;
	int sees_calls;
	__u64 secret;
	const char *path;
};

static int parse_address(const char *text, struct session_address *address)
{
	const char *at = text, *digits;

	for (address->filters = 0; *at >= '0' && *at <= '9'; at++)
		if (address->filters < 1000000)
			address->filters = address->filters * 10 + (*at - '0');
	if (at == text)
		return -1;
	address->sees_calls = *at == '+';
	at += address->sees_calls;
	if (*at++ != ':')
		return -1;
	address->secret = 0;
	for (digits = at; *at != ':'; at++) {
		if (*at >= '0' && *at <= '9')
			address->secret = address->secret << 4 | (__u64)(*at - '0');
		else if (*at >= 'a' && *at <= 'f')
			address->secret = address->secret << 4 | (__u64)(*at - 'a' + 10);
		else
			return -1;
	}
	if (at - digits != DEBOX_TAP_SECRET_DIGITS || at[1] != '/')
		return -1;
	address->path = at + 1;
	return 0;
}

/*
 * When the session has ended, any process may take its path. The server's user must be root, as the
 * session's is, or this process's own. In a user namespace without a name for it, the session's
 * user shows as the overflow user; so the server must know the session's secret, too.
 */
#define NOBODY 65534
static int is_trusted(int fd)
{
	struct ucred server;
	socklen_t size = sizeof(server);
	uid_t own = (uid_t)debox_raw(SYS_geteuid, 0, 0, 0, 0, 0, 0);

	if (debox_raw(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, (long)&server, (long)&size, 0))
		return 0;
	return server.uid == 0 || server.uid == own || server.uid == NOBODY;
}

/*
 * A program that was executed under filters that the session is not under may be killed for the
 * calls that it takes to ask for the session, so it does not ask.
 */
static int connect_session(const struct session_address *session)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(session->path);
	int fd;

	if (length >= sizeof(address.sun_path) || seccomp_filters() > session->filters)
		return -1;
	memcpy(address.sun_path, session->path, length);
	fd = debox_raw(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, 0, 0, 0);
	if (fd < 0)
		return -1;
	if (debox_raw(SYS_connect, fd, (long)&address,
		      offsetof(struct sockaddr_un, sun_path) + length + 1, 0, 0, 0) ||
	    !is_trusted(fd)) {
		debox_raw(SYS_close, fd, 0, 0, 0, 0, 0);
		return -1;
	}
	return fd;
}

static void close_all(const int *fds, int count)
{
	for (int i = 0; i < count; i++)
		debox_raw(SYS_close, fds[i], 0, 0, 0, 0, 0);
}

/*
 * Whether a file is as long as the part that is to be mapped: access beyond its end raises SIGBUS.
 */
static int holds(int fd, size_t size)
{
	struct stat file;

	return !debox_raw(SYS_fstat, fd, (long)&file, 0, 0, 0, 0) && S_ISREG(file.st_mode) &&
	       (size_t)file.st_size >= size;
}

/* Receives the session's answer: the welcome and three descriptors. */
static int receive(int fd, const struct session_address *session, struct debox_tap_welcome *welcome,
		   int fds[3])
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
	};
	struct cmsghdr *header;
	struct timeval limit = {.tv_sec = 5};
	int attempts = 0, most = session->sees_calls ? 0 : ATTEMPTS, ends = 0, flags, got = 0;
	long received;

	/*
	 * Polling instead of sleeping keeps the tap's own wait out of what it reports about the
	 * program. The kernel looks for a message first, and then for the end of the connection: if
	 * both come in between, it reports the end, and the message is there afterwards. A message
	 * that brings descriptors is not an end.
	 */
	do {
		message.msg_controllen = CMSG_LEN(3 * sizeof(int)); /* the space is for a fourth */
		flags = MSG_CMSG_CLOEXEC | (attempts < most ? MSG_DONTWAIT : 0);
		if (attempts == most) /* do not wait for ever */
			debox_raw(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, (long)&limit,
				  sizeof(limit), 0);
		received = debox_raw(SYS_recvmsg, fd, (long)&message, flags, 0, 0, 0);
		if (received == -EAGAIN)
			debox_raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
		attempts++;
	} while (received == -EINTR || (received == -EAGAIN && attempts <= most) ||
		 (received == 0 && !message.msg_controllen && !ends++));
	header = received < 0 ? NULL : CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS)
		got = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(fds, control.bytes + CMSG_LEN(0), got * sizeof(int));
	if (got == 3 && received == sizeof(*welcome) &&
	    !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && welcome->version == DEBOX_VERSION &&
	    welcome->secret == session->secret && welcome->slots > 0 &&
	    holds(fds[2], DEBOX_TAP_FILE_SIZE(welcome->slots)))
		return 0;
	close_all(fds, got);
	return -1;
}

/* Asks the session for its welcome and descriptors. */
static int ask(struct debox_tap_welcome *welcome, int fds[3])
{
	const char *text = getenv(DEBOX_TAP_VARIABLE);
	struct session_address session;
	int failed, fd;

	if (!text || parse_address(text, &session))
		return -1;
	fd = connect_session(&session);
	if (fd < 0)
		return -1;
	failed = receive(fd, &session, welcome, fds);
	debox_raw(SYS_close, fd, 0, 0, 0, 0, 0);
	return failed;
}

static int attach_process(void)
{
	struct debox_tap_welcome welcome;
	volatile __u32 *mine;
	int fds[3], failed;

	if (ask(&welcome, fds))
		return -1;
	slot_count = welcome.slots;
	slots = keep_addresses(slot_count * sizeof(*slots));
	tids = map(fds[1], slot_count * sizeof(*tids), PROT_READ);
	rows = map(fds[2], DEBOX_TAP_FILE_SIZE(slot_count), PROT_READ | PROT_WRITE);
	mine = mark_process();
	failed = !slots || !tids || !rows || !mine ||
		 map_slots(fds[0], slots_for(find_slot(own_tid())));
	close_all(fds, 3);
	if (failed) {
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

/*
 * Maps slots up to `count`. 0: they are mapped; 1: the call that this handler interrupted is
 * mapping; -1: they cannot be mapped.
 */
static int map_more(__u32 count, __u32 tid)
{
	struct debox_tap_welcome welcome;
	int fds[3], failed = 0, attempts = 0;
	__u32 other = 0;

	while (!__atomic_compare_exchange_n(&mapper, &other, tid, 0, __ATOMIC_ACQUIRE,
					    __ATOMIC_RELAXED)) {
		if (other == tid || ++attempts > ATTEMPTS)
			return 1;
		other = 0;
		debox_raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	}
	if (mapped_slots < count) {
		failed = ask(&welcome, fds);
		if (!failed) {
			failed = welcome.slots != slot_count || map_slots(fds[0], count);
			close_all(fds, 3);
		}
	}
	__atomic_store_n(&mapper, 0, __ATOMIC_RELEASE);
	return failed;
}

void debox_tap_before_leaving(void)
{
	debox_tap_attach();
	if (__atomic_load_n(&state, __ATOMIC_SEQ_CST) == ATTACHED)
		map_more(slot_count, own_tid());
}

/*
 * In a forked child: the only thread has a copy of the parent's data, with calls open as they were
 * there.
 */
static void begin_anew(void)
{
	debox_tap_thread.slot = &unattached;
	debox_tap_thread.start = 0;
	debox_tap_thread.depth = 0;
	mapper = 0; /* the thread that was mapping is not in this process */
	DEBOX_BARRIER();
	*debox_tap_process.mine = 1;
}

/*
 * Under another libc, whose loader has loaded this library, too, nothing is done: the shim supports
 * glibc only. There this symbol is missing.
 */
extern const char *gnu_get_libc_version(void) __attribute__((weak));

/*
 * Attaches the process once. Returns TRYING while another thread, or the call that this handler
 * interrupted, is doing so.
 */
static int ready(void)
{
	int expected = UNTRIED;

	if (__atomic_compare_exchange_n(&state, &expected, TRYING, 0, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST))
		__atomic_store_n(&state,
				 !gnu_get_libc_version || attach_process() ? NO_SESSION : ATTACHED,
				 __ATOMIC_SEQ_CST);
	return __atomic_load_n(&state, __ATOMIC_SEQ_CST);
}

/*
 * Ends what the program replaced by this one left open, and writes what is the same in all records.
 */
static void prepare(struct debox_slot *slot)
{
	slot->tap_call = 0;
	slot->tap_touched = 0;
	slot->tap_handler = 0;
	for (int i = 0; i < DEBOX_HISTORY_MAX; i++) {
		slot->history[i].version = DEBOX_VERSION;
		slot->history[i].size = sizeof(slot->history[i]);
	}
}

struct debox_slot *debox_tap_attach(void)
{
	struct debox_tap_thread *thread = &debox_tap_thread;
	struct debox_slot *slot = &debox_tap_nowhere;
	int now = ready(), missing = 0;
	__u32 index, tid;

	if (now == TRYING)
		return &debox_tap_nowhere;
	if (!*debox_tap_process.mine)
		begin_anew();
	if (thread->slot != &unattached)
		return thread->slot;
	thread->rows = NULL;
	tid = now == ATTACHED ? own_tid() : 0;
	index = now == ATTACHED ? find_slot(tid) : slot_count;
	if (index < slot_count && index >= __atomic_load_n(&mapped_slots, __ATOMIC_ACQUIRE))
		missing = map_more(slots_for(index), tid);
	if (missing > 0)
		return &debox_tap_nowhere; /* until then */
	if (index < slot_count && !missing) {
		thread->rows = (struct debox_tap_row *)(rows + DEBOX_TAP_ROWS_AT(index));
		slot = &slots[index];
		prepare(slot);
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
