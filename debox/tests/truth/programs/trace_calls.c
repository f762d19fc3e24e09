/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * trace_calls: calls whose inside is known.
 *
 *   read MS      reads a megabyte from the page cache again and again for MS milliseconds
 *   once [stop]  open, read and fork, once each; with `stop` after a SIGSTOP, and with all that
 * they use in the caches: other calls have done the same before grow N MB    forks N times, each
 * time with MB more megabytes of memory in use
 */
#include "known.h"

#define MEGABYTE (1 << 20)

static void read_for(uint64_t ms)
{
	char *buffer = malloc(MEGABYTE);
	uint64_t end = now_ns() + ms * MILLISECOND, reads = 0;
	int fd = memfd_create("pages", 0);

	MUST(buffer && fd >= 0);
	memset(buffer, 1, MEGABYTE);
	MUST(pwrite(fd, buffer, MEGABYTE, 0) == MEGABYTE);
	for (; now_ns() < end; reads++)
		MUST(syscall(SYS_pread64, fd, buffer, MEGABYTE, 0) == MEGABYTE);
	fact("reads", reads);
}

/* Forks without libc's own work around it, and waits for the child. */
static void fork_once(int is_clone)
{
	long child = is_clone ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : syscall(SYS_fork);

	MUST(child >= 0);
	if (!child)
		_exit(0);
	MUST(waitpid((pid_t)child, NULL, 0) == child);
}

/* The kernel keeps memory of processes that ended for the next ones, on each CPU. */
static void stay_on_this_cpu(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	MUST(sched_setaffinity(0, sizeof(one), &one) == 0);
}

static void once(int is_stopped)
{
	static const char path[] = "/proc/self/comm";
	char buffer[64];
	long fd;

	if (is_stopped) {
		stay_on_this_cpu();
		fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
		MUST(fd >= 0);
		MUST(syscall(SYS_pread64, fd, buffer, sizeof(buffer), 0) > 0);
		MUST(close((int)fd) == 0);
		fork_once(1);
		raise(SIGSTOP);
	}
	fd = syscall(SYS_open, path, O_RDONLY);
	MUST(fd >= 0);
	MUST(syscall(SYS_read, fd, buffer, sizeof(buffer)) > 0);
	fork_once(0);
}

static void grow(uint64_t forks, uint64_t megabytes)
{
	uint64_t size = megabytes * MEGABYTE;

	for (uint64_t i = 0; i < forks; i++) {
		char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				    -1, 0);

		MUST(memory != MAP_FAILED);
		for (uint64_t at = 0; at < size; at += 4096)
			memory[at] = 1;
		fork_once(0);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	facts_start();
	if (!strcmp(what, "read"))
		read_for(argument(argc, argv, 2, 300));
	else if (!strcmp(what, "once"))
		once(argc > 2);
	else if (!strcmp(what, "grow"))
		grow(argument(argc, argv, 2, 10), argument(argc, argv, 3, 16));
	else
		return 2;
	facts_end();
	return 0;
}
