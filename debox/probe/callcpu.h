/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * callcpu.h: who had the CPU that one call waited for: what a quota took, and the largest owner of
 * the rest.
 *
 * The turns of each wait are added up here by owner (cpus.h) until the call ends. There is room for
 * a few owners; the time of all others is one sum. The largest owner is therefore known only if it
 * had the CPU for at least as long as all of those others together.
 */
#ifndef PROBE_CALLCPU_H
#define PROBE_CALLCPU_H

#include "state.h"

/* One for each entry of `threads`: for the open call, or the open time between calls. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call_cpu);
} call_cpus SEC(".maps");

/*
 * Not under the user tap: there the probes see no calls, and records that a thread completes itself
 * have no owner.
 */
static __always_inline bool keeps_call_cpu(void)
{
	return want_cpu && !user_tap && (want_records || want_history || want_triggers);
}

static __always_inline struct call_cpu *call_cpu_at(__u32 index)
{
	return bpf_map_lookup_elem(&call_cpus, &index);
}

static __always_inline void begin_call_cpu(struct call_cpu *of_call, __u32 tid, __u64 begin_ns)
{
	if (of_call->tid == tid && of_call->begin_ns == begin_ns)
		return;
	of_call->tid = tid;
	of_call->begin_ns = begin_ns;
	of_call->throttled_ns = 0;
	of_call->unknown_ns = 0;
	of_call->others_ns = 0;
	of_call->told_ns = 0;
	of_call->used = 0;
	of_call->most = 0;
}

static __always_inline void add_holder(struct call_cpu *of_call, __u32 kind, __u32 tgid,
				       const char *comm, __u64 ns)
{
	__u32 used = of_call->used;
	struct cpu_owner *holder;

	for (__u32 i = 0; i < CPU_OWNERS; i++) {
		holder = &of_call->owners[i];
		if (i >= used) {
			holder->ns = 0;
			holder->kind = kind;
			holder->tgid = tgid;
			__builtin_memcpy(holder->comm, comm, sizeof(holder->comm));
			of_call->used = i + 1;
		} else if (holder->kind != kind || holder->tgid != tgid) {
			continue;
		}
		holder->ns += ns;
		if (holder->ns > of_call->owners[of_call->most & (CPU_OWNERS - 1)].ns)
			of_call->most = i;
		return;
	}
	of_call->others_ns += ns;
}

/*
 * Finds out who had the CPU that the open call waited for. The answer is in `result`, until the
 * next wait. Returns 0 if the call has not waited.
 */
static __noinline struct call_cpu *sum_up_call_cpu(struct thread *thread)
{
	__u64 waited = thread->parts[PART_RUNQUEUE] + thread->parts[PART_PREEMPTED];
	struct call_cpu *of_call;
	struct cpu_owner *most, *result;
	__u64 unknown;

	if (!thread->has_parts || !waited)
		return 0;
	of_call = call_cpu_at(thread->index);
	if (!of_call)
		return 0;
	begin_call_cpu(of_call, thread->tid, thread->begin_ns);
	/* Waits that no switch showed were not attributed to an owner. */
	unknown = of_call->unknown_ns;
	if (waited > of_call->told_ns)
		unknown += waited - of_call->told_ns;
	most = &of_call->owners[of_call->most & (CPU_OWNERS - 1)];
	result = &of_call->result;
	if (of_call->used && most->ns >= of_call->others_ns && most->ns >= unknown) {
		__builtin_memcpy(result, most, sizeof(*result));
		return of_call;
	}
	__builtin_memset(result, 0, sizeof(*result));
	if (of_call->others_ns > unknown) {
		result->kind = DEBOX_CPU_OWNER_MANY;
		result->ns = of_call->others_ns;
	} else if (unknown) {
		result->kind = DEBOX_CPU_OWNER_UNKNOWN;
		result->ns = unknown;
	}
	return of_call;
}

#endif
