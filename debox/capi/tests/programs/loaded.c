/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* loaded.c: the library is loaded at run time, and used from threads that existed before. */
#include "checks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

static const struct debox_record *(*last)(void);
static atomic_int ready;

static void *look(void *unused)
{
	while (!ready)
		sleep_ms(1);
	syscall(SYS_getppid, 5);
	CHECK(last() && last()->args[0] == 5, "in an older thread");
	return unused;
}

int main(int argc, char **argv)
{
	int (*enable_loaded)(const struct debox_options *);
	pthread_t thread;
	void *library;

	pthread_create(&thread, NULL, look, NULL);
	library = dlopen(argc > 1 ? argv[1] : "libdebox.so", RTLD_NOW);
	CHECK(library, "%s", dlerror());
	enable_loaded = (int (*)(const struct debox_options *))dlsym(library, "debox_enable");
	last = (const struct debox_record *(*)(void))dlsym(library, "debox_last");
	CHECK(enable_loaded && last, "symbols");
	CHECK(enable_loaded(NULL) == 0, "enable");
	ready = 1;
	pthread_join(thread, NULL);
	return 0;
}
