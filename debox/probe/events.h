/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * events.h: what the probes send to the engine, through ring buffers and an iterator.
 */
#ifndef PROBE_EVENTS_H
#define PROBE_EVENTS_H

#include "shared.h"

enum event_kind {
	EVENT_THREAD_ENDED = 1,
	EVENT_CALL_SITE = 2, /* a call site not seen before: look up its process while it lives */
	EVENT_RESOURCE = 3,  /* a resource not seen before: find its name while its process lives */
	EVENT_DIRECTORY = 4, /* the same for a directory */
	EVENT_SITE = 5,	     /* a place of sleep that a trigger asks about: which tests hold? */
	EVENT_TRIGGER = 6,   /* a predicate holds, or the engine has to decide whether it does */
	EVENT_TITLE = 7,     /* the words of a process's command line */
};

#define TITLE_BYTES 512

enum title_reason {
	TITLE_OF_PROGRAM = 1, /* it has begun to run a program */
	TITLE_AT_END = 2,     /* it ends */
	TITLE_OF_PARENT = 3,  /* it was forked, and has its parent's title */
};

struct title_seen {
	__u32 kind, tgid;
	__u32 parent; /* with TITLE_OF_PARENT */
	__u32 reason; /* enum title_reason */
	__u64 at_ns;
	__u32 words_bytes; /* of the words that the program was given, a zero after each */
	__u32 bytes;	   /* copied from the first word on; may include the environment */
	char words[TITLE_BYTES];
};

struct thread_ended {
	__u32 kind, reserved;
	struct thread thread;
};

enum kept_kind {
	KEPT_CALL = 1,
	KEPT_SLEEP = 2,
	KEPT_STAMPS = 3,
	KEPT_CPU = 4,
};

/* A record for the history; or, with CALL_NONE, a piece of a thread's time between calls. */
struct kept_call {
	__u32 kind; /* KEPT_CALL */
	__u32 tid, tgid;
	__u32 call;
	__u32 flags; /* THREAD_PARTIAL, THREAD_END_UNSEEN, THREAD_STAMPED */
	__u32 faults_minor, faults_major;
	__u32 reserved;
	__u64 ordinal; /* number of this call of the thread, or, between calls, of the next */
	__u64 begin_ns, wall_ns;
	__s64 ret;
	__u64 args[3];
	__u64 user_stack;
	__u64 parts[PARTS];
	__u64 spin_ns;
	__u64 read_bytes, write_bytes;
	struct resource polled; /* what ended its waits for one of several descriptors */
	char comm[DEBOX_COMM_LEN];
};

/* A sleep of the call of that ordinal, or of the time before it. */
struct kept_sleep {
	__u32 kind; /* KEPT_SLEEP */
	__u32 tid;
	__u32 call;
	__u32 lock_flags;
	__u64 ordinal;
	__u64 begin_ns, blocked_ns, runqueue_ns;
	__u64 stack;
	struct resource resource;
	struct owner owner;
	__u32 ownable; /* the resource is of a kind that a task can hold */
	__u32 waker_kind, waker_tid;
	__u32 waiters_scope, waiters_entry, waiters_exit;
	char waker_comm[DEBOX_COMM_LEN];
};

/*
 * What the shim measured around an earlier call. Not to be trusted: the program can write anything
 * there.
 */
struct kept_stamps {
	__u32 kind; /* KEPT_STAMPS */
	__u32 tid;
	__u32 call;
	__u32 reserved;
	__u64 begin_ns, wall_ns;
};

/* Who had the CPU that the next call of the thread waited for, or the time between calls. */
struct kept_cpu {
	__u32 kind; /* KEPT_CPU */
	__u32 tid;
	__u32 call;
	__u32 reserved;
	__u64 ordinal; /* as in struct kept_call */
	__u64 throttled_ns;
	struct cpu_owner owner;
};

/* A mapping of a file, in case the process ends before it can be read. end 0: not known. */
struct mapped_file {
	__u64 start, end, page_offset, inode;
	__u32 device, reserved;
	char name[64]; /* last component of the file's path */
};

struct call_site_seen {
	__u32 kind, tgid;
	__u64 ip;
	struct mapped_file at_ip;
	struct mapped_file program; /* start and end of its code; page_offset is not known */
};

struct site_asked {
	__u32 kind, call;
	__u64 stack;
	__u32 lock_flags, reserved;
};

struct trigger_fired {
	__u32 kind, trigger;
	__u32 undecided;
	__s32 failed; /* why there was no signal */
	__u32 call;
	__u32 sites_used;
	__u32 is_incomplete; /* of `sites` */
	__u32 lock_flags;    /* of its longest sleep */
	__u64 at_ns, begin_ns;
	__u64 kernel_stack; /* of its longest sleep, too */
	__u64 user_stack;
	__u64 values[TRIGGER_VALUES];
	char comm[DEBOX_COMM_LEN];
	__u32 cpu_owner; /* enum trigger_owner */
	__u32 reserved;
	char cpu_owner_comm[DEBOX_COMM_LEN];
	struct call_site sites[CALL_SITES_MAX];
};

struct resource_seen {
	__u32 kind, tgid, tid;
	__s32 fd; /* or AT_FDCWD */
	struct resource resource;
};

#define DIRECTORY_PATH 1024

/* A directory whose lock is waited for, and to which no descriptor leads. */
struct directory_seen {
	__u32 kind, tgid;
	struct resource resource;
	__u32 path_bytes, is_whole;
	/* Within its file system: from the last component to the first, a zero after each. */
	char path[DIRECTORY_PATH];
};

/*
 * A user stack not seen before, to be unwound. `bytes` of the stack follow, from `sp` up. Without a
 * name there is no stack: the process has mapped the code at `ip` or, if that is zero, begun to run
 * the program. Then the bytes are the file's path, from the last component to the first.
 */
struct stack_ask {
	__u64 name;
	__u64 ip, sp, bp, bx, di, r10, r12, r13, r14, r15;
	__u64 code_pages; /* mapped executable: changes when libraries are loaded */
	__u32 tgid, parent;
	__u32 bytes;
	__u16 image;	     /* counts the process's execs */
	__u8 is_compat;	     /* a 32-bit program */
	__u8 is_interrupted; /* at `ip` by a fault: not in a call */
	struct mapped_file at_ip;
	struct mapped_file program;
};

/* One enrolled task, as the in-flight iterator prints it. */
struct in_flight {
	__u32 index, depth;
	__u64 frames[STACK_DEPTH];
	/* The call that it is in, if it is not on a CPU. ordinal 0: none. */
	__u32 call, reserved;
	__u64 ordinal;
	__u64 args[3];
	__u32 faults_minor, faults_major; /* in the call so far */
	struct stack_ask ask;		  /* place in the program: registers, and no words */
};

_Static_assert(sizeof(struct stack_ask) == 320, "stack_ask layout");

#endif
