/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * owner_file posix|ofd|inode|directory|mmap FILE MS: waits for locks of files
 * and of memory whose holder is known.
 *
 * posix: the process "holder" has a lock on a range, "other" on another one;
 * the third wants bytes of the first range. ofd: the lock belongs to an open
 * file, not to a process. inode: "holder" writes from a page that is not there
 * until a known time (userfaultfd), and keeps the file's inode lock meanwhile,
 * or until there is a file FILE.end; three "waiter"s want to write too.
 * directory: FILE becomes a directory; "holder" lists it into such a page, and
 * "creator" and "maker" make a file and a directory in it. mmap: "reader" reads
 * this process's memory from pages that have to come from the disk, and keeps
 * the mmap lock meanwhile; "mapper" maps.
 */
#include "known.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define PAGE 4096
#define WAITERS 3
#define ROUNDS 200

static uint64_t wait_ns;
static char end_path[4096];
static int fd;
static char *late_page;
static int faults;
static _Atomic pid_t holder_tid, waiter_tids[WAITERS];
static _Atomic uint64_t served_at, asleep_at, first_before, last_after;
static _Atomic int done;

static void set_lock(int file, int command, short type, off_t start, off_t length)
{
	struct flock lock = {.l_type = type, .l_start = start, .l_len = length};

	MUST(fcntl(file, command, &lock) == 0);
}

static pid_t start_holder(struct appointment *with, int index, const char *name, off_t start,
			  const char *path)
{
	pid_t child = fork();
	int file;

	MUST(child >= 0);
	if (child)
		return child;
	prctl(PR_SET_NAME, name);
	file = open(path, O_RDWR);
	MUST(file >= 0);
	set_lock(file, F_SETLKW, F_WRLCK, start, 100);
	atomic_store(&with->spare[index], 1);
	if (index == 0)
		meet_and_pass(with, wait_ns);
	else
		while (!atomic_load(&with->spare[2]))
			pass_ns(1000000);
	_exit(0); /* which lets go of the lock */
}

static void posix(const char *path)
{
	struct appointment *with = new_appointment();
	pid_t holder, other;
	uint64_t before;

	other = start_holder(with, 1, "other", 0, path);
	holder = start_holder(with, 0, "holder", 1000, path);
	while (!atomic_load(&with->spare[0]) || !atomic_load(&with->spare[1]))
		pass_ns(100000);
	before = keep_appointment(with);
	set_lock(fd, F_SETLKW, F_WRLCK, 1050, 10);
	end_appointment(with, before);
	atomic_store(&with->spare[2], 1);
	MUST(waitpid(holder, NULL, 0) == holder);
	MUST(waitpid(other, NULL, 0) == other);
	fact("holder_tid", (uint64_t)holder);
	fact_appointment(with);
}

static void *hold_open_file(void *argument)
{
	struct appointment *with = argument;
	int own = (int)atomic_load(&with->spare[1]);

	prctl(PR_SET_NAME, "holder");
	set_lock(own, F_OFD_SETLKW, F_WRLCK, 0, 0);
	atomic_store(&with->spare[0], 1);
	meet_and_pass(with, wait_ns);
	set_lock(own, F_OFD_SETLKW, F_UNLCK, 0, 0);
	return NULL;
}

static void open_file(const char *path)
{
	struct appointment *with = new_appointment();
	int own = open(path, O_RDWR);
	pthread_t thread;
	uint64_t before;

	MUST(own >= 0);
	atomic_store(&with->spare[1], (uint64_t)own);
	MUST(pthread_create(&thread, NULL, hold_open_file, with) == 0);
	while (!atomic_load(&with->spare[0]))
		pass_ns(100000);
	before = keep_appointment(with);
	set_lock(fd, F_OFD_SETLKW, F_WRLCK, 0, 0);
	end_appointment(with, before);
	MUST(pthread_join(thread, NULL) == 0);
	fact_appointment(with);
}

/* A page that is not there before somebody answers for it; false where that is
 * not possible. */
