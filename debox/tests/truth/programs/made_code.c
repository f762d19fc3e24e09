/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Code that is made at run time, as compilers of scripts make it, and named in /tmp/perf-PID.map:
 *   made_code MILLISECONDS          calls a function through it that sleeps so long
 *   made_code MILLISECONDS late     names it after the call
 *   made_code MILLISECONDS python   the code is a trampoline as Python's are, without a frame
 * pointer
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

static void name_code(const char *code, size_t size, const char *name)
{
	char path[64];
	FILE *map;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	map = fopen(path, "w");
	if (!map)
		exit(1);
	fprintf(map, "%lx %zx %s\n", (unsigned long)code, size, name);
	fclose(map);
}

int main(int count, char **words)
{
	/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
	static const char framed[] = "\x55\x48\x89\xe5\xff\xd7\x5d\xc3";
	/* endbr64; sub $8,%rsp; call *%rdi; add $8,%rsp; ret */
	static const char python[] = "\xf3\x0f\x1e\xfa\x48\x83\xec\x08\xff\xd7\x48\x83\xc4\x08\xc3";
	int is_late = count > 2 && !strcmp(words[2], "late");
	int is_python = count > 2 && !strcmp(words[2], "python");
	const char *name = is_python ? "py::answer:/app/main.py" : "JS:*answer /app/server.js:12";
	const char *bytes = is_python ? python : framed;
	size_t size = is_python ? sizeof(python) - 1 : sizeof(framed) - 1;
	char *code;

	milliseconds = count > 1 ? atol(words[1]) : 10;
	code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	if (code == MAP_FAILED)
		return 1;
	memcpy(code, bytes, size);
	if (!is_late)
		name_code(code, size, name);
	((void (*)(void (*)(void)))code)(sleep_now);
	if (is_late)
		name_code(code, size, name);
	return 0;
}
