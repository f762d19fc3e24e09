/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * counted.h: how many of the session's own threads sleep on the same resource, for resources whose
 * waiters the kernel does not all show.
 *
 * Functions that are not static are verified once, not for each path that leads to them.
 */
#ifndef PROBE_COUNTED_H
#define PROBE_COUNTED_H

#include "waiters.h"

struct waiter_table waiter_words SEC(".maps");

__noinline __u32 add_waiter(__u64 resource)
{
	return add_to_waiters(&waiter_words, resource);
}

__noinline __u32 remove_waiter(__u64 resource)
{
	return take_from_waiters(&waiter_words, resource);
}

__noinline __u32 count_waiters(__u64 resource)
{
	return count_in_waiters(&waiter_words, resource);
}

#endif
