/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * waiters.h: how many tasks wait on the same thing.
 *
 * A table of words, each with a 44-bit name of the resource and a 20-bit count, changed by
 * compare-and-swap: entries come and go with every sleep, and hash maps cannot do that safely from
 * several CPUs. Two resources share a name with a chance of 1 in 2^44 a pair.
 *
 * There are two such tables: the gate's, of contended kernel locks (gate.h), and each session's own
 * (counted.h).
 */
#ifndef PROBE_WAITERS_H
#define PROBE_WAITERS_H

#include "kernel.h"

#define WAITER_WORDS 8192 /* a power of two */
#define WAITER_PROBES 8
#define WAITER_COUNT_MASK 0xfffffULL

struct waiter_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAITER_WORDS);
	__type(key, __u32);
	__type(value, __u64);
};

static __always_inline __u64 waiter_name(__u64 resource)
{
	return (resource * 0x9e3779b97f4a7c15ULL) & ~WAITER_COUNT_MASK;
}

/* Adds one waiter; returns how many there are now, 0 when the table has no room. */
static __always_inline __u32 add_to_waiters(void *table, __u64 resource)
{
	__u64 name = waiter_name(resource), old, *word;
	__u32 at;

	for (int i = 0; i < WAITER_PROBES; i++) {
		at = ((name >> 50) + i) & (WAITER_WORDS - 1);
		word = bpf_map_lookup_elem(table, &at);
		if (!word)
			return 0;
		for (int tries = 0; tries < 4; tries++) {
			old = *(volatile __u64 *)word;
			if (!(old & WAITER_COUNT_MASK)) {
				if (__sync_val_compare_and_swap(word, old, name | 1) == old)
					return 1;
			} else if ((old & ~WAITER_COUNT_MASK) == name) {
				if (__sync_val_compare_and_swap(word, old, old + 1) == old)
					return (old & WAITER_COUNT_MASK) + 1;
			} else {
				break;
			}
		}
	}
	return 0;
}

/* Takes one waiter away; returns how many are left. */
static __always_inline __u32 take_from_waiters(void *table, __u64 resource)
{
	__u64 name = waiter_name(resource), old, *word;
	__u32 at;

	for (int i = 0; i < WAITER_PROBES; i++) {
		at = ((name >> 50) + i) & (WAITER_WORDS - 1);
		word = bpf_map_lookup_elem(table, &at);
		if (!word)
			return 0;
		for (int tries = 0; tries < 8; tries++) {
			old = *(volatile __u64 *)word;
			if (!(old & WAITER_COUNT_MASK) || (old & ~WAITER_COUNT_MASK) != name)
				break;
			if (__sync_val_compare_and_swap(word, old, old - 1) == old)
				return (old & WAITER_COUNT_MASK) - 1;
		}
	}
	return 0;
}

/* How many waiters there are now. */
static __always_inline __u32 count_in_waiters(void *table, __u64 resource)
{
	__u64 name = waiter_name(resource), *word;
	__u32 at;

	for (int i = 0; i < WAITER_PROBES; i++) {
		at = ((name >> 50) + i) & (WAITER_WORDS - 1);
		word = bpf_map_lookup_elem(table, &at);
		if (word && (*word & WAITER_COUNT_MASK) && (*word & ~WAITER_COUNT_MASK) == name)
			return *word & WAITER_COUNT_MASK;
	}
	return 0;
}

#endif
