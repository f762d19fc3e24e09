/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Code that is made at run time, as compilers of scripts make it, and named in /tmp/perf-PID.map:
 *   made_code MILLISECONDS          calls a function through it that sleeps so long
 *   made_code MILLISECONDS late     names it after the call
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static long milliseconds;

__attribute__((noinline)) static void sleep_now(void)
{
	struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};

	nanosleep(&time, 0);
	__asm__ volatile("");
}

static void name_code(const char *code, size_t size)
{
	char path[64];
	FILE *map;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	map = fopen(path, "w");
	if (!map)
		exit(1);
	fprintf(map, "%lx %zx JS:*answer /app/server.js:12\n", (unsigned long)code, size);
	fclose(map);
}

int main(int count, char **words)
{
	/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
	static const char bytes[] = "\x55\x48\x89\xe5\xff\xd7\x5d\xc3";
	int is_late = count > 2 && !strcmp(words[2], "late");
	char *code;

	milliseconds = count > 1 ? atol(words[1]) : 10;
	code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	if (code == MAP_FAILED)
		return 1;
	memcpy(code, bytes, sizeof(bytes));
	if (!is_late)
		name_code(code, sizeof(bytes));
	((void (*)(void (*)(void)))code)(sleep_now);
	if (is_late)
		name_code(code, sizeof(bytes));
	return 0;
}
