/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * inode_lock FILE THREADS WRITES: threads extend one file with O_DIRECT writes. Each write holds
 * the inode lock while the device works, so all but one thread wait for the lock, asleep: the
 * holder is not on a CPU, so the waiters do not spin. Several contenders, since one alone mostly
 * spins.
 */
#include "known.h"

#define PIECE 65536

static uint64_t writes;
static int fd;
static _Atomic off_t end;
static _Atomic uint64_t asleep_ns, wall_ns, sleeps;

static void *contender(void *unused)
{
	struct section section;
	void *buffer;

	(void)unused;
	prctl(PR_SET_NAME, "contender");
	MUST(posix_memalign(&buffer, 4096, PIECE) == 0);
	memset(buffer, 'x', PIECE);
	section = section_now();
	for (uint64_t i = 0; i < writes; i++)
		MUST(pwrite(fd, buffer, PIECE, atomic_fetch_add(&end, PIECE)) == PIECE);
	section = section_since(section);
	atomic_fetch_add(&asleep_ns, section.asleep_ns);
	atomic_fetch_add(&wall_ns, section.wall_ns);
	atomic_fetch_add(&sleeps, section.sleeps);
	free(buffer);
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t count = argument(argc, argv, 2, 6);
	pthread_t threads[64];
	int direct;

	facts_start();
	writes = argument(argc, argv, 3, 40);
	MUST(argc > 1 && count <= 64);
	fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	direct = fd >= 0;
	fact("direct", (uint64_t)direct);
	if (direct) {
		for (uint64_t i = 0; i < count; i++)
			MUST(pthread_create(&threads[i], NULL, contender, NULL) == 0);
		for (uint64_t i = 0; i < count; i++)
			MUST(pthread_join(threads[i], NULL) == 0);
	}
	fact("threads", count);
	fact("writes", count * writes);
	fact("section_asleep_ns", atomic_load(&asleep_ns));
	fact("section_wall_ns", atomic_load(&wall_ns));
	fact("section_sleeps", atomic_load(&sleeps));
	facts_end();
	return 0;
}
