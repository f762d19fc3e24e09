/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * faults: pages touched in three functions: directly, in a function that is inlined, and in the C
 * library. Each thread that touches one sleeps in the fault.
 *
 * faults answered FILE COUNT   anonymous pages, each given by another thread when it is asked for
 * faults cold FILE COUNT       pages of a mapped file that are not in memory
 *
 * COUNT pages for each function; `possible` is 0 where that cannot be done. How often each function
 * slept it knows from the scheduler: between two readings it does nothing else.
 */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include "known.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define PAGE 4096ULL
#define STRIDE (64 * PAGE)

static volatile uint64_t sum; /* work after each touch, so that none is the last of its function */
static void *(*volatile find)(const void *, int, size_t) = memchr;
static int faults;

static inline __attribute__((always_inline)) void inlined_touch(const volatile char *page)
{
	sum += (uint64_t)*page; /* inlined touch */
}

static __attribute__((noinline)) void touch_directly(const volatile char *page)
{
	sum += (uint64_t)*page; /* direct touch */
}

static __attribute__((noinline)) void touch_inlined(const volatile char *page)
{
	inlined_touch(page); /* caller of inlined */
	sum++;
}

static __attribute__((noinline)) void touch_in_library(const char *page)
{
	sum += find(page, 1, 64) != NULL; /* library touch */
}

static void *give_pages(void *unused)
{
	struct uffd_msg message;

	(void)unused;
	while (read(faults, &message, sizeof(message)) == sizeof(message)) {
		uint64_t page = message.arg.pagefault.address & ~(PAGE - 1);
		struct uffdio_zeropage zero = {.range = {page, PAGE}};

		pass_ns(2 * MILLISECOND);
		MUST(ioctl(faults, UFFDIO_ZEROPAGE, &zero) == 0);
	}
	return NULL;
}

static char *answered_pages(uint64_t size)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register area = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	pthread_t giver;
	char *pages;

	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api))
		return NULL;
	pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(pages != MAP_FAILED);
	area.range.start = (uint64_t)pages;
	area.range.len = size;
	MUST(ioctl(faults, UFFDIO_REGISTER, &area) == 0);
	MUST(pthread_create(&giver, NULL, give_pages, NULL) == 0);
	return pages;
}

static uint64_t count_resident(char *pages, uint64_t size)
{
	uint64_t resident = 0;
	unsigned char *state = malloc(size / PAGE);

	MUST(state && mincore(pages, size, state) == 0);
	for (uint64_t i = 0; i < size / PAGE; i++)
		resident += state[i] & 1;
	free(state);
	return resident;
}

static char *cold_pages(const char *path, uint64_t size)
{
	static char page[PAGE];
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	char *pages;

	MUST(fd >= 0);
	for (uint64_t offset = 0; offset < size; offset += PAGE)
		MUST(pwrite(fd, page, PAGE, (off_t)offset) == (ssize_t)PAGE);
	MUST(syncfs(fd) == 0);
	pages = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	MUST(pages != MAP_FAILED && madvise(pages, size, MADV_RANDOM) == 0);
	for (int attempt = 0; attempt < 50; attempt++) {
		MUST(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
		if (count_resident(pages, size) == 0)
			return pages;
		pass_ns(20 * MILLISECOND);
	}
	return NULL;
}

static uint64_t switches(void)
{
	struct rusage usage;

	MUST(getrusage(RUSAGE_THREAD, &usage) == 0);
	return (uint64_t)usage.ru_nvcsw;
}

int main(int argc, char **argv)
{
	uint64_t count = argument(argc, argv, 3, 8), size = 3 * count * STRIDE;
	uint64_t slept[3] = {0}, before;
	char *pages;

	facts_start();
	MUST(argc > 2);
	pages = strcmp(argv[1], "cold") ? answered_pages(size) : cold_pages(argv[2], size);
	fact("possible", pages != NULL);
	/* Their own pages are there from now on. */
	switches();
	touch_directly(argv[0]);
	touch_inlined(argv[0]);
	touch_in_library(argv[0]);
	for (uint64_t i = 0; pages && i < count; i++) {
		before = switches();
		touch_directly(pages);
		slept[0] += switches() - before;
		before = switches();
		touch_inlined(pages + STRIDE);
		slept[1] += switches() - before;
		before = switches();
		touch_in_library(pages + 2 * STRIDE);
		slept[2] += switches() - before;
		pages += 3 * STRIDE;
	}
	fact("slept_directly", slept[0]);
	fact("slept_inlined", slept[1]);
	fact("slept_in_library", slept[2]);
	facts_end();
	return 0;
}
