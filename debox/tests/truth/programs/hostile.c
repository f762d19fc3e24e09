// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program whose names would steer a terminal: its own, its child's, and that of the file which
 * both lock. It is an event loop that blocks: hostile FILE MILLISECONDS
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000L

static long now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / MS;
}

static void pause_ms(long ms)
{
	struct timespec time = {.tv_nsec = ms * MS};
	nanosleep(&time, NULL);
}

static int open_locked_file(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0)
		exit(1);
	return file;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	/* A terminal's title, a line of its own, and text from right to left. */
	prctl(PR_SET_NAME, "\033]0;p\a\nFORG\342\200\256");
	pid_t child = fork();
	if (child < 0)
		return 1;
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		int file = open_locked_file(argv[1]);
		for (;;) {
			flock(file, LOCK_EX);
			pause_ms(10);
			flock(file, LOCK_UN);
			pause_ms(2);
		}
	}
	int file = open_locked_file(argv[1]);
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	long end = now_ms() + atol(argv[2]);
	while (now_ms() < end) {
		struct epoll_event event;
		epoll_wait(epoll, &event, 1, 1);
		flock(file, LOCK_EX);
		flock(file, LOCK_UN);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