static int make_late_page(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register area = {.mode = UFFDIO_REGISTER_MODE_MISSING};

	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api))
		return 0;
	late_page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(late_page != MAP_FAILED);
	area.range.start = (uint64_t)late_page;
	area.range.len = PAGE;
	MUST(ioctl(faults, UFFDIO_REGISTER, &area) == 0);
	return 1;
}

static void serve_late_page(void)
{
	struct uffdio_zeropage zero = {.range = {(uint64_t)late_page, PAGE}};

	MUST(ioctl(faults, UFFDIO_ZEROPAGE, &zero) == 0);
}

static void *write_late(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "holder");
	atomic_store(&holder_tid, own_tid());
	MUST(pwrite(fd, late_page, PAGE, 0) == PAGE);
	return NULL;
}

static void *write_soon(void *nth)
{
	char page[PAGE] = {0};
	uint64_t after, known, unset = 0;
	uint64_t before = now_ns();

	prctl(PR_SET_NAME, "waiter");
	atomic_store(&waiter_tids[(intptr_t)nth], own_tid());
	MUST(pwrite(fd, page, PAGE, PAGE) == PAGE);
	after = now_ns();
	atomic_compare_exchange_strong(&first_before, &unset, before);
	known = atomic_load(&last_after);
	while (known < after && !atomic_compare_exchange_weak(&last_after, &known, after))
		;
	return NULL;
}

static void inode(void)
{
	pthread_t holder, waiters[WAITERS];
	pid_t pid = (pid_t)syscall(SYS_getpid);
	int possible = make_late_page();

	fact("possible", (uint64_t)possible);
	if (!possible)
		return;
	MUST(pthread_create(&holder, NULL, write_late, NULL) == 0);
	while (!atomic_load(&holder_tid))
		pass_ns(100000);
	await_state(pid, atomic_load(&holder_tid), "SD");
	for (intptr_t i = 0; i < WAITERS; i++) {
		MUST(pthread_create(&waiters[i], NULL, write_soon, (void *)i) == 0);
		while (!atomic_load(&waiter_tids[i]))
			pass_ns(100000);
		await_state(pid, atomic_load(&waiter_tids[i]), "D");
	}
	asleep_at = now_ns();
	while (now_ns() - asleep_at < wait_ns && access(end_path, F_OK))
		pass_ns(wait_ns < 10 * MILLISECOND ? wait_ns : 10 * MILLISECOND);
	served_at = now_ns();
	serve_late_page();
	MUST(pthread_join(holder, NULL) == 0);
	for (int i = 0; i < WAITERS; i++)
		MUST(pthread_join(waiters[i], NULL) == 0);
	fact("holder_tid", (uint64_t)atomic_load(&holder_tid));
	fact("waiters", WAITERS);
	fact("each_least_ns", served_at - asleep_at);
}

static void *list_late(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "holder");
	atomic_store(&holder_tid, own_tid());
	MUST(syscall(SYS_getdents64, fd, late_page, PAGE) > 0);
	return NULL;
}

static void *create_in_directory(void *path)
{
	char created[4200];

	prctl(PR_SET_NAME, "creator");
	snprintf(created, sizeof(created), "%s/created", (const char *)path);
	atomic_store(&waiter_tids[0], own_tid());
	MUST(syscall(SYS_open, created, O_WRONLY | O_CREAT | O_EXCL, 0600) >= 0);
	return NULL;
}

static void *make_in_directory(void *path)
{
	char made[4200];

	prctl(PR_SET_NAME, "maker");
	snprintf(made, sizeof(made), "%s/made", (const char *)path);
	atomic_store(&waiter_tids[1], own_tid());
	MUST(syscall(SYS_mkdir, made, 0700) == 0);
	return NULL;
}

