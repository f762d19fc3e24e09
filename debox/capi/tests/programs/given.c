/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the broker's descriptors allow: a client tries everything with the descriptors that it gets.
 * Nothing may change for others, and nothing may remain that its user does not pay for.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/falloc.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "checks.h"

#define PAGE 4096
#define ENABLED 1

struct given {
	int connection, slots, page;
};

/* Becomes a client in the broker's own language; the connection is -1 if that is refused. */
static struct given ask(void)
{
	static const unsigned char hello[] = {
		0,
#include "../../../engine/src/broker/version.h"
	};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	unsigned char welcome[256], message[64] = {1}, answer[256];
	int fds[2], fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	char control[CMSG_SPACE(sizeof(fds))] = {};
	struct iovec data = {answer, sizeof(answer)};
	struct msghdr header = {.msg_iov = &data,
				.msg_iovlen = 1,
				.msg_control = control,
				.msg_controllen = sizeof(control)};
	ssize_t length;

	strncpy(address.sun_path, getenv("DEBOX_BROKER"), sizeof(address.sun_path) - 1);
	CHECK(connect(fd, (void *)&address, sizeof(address)) == 0, "%s", strerror(errno));
	CHECK(send(fd, hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello), "send");
	length = recv(fd, welcome, sizeof(welcome), 0) - 2;
	CHECK(length > 0 && welcome[0] == 0, "no welcome");
	memcpy(message + 1, welcome + 2, length);
	memcpy(message + 1 + length, "\0\1\0\10", 4); /* kernel tap, sleeps, no irq, 8 threads */
	CHECK(send(fd, message, length + 5, MSG_NOSIGNAL) == length + 5, "send");
	length = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
	if (length < 1 || answer[0] != ENABLED) {
		close(fd);
		return (struct given){-1, -1, -1};
	}
	CHECK(CMSG_FIRSTHDR(&header)->cmsg_len == CMSG_LEN(sizeof(fds)), "no descriptors");
	memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(fds));
	return (struct given){fd, fds[0], fds[1]};
}

static void give_back(struct given given)
{
	close(given.connection);
	close(given.slots);
	close(given.page);
}

#define REFUSED(call)                                                                              \
	do {                                                                                       \
		errno = 0;                                                                         \
		CHECK((call) == -1, "was allowed");                                                \
	} while (0)

