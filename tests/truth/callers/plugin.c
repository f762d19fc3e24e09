/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * plugin: a library that is loaded while the program runs. Built with -DHOST it is that program.
 */
#ifdef HOST

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	int zeros = open("/dev/zero", O_RDONLY), count = 0;
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	int (*call_in_plugin)(int) = library ? dlsym(library, "call_in_plugin") : NULL;

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