static void directory(const char *path)
{
	pid_t pid = (pid_t)syscall(SYS_getpid);
	pthread_t holder, waiters[2];
	char listing[PAGE];
	int possible;

	close(fd);
	MUST(unlink(path) == 0 && mkdir(path, 0700) == 0);
	fd = open(path, O_RDONLY | O_DIRECTORY);
	MUST(fd >= 0);
	while (syscall(SYS_getdents64, fd, listing, sizeof(listing)) > 0)
		; /* nothing comes from the disk later */
	MUST(lseek(fd, 0, SEEK_SET) == 0);
	possible = make_late_page();
	fact("possible", (uint64_t)possible);
	if (!possible)
		return;
	MUST(pthread_create(&holder, NULL, list_late, NULL) == 0);
	while (!atomic_load(&holder_tid))
		pass_ns(100000);
	await_state(pid, atomic_load(&holder_tid), "SD");
	MUST(pthread_create(&waiters[0], NULL, create_in_directory, (void *)path) == 0);
	MUST(pthread_create(&waiters[1], NULL, make_in_directory, (void *)path) == 0);
	for (int i = 0; i < 2; i++) {
		while (!atomic_load(&waiter_tids[i]))
			pass_ns(100000);
		await_state(pid, atomic_load(&waiter_tids[i]), "D");
	}
	asleep_at = now_ns();
	pass_ns(wait_ns);
	served_at = now_ns();
	serve_late_page();
	MUST(pthread_join(holder, NULL) == 0);
	for (int i = 0; i < 2; i++)
		MUST(pthread_join(waiters[i], NULL) == 0);
	fact("holder_tid", (uint64_t)atomic_load(&holder_tid));
	fact("each_least_ns", served_at - asleep_at);
}

static void *read_own_memory(void *mapped)
{
	int memory = open("/proc/self/mem", O_RDONLY);
	char byte;

	prctl(PR_SET_NAME, "reader");
	atomic_store(&holder_tid, own_tid());
	MUST(memory >= 0);
	for (int round = 0; round < ROUNDS; round++) {
		off_t at = (off_t)round * 64 * PAGE;

		MUST(pread(memory, &byte, 1, (off_t)(uintptr_t)mapped + at) == 1);
	}
	atomic_store(&done, 1);
	return NULL;
}

static void *map_and_unmap(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "mapper");
	atomic_store(&waiter_tids[0], own_tid());
	while (!atomic_load(&done)) {
		void *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		MUST(page != MAP_FAILED);
		munmap(page, PAGE);
	}
	return NULL;
}

static void memory(void)
{
	const size_t size = (size_t)ROUNDS * 64 * PAGE;
	pthread_t reader, mapper;
	char *mapped;

	MUST(posix_fallocate(fd, 0, (off_t)size) == 0);
	for (size_t at = 0; at < size; at += 64 * PAGE)
		MUST(pwrite(fd, "x", 1, (off_t)at) == 1);
	MUST(fsync(fd) == 0);
	MUST(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	mapped = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	MUST(mapped != MAP_FAILED);
	MUST(madvise(mapped, size, MADV_RANDOM) == 0);
	MUST(pthread_create(&mapper, NULL, map_and_unmap, NULL) == 0);
	MUST(pthread_create(&reader, NULL, read_own_memory, mapped) == 0);
	MUST(pthread_join(reader, NULL) == 0);
	MUST(pthread_join(mapper, NULL) == 0);
	fact("holder_tid", (uint64_t)atomic_load(&holder_tid));
	fact("mapper_tid", (uint64_t)atomic_load(&waiter_tids[0]));
}

int main(int argc, char **argv)
{
	facts_start();
	MUST(argc > 2);
	wait_ns = argument(argc, argv, 3, 100) * MILLISECOND;
	fd = open(argv[2], O_RDWR | O_CREAT, 0600);
	MUST(fd >= 0);
	snprintf(end_path, sizeof(end_path), "%s.end", argv[2]);
	if (!strcmp(argv[1], "posix"))
		posix(argv[2]);
	else if (!strcmp(argv[1], "ofd"))
		open_file(argv[2]);
	else if (!strcmp(argv[1], "inode"))
		inode();
	else if (!strcmp(argv[1], "directory"))
		directory(argv[2]);
	else
		memory();
	facts_end();
	return 0;
}
