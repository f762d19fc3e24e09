/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * mapped_copy.c: Figure 2.4 of Ruan and Pai, "Making the Box Transparent", with the interface
 * of 2004.
 *
 * Maps a 10 MB file that is not in memory and copies it to another file with one write(). What
 * looks like a write is mostly page faults and reads: DeBoxInfo tells.
 *
 *	mapped_copy [--tap user] [DIRECTORY]
 *
 * The directory is to be on a real disk; default: the current one. With `--tap user` the program
 * takes the stamps itself, and the buffer is filled when the call returns.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "debox.h"
#include "debox_2004.h"

#define LENGTH (10 << 20)

static DeBoxInfo info;

static long microseconds(const struct timeval *time)
{
	return time->tv_sec * 1000000L + time->tv_usec;
}

static void print_info(void)
{
	const struct timeval *time = &info.CallTime.callTimeval;

	printf("DeBoxInfo:\n");
	printf("%12d, /* system call # */\n", info.syscallNum);
	printf("%12ld, /* call time, microsecs */\n", microseconds(time));
	printf("%12d, /* # of page faults */\n", info.numPGFaults);
	printf("%12d, /* # of PerSleepInfo used */\n", info.numPerSleepInfo);
	printf("%12d, /* # of CallTrace used (disabled) */\n", info.traceDepth);
	for (int i = 0; i < info.numPerSleepInfo; i++) {
		const PerSleepInfo *psi = &info.psi[i];

		printf("\nPerSleepInfo[%d]:\n", i);
		printf("%12d /* # occurrences */\n", psi->numSleeps);
		printf("%12ld /* time blocked, microsecs */\n", microseconds(&psi->blockedTime));
		printf("%12s /* resource label */\n", psi->wmesg);
		printf("%12s /* file (or function) where blocked */\n", psi->blockingFile);
		printf("%12d /* line where blocked */\n", psi->blockingLine);
		printf("%12d /* # processes on entry */\n", psi->numWaitersEntry);
		printf("%12d /* # processes on exit */\n", psi->numWaitersExit);
	}
}

/* A file that is on the disk and nowhere else. */
static int make_cold_file(const char *path)
{
	static char block[1 << 16];
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd < 0)
		err(1, "%s", path);
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)(i * 31);
	for (int written = 0; written < LENGTH; written += sizeof(block))
		if (write(fd, block, sizeof(block)) != sizeof(block))
			err(1, "%s", path);
	if (fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		err(1, "%s", path);
	return fd;
}

int main(int argc, char **argv)
{
	struct debox_options options = {.size = sizeof(options), .detail = DEBOX_DETAIL_SLEEPS};
	const char *directory = ".";
	char from[PATH_MAX], to[PATH_MAX];
	int in, out;
	void *mapped;
	ssize_t written;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--tap") && argv[i + 1] && !strcmp(argv[i + 1], "user")) {
			options.tap = DEBOX_TAP_USER;
			i++;
		} else {
			directory = argv[i];
		}
	}
	snprintf(from, sizeof(from), "%s/mapped_copy.%d.from", directory, getpid());
	snprintf(to, sizeof(to), "%s/mapped_copy.%d.to", directory, getpid());
	in = make_cold_file(from);
	/* O_DSYNC: the call returns when the data is on the disk. */
	out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_DSYNC, 0600);
	if (out < 0)
		err(1, "%s", to);
	mapped = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, in, 0);
	if (mapped == MAP_FAILED)
		err(1, "mmap");
	unlink(from);
	unlink(to);

	/* DeBoxControl alone would do for the kernel tap. */
	if (debox_enable(&options) || DeBoxControl(&info, 5, 0))
		errx(1, "DeBox: %s", debox_last_error_text());
	/* Under the kernel tap this is just write(). */
	written = debox_call(SYS_write, out, mapped, LENGTH);
	if (DeBoxFetch() != 1)
		errx(1, "the call left no record");
	if (written != LENGTH)
		errx(1, "wrote %zd of %d bytes", written, LENGTH);
	print_info();
	DeBoxControl(NULL, 0, 0);
	debox_disable();
	return 0;
}
