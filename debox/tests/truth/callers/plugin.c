/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * plugin: a library that is loaded while the program runs. Built with -DHOST it is that program.
 * Usage: host LIBRARY [held]
 *
 * held: stops its parent, which measures it. Somebody has to continue that when the program has
 * ended: by then there is nothing left of it but what the parent was told.
 */
#ifdef HOST

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The name of the process has no parentheses. */
static int is_stopped(int pid)
{
	char path[64], stat[256] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (!fgets(stat, sizeof(stat), file))
		stat[0] = 0;
	fclose(file);
	return strstr(stat, ") T ") != NULL;
}

int main(int argc, char **argv)
{
	int zeros = open("/dev/zero", O_RDONLY), count = 0;
	int (*call_in_plugin)(int);
	void *library;

	if (argc > 2) {
		kill(getppid(), SIGSTOP);
		while (!is_stopped(getppid()))
			usleep(1000);
	}
	library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	call_in_plugin = library ? dlsym(library, "call_in_plugin") : NULL;
	if (!call_in_plugin)
		return 99;
	for (int i = 0; i < 500; i++)
		count += call_in_plugin(zeros); /* caller of the plugin */
	return count != 500;
}

#else

#include <unistd.h>

int call_in_plugin(int zeros)
{
	char byte;

	return read(zeros, &byte, 1) == 1; /* plugin read */
}

#endif
