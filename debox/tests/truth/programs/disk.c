/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * disk fsync FILE COUNT   appends and makes durable, COUNT times
 * disk read FILE COUNT    COUNT single-page reads of a file that is not in memory
 * disk map FILE COUNT     COUNT touches of such a file's mapped pages: major faults in user code
 *
 * What the device takes is not known beforehand; the scheduler's account of the section is.
 * `cold_pages` says how many of the COUNT pages were truly out of memory before (mincore).
 */
#include "known.h"

#define PAGE 4096ULL
#define STRIDE (64 * PAGE)

static char page[PAGE];

static uint64_t count_resident(const unsigned char *map, uint64_t size)
{
	uint64_t pages = size / PAGE, resident = 0;
	unsigned char *state = malloc(pages);

	MUST(state && mincore((void *)map, size, state) == 0);
	for (uint64_t i = 0; i < pages; i++)
		resident += state[i] & 1;
	free(state);
	return resident;
}

/* A file of COUNT strides whose pages have been written back and dropped from memory. */
static unsigned char *make_cold(int fd, uint64_t count)
{
	uint64_t size = count * STRIDE;
	struct iovec part = {page, PAGE};
	unsigned char *map;

	for (uint64_t offset = 0; offset < size; offset += PAGE) {
		memset(page, (int)(offset / STRIDE % 251 + 1), PAGE);
		MUST(pwritev(fd, &part, 1, (off_t)offset) == (ssize_t)PAGE);
	}
	MUST(syncfs(fd) == 0);
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	MUST(map != MAP_FAILED && madvise(map, size, MADV_RANDOM) == 0);
	for (int attempt = 0; attempt < 50; attempt++) {
		MUST(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
		if (count_resident(map, size) == 0)
			break;
		pass_ns(20 * MILLISECOND);
	}
	fact("cold_pages", (size - count_resident(map, size) * PAGE) / STRIDE);
	MUST(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
	return map;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "fsync";
	uint64_t count = argument(argc, argv, 3, 32);
	volatile unsigned char *map = NULL;
	struct section section;
	uint64_t sum = 0;
	int fd;

	facts_start();
	MUST(argc > 2);
	fd = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
	MUST(fd >= 0);
	if (strcmp(what, "fsync"))
		map = make_cold(fd, count);
	section = section_now();
	for (uint64_t i = 0; i < count; i++) {
		if (!strcmp(what, "fsync")) {
			MUST(write(fd, page, PAGE) == (ssize_t)PAGE && fsync(fd) == 0);
		} else if (!strcmp(what, "read")) {
			MUST(pread(fd, page, PAGE, (off_t)(i * STRIDE)) == (ssize_t)PAGE);
			MUST((unsigned char)page[0] == i % 251 + 1);
		} else {
			sum += map[i * STRIDE] == i % 251 + 1;
		}
	}
	section = section_since(section);
	if (!strcmp(what, "map"))
		MUST(sum == count);
	fact("count", count);
	fact_section(section);
	facts_end();
	return 0;
}