/* For any file: nothing may be attached to it, and no other user gets in. */
static void try_inode(int fd)
{
	static char value[65536];
	struct timespec times[2] = {{1, 0}, {1, 0}};
	char path[64];

	REFUSED(fsetxattr(fd, "user.mine", value, sizeof(value), 0));
	REFUSED(fsetxattr(fd, "trusted.mine", value, sizeof(value), 0));
	REFUSED(fsetxattr(fd, "system.posix_acl_access", value, 4, 0));
	REFUSED(fremovexattr(fd, "user.mine"));
	REFUSED(fchmod(fd, 0777));
	REFUSED(fchown(fd, getuid(), -1));
	REFUSED(futimens(fd, times));
	REFUSED(fcntl(fd, F_SETLEASE, F_RDLCK));
	REFUSED(fcntl(fd, F_SETLEASE, F_WRLCK));
	REFUSED(fcntl(fd, F_NOTIFY, DN_MODIFY | DN_ACCESS));
	REFUSED(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	REFUSED(open(path, O_RDWR));
	REFUSED(open(path, O_WRONLY | O_TRUNC));
	REFUSED(truncate(path, 0));
}

/* A file in memory that root owns and every user may read, and nothing else. */
static const char *readable;

/* Debian's 6.1 lets every user set security attributes on any file that he has open. */
static int everyone_hangs_attributes(void)
{
	int fd = open(readable, O_RDONLY | O_CLOEXEC), result;

	CHECK(fd >= 0, "%s: %s", readable, strerror(errno));
	result = fsetxattr(fd, "security.mine", "", 1, 0);
	close(fd);
	return result == 0;
}

static void check_everyone(void)
{
	CHECK(everyone_hangs_attributes(), "it was refused");
}

/* The page that all clients share. */
static void check_page(void)
{
	struct given first = ask(), second = ask();
	unsigned int *words;
	struct stat status;

	CHECK(first.page >= 0 && second.page >= 0, "not let in");
	CHECK(fstat(first.page, &status) == 0, "fstat");
	CHECK((status.st_mode & 07777) == 0444 && status.st_uid == 0, "mode %o of user %u",
	      status.st_mode, status.st_uid);
	try_inode(first.page);
	if (!everyone_hangs_attributes())
		REFUSED(fsetxattr(first.page, "security.mine", "", 1, 0));
	REFUSED(ftruncate(first.page, 0));
	REFUSED(ftruncate(first.page, 2 * PAGE));
	REFUSED(fallocate(first.page, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
	REFUSED(write(first.page, "x", 1));
	REFUSED((intptr_t)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, first.page, 0));
	words = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, first.page, 0);
	CHECK(words != MAP_FAILED, "mmap: %s", strerror(errno));
	REFUSED(mprotect(words, PAGE, PROT_READ | PROT_WRITE));
	REFUSED(madvise(words, PAGE, MADV_REMOVE));
	REFUSED(syscall(SYS_futex, words, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
	REFUSED(syscall(SYS_futex, words, FUTEX_WAKE_OP, 0, 0, words, 1 << 28));

	/* One word, and none of the broker's addresses or anything else. */
	CHECK(words[0], "the word is 0");
	for (int i = 1; i < PAGE / 4; i++)
		CHECK(words[i] == 0, "word %d is %x", i, words[i]);

	/*
	 * The state of an open file is not shared: its position, flags, and locks, which take
	 * memory.
	 */
	CHECK(lseek(first.page, 77, SEEK_SET) == 77, "lseek");
	CHECK(lseek(second.page, 0, SEEK_CUR) == 0, "clients share one open file");
	CHECK(fcntl(first.page, F_SETFL, O_NONBLOCK | O_ASYNC) == 0, "F_SETFL");
	CHECK(!(fcntl(second.page, F_GETFL) & O_NONBLOCK), "clients share their flags");
	for (int i = 0; i < 1000; i++) {
		struct flock lock = {.l_type = F_RDLCK, .l_start = 2 * i, .l_len = 1};

		CHECK(fcntl(first.page, F_OFD_SETLK, &lock) == 0, "%s", strerror(errno));
	}
	CHECK(flock(first.page, LOCK_EX) == 0, "flock");
	munmap(words, PAGE);
	give_back(first);
	for (int tries = 0;; tries++) {
		struct flock lock = {.l_type = F_WRLCK};

		CHECK(fcntl(second.page, F_OFD_GETLK, &lock) == 0, "%s", strerror(errno));
		if (lock.l_type == F_UNLCK && flock(second.page, LOCK_EX | LOCK_NB) == 0)
			break;
		CHECK(tries < 100, "locks stay when their holder has closed everything");
		sleep_ms(10);
	}
	give_back(second);
}

static long bpf(int command, union bpf_attr *attributes)
{
	return syscall(SYS_bpf, command, attributes, sizeof(*attributes));
}

/*
 * The slots belong to the client alone. It may write, freeze and pass them on, and harms only its
 * own records. They count against its limits as long as any part of them exists.
 */
static void check_slots(void)
{
	struct given given = ask();
	struct bpf_map_info info = {};
	union bpf_attr attributes = {.info = {.bpf_fd = given.slots,
					      .info_len = sizeof(info),
					      .info = (uintptr_t)&info}};
	unsigned int number, key = 8;
	long result;

	CHECK(given.slots >= 0, "not let in");
	try_inode(given.slots);
	REFUSED(fsetxattr(given.slots, "security.mine", "", 1, 0));
	result = bpf(BPF_OBJ_GET_INFO_BY_FD, &attributes);
	number = result ? 0 : info.id;
	CHECK(result || info.max_entries == 8, "%u slots", info.max_entries);
	/* More entries than there are. */
	attributes = (union bpf_attr){.map_fd = given.slots,
				      .key = (uintptr_t)&key,
				      .value = (uintptr_t)calloc(1, 65536)};
	REFUSED(bpf(BPF_MAP_UPDATE_ELEM, &attributes));
	key = 0;
	attributes.key = (uintptr_t)&key;
	REFUSED(bpf(BPF_MAP_DELETE_ELEM, &attributes));
	/* Others' maps, the broker's among them, by their numbers. */
	for (unsigned int other = number > 20 ? number - 20 : 1; other < number + 20; other++) {
		attributes = (union bpf_attr){.map_id = other};
		REFUSED(bpf(BPF_MAP_GET_FD_BY_ID, &attributes));
	}
	/* The client has no directory to pin it in. */
	attributes = (union bpf_attr){.pathname = (uintptr_t)"/sys/fs/bpf/debox-mine",
				      .bpf_fd = given.slots};
	REFUSED(bpf(BPF_OBJ_PIN, &attributes));
	/*
	 * Depending on the kernel's version this is allowed or not. If it is, the client can no
	 * longer write.
	 */
	attributes = (union bpf_attr){.map_fd = given.slots};
	bpf(BPF_MAP_FREEZE, &attributes);
	give_back(given);
	/* The broker still works, and the next client gets slots as they should be. */
	given = ask();
	CHECK(given.slots >= 0, "not let in after that");
	CHECK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, given.slots, 0) != MAP_FAILED,
	      "mmap: %s", strerror(errno));
	give_back(given);
	enable();
	sleep_ms(1);
	CHECK(debox_last(), "no record");
}

static const struct check checks[] = {
	{"everyone", check_everyone},
	{"page", check_page},
	{"slots", check_slots},
};

int main(int argc, char **argv)
{
	readable = argc > 2 ? argv[2] : "";
	return run_check(checks, sizeof(checks) / sizeof(checks[0]), argc > 1 ? argv[1] : NULL);
}
