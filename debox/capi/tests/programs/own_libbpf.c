/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program with functions that libbpf has, too, linked with libdebox.a: each side calls its own.
 */
#include "checks.h"

static int calls;

void *bpf_object__open(const char *path);
int bpf_map_update_elem(int map, const void *key, const void *value, unsigned long long flags);
void btf__free(void *btf);
void *elf_open(const char *path);

void *bpf_object__open(const char *path)
{
	calls++;
	return (void *)path;
}

int bpf_map_update_elem(int map, const void *key, const void *value, unsigned long long flags)
{
	calls++;
	return map + (key == value) + (int)flags;
}

void btf__free(void *btf)
{
	calls += btf == 0;
}

void *elf_open(const char *path)
{
	return bpf_object__open(path);
}

int main(void)
{
	const struct debox_record *record;

	enable();
	syscall(SYS_getppid);
	record = debox_last();
	CHECK(record && record->call == SYS_getppid, "no record");
	debox_disable();
	CHECK(calls == 0, "the library has called the program's functions");
	CHECK(elf_open("own") && bpf_map_update_elem(3, 0, 0, 0) == 4, "not the program's own");
	btf__free(0);
	CHECK(calls == 3, "not the program's own");
	return 0;
}
