/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * grow MEGABYTES FILES ROUNDS: a process that holds this much memory, in mappings of one megabyte,
 * and this many open files, like a server with its caches; then it forks and maps memory ROUNDS
 * times.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEGABYTE (1 << 20)

static void must(int is_good, const char *what)
{
	if (!is_good) {
		perror(what);
		exit(1);
	}
}

/* One mmap, so that the later ones are not averaged with it. Neighbours with different protection
 * are not merged into one mapping. */
static void hold_memory(long megabytes)
{
	size_t size = (size_t)megabytes * MEGABYTE;
	char *memory;

	if (!size)
		return;
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(memory != MAP_FAILED, "mmap");
	memset(memory, 1, size);
	for (long i = 1; i < megabytes; i += 2)
		must(!mprotect(memory + i * MEGABYTE, MEGABYTE, PROT_READ), "mprotect");
}

static void hold_files(long files)
{
	struct rlimit limit = {(rlim_t)files + 64, (rlim_t)files + 64};

	must(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
	for (long i = 0; i < files; i++)
		must(open("/dev/null", O_RDONLY) >= 0, "open");
}

int main(int argc, char **argv)
{
	long rounds = argc > 3 ? atol(argv[3]) : 10;

	hold_memory(argc > 1 ? atol(argv[1]) : 0);
	hold_files(argc > 2 ? atol(argv[2]) : 0);
	for (long i = 0; i < rounds; i++) {
		long child = syscall(SYS_fork);
		void *memory;

		must(child >= 0, "fork");
		if (!child)
			_exit(0);
		must(waitpid((pid_t)child, NULL, 0) == child, "waitpid");
		memory = (void *)syscall(SYS_mmap, 0, MEGABYTE, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		must(memory != MAP_FAILED, "mmap");
		must(!syscall(SYS_munmap, memory, MEGABYTE), "munmap");
	}
	return 0;
}
