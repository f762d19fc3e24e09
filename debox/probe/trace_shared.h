/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * trace_shared.h: what the call tree's probes keep in maps and the engine reads back.
 *
 * debox/engine/src/trace reads the same layouts, from the types that the probes' BTF gives.
 */
#ifndef PROBE_TRACE_SHARED_H
#define PROBE_TRACE_SHARED_H

#include "shared.h"

#define TRACE_DEPTH_MAX 32     /* functions open in one thread; a power of two */
#define TRACE_THREADS_MAX 4096 /* threads traced at the same time; 2 kB each */
#define TRACE_STACK_DEPTH 64   /* frames of a sample */
#define TRACE_EVENTS_MAX 64    /* tracepoints that a call may pass */

/* A function that the thread has entered and not left. */
struct trace_frame {
	__u64 function;
	__u64 node;
	__u64 entered_ns;
	__u64 children_ns; /* spent in traced functions that this one called */
	__u64 blocked_ns;  /* the call's sum when the function was entered */
	__u32 entry;	   /* place in the thread's ring + 1, or 0 */
	__u32 reserved;
};

struct trace_thread {
	__u64 begin_ns; /* of the call that the frames belong to */
	__u32 depth;
	__u32 hidden; /* open functions below the depth that is kept */
	struct trace_frame frames[TRACE_DEPTH_MAX];
};

/* A function as reached on one path through one system call. Its name is a hash of that path. */
struct trace_node {
	__u64 parent; /* 0: not called by a traced function */
	__u64 function;
	__u32 call;
	__u32 depth;
	__u64 entered, returned;
	__u64 total_ns, children_ns, blocked_ns, max_ns;
	__u64 first_ns; /* when it was entered first */
};

/* A kernel stack on which samples found one system call. */
struct trace_sample_key {
	__u64 stack;
	__u32 call, reserved;
};

struct trace_stack {
	__u64 frames[TRACE_STACK_DEPTH]; /* innermost first */
};

struct trace_passed_key {
	__u32 call, event;
};

struct trace_lost {
	__u64 depth;	  /* functions entered deeper than the limit */
	__u64 nodes;	  /* functions entered whose node did not fit */
	__u64 threads;	  /* functions entered by threads beyond TRACE_THREADS_MAX */
	__u64 unreturned; /* entries whose return was not seen */
	__u64 unmatched;  /* returns whose entry was not seen */
	__u64 interrupts; /* entered, or sampled, in an interrupt on top of the call */
	__u64 entries;	  /* record entries beyond max_trace */
	__u64 stacks;	  /* samples whose stack could not be captured or did not fit */
	__u64 events;	  /* events passed that did not fit */
};

_Static_assert(sizeof(struct trace_frame) == 48, "trace frame layout");
_Static_assert(sizeof(struct trace_node) == 80, "trace node layout");

#endif
