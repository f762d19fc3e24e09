/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * shared.h: what the probes keep in maps and the engine reads back.
 *
 * debox/engine/src/tables.rs holds the same layouts; the sizes are asserted on both sides.
 */
#ifndef PROBE_SHARED_H
#define PROBE_SHARED_H

#include "../include/debox.h"
#include "buckets.h"

#define ROWS 512	      /* x86-64 call numbers; the tables end below 480 today */
#define NO_SUCH_CALL 0xffff   /* all numbers from here on; they share the last of those rows */
#define CALL_IA32 0x10000     /* added to the numbers of 32-bit calls */
#define CALL_UNTAPPED 0x20000 /* added to the numbers of calls that the user tap did not see */
#define CALL_NONE 0xffffffu   /* the thread is between calls */
#define STACK_DEPTH 24
#define USER_STACK_DEPTH 32
#define STACK_CHECKS 64	      /* words by which a known user stack is recognized */
#define STACK_ASK_BYTES 16384 /* of the user stack, for the engine to unwind */
#define SLEPT_MAX 16

enum part {
	PART_CPU,
	PART_BLOCKED,
	PART_RUNQUEUE,
	PART_PREEMPTED,
	PART_IRQ,
	PART_OUTSIDE,
	PARTS,
};

enum mode {
	MODE_RUNNING,
	MODE_BLOCKED,
	MODE_RUNQUEUE,
	MODE_PREEMPTED,
	MODE_IRQ, /* running, an interrupt on top */
};

enum thread_state {
	THREAD_FREE,
	THREAD_ARMED, /* enrolled; its life begins with its next execve */
	THREAD_LIVE,
	THREAD_ENDED,
};

/* Where a thread under the user tap was when it left the CPU. */
enum tap_where {
	TAP_BETWEEN,  /* no stamps open, in user mode */
	TAP_UNTAPPED, /* in a call that the tap does not see */
	TAP_IN_CALL,
	TAP_HANDLER, /* the rest: inside the stamps, outside the call */
	TAP_STOPPED,
	TAP_EXIT_WORK,
	TAP_PREEMPTED, /* in user mode, between a stamp and the instruction */
};

enum thread_flag {
	THREAD_BORN = 1 << 0,	 /* a child that has yet to leave the kernel for the first time */
	THREAD_PARTIAL = 1 << 1, /* the open call began before monitoring */
	THREAD_LOCK = 1 << 2,	 /* the open sleep is on a contended lock: waiters over all tasks */
	THREAD_COUNTED = 1 << 3, /* the open sleep is counted in the table of waiters */
	THREAD_LEFT = 1 << 4,	 /* lives on with other rights than its client's */
	THREAD_FILTERED = 1 << 5,   /* user tap: executed under seccomp filters of its own */
	THREAD_END_UNSEEN = 1 << 6, /* in a kept call only: the end of the call was not seen */
	THREAD_STAMPED = 1 << 7,    /* in a kept call only: it ended between the shim's stamps */
	THREAD_ELSEWHERE = 1 << 8, /* another program, or a vfork child: the library is not there */
	THREAD_BEGINNING = 1 << 9, /* has yet to execute its first program: DeBox still runs */
	THREAD_SLEPT = 1 << 10,	   /* the thread has been off the CPU since a sleep began */
};

/* A site where the open call has slept, for the call-site rows written when it ends. */
struct slept {
	__u64 stack;
	__u64 at; /* between calls: where the program was (instruction or stack name) */
	__u64 blocked_ns;
	__u32 count;
	__u32 lock_flags;
};

/*
 * Everything the probes know about one monitored thread. What every call needs comes first, so that
 * it is in few cache lines.
 */
struct thread {
	__u64 task;	 /* address of the task's structure in the kernel */
	__u32 state;	 /* enum thread_state; compared together with mode */
	__u32 mode;	 /* enum mode */
	__u32 call;	 /* number, + CALL_IA32, or CALL_NONE; compared together with has_parts */
	__u32 has_parts; /* something was added to parts[] or the fields that go with them */
	__u32 flags;	 /* enum thread_flag */
	__u32 busy;	 /* a probe is at work on this entry (see begin_work) */

	/* The open call, or the open time between calls. */
	__u64 begin_ns;
	__u64 faults_minor, faults_major; /* the task's counters when it began */

	/* Since the thread's monitoring began. */
	__u64 calls;
	__u64 between[PARTS];  /* time between calls */
	__u64 in_calls[PARTS]; /* time in calls */
	__u64 between_max_ns;
	__u64 stolen_ns; /* taken by the hypervisor while the thread was on a CPU */
	__u64 call_faults_minor, call_faults_major;

	__u32 tid, tgid;
	__u32 index; /* of this entry */
	__u32 slept_used;
	char comm[DEBOX_COMM_LEN];

	/* More about what is open. */
	__u64 stamp_ns; /* end of the last closed part; begin_ns while has_parts is 0 */
	__u64 parts[PARTS];
	__u64 read_bytes, write_bytes; /* the task's counters when it began */
	__u64 spin_ns;
	__u64 spin_lock;    /* the lock that it spins for now; 0: none */
	__u64 spin_from_ns; /* parts[PART_CPU] when that began */
	__u32 spin_flags;   /* of the lock */
	__u32 reserved;
	struct slept slept[SLEPT_MAX];

	/* The open or last sleep. */
	__u64 sleep_ns;
	__u64 run_delay_ns; /* what the scheduler's own account should be by the stamps */
	__u64 came_ns;	    /* when it was last seen to come to a CPU */
	__u64 came_steal;   /* what the hypervisor had taken from that CPU by then */
	__u64 resource;	    /* the resource whose waiters are counted */
	__u32 lock_flags;
	__u32 waiters_entry;
	__u32 waker_kind, waker_tid;
	char waker_comm[DEBOX_COMM_LEN];
	__u32 woken_early; /* a waking came before the switch that it undoes */
	__u32 contending;  /* waits for a contended lock */
	__u32 came_cpu;	   /* 0: was not seen to come; else its number + 1 */
	__u32 ids_seen;	   /* of the broker: `ids_changed` when the thread's ids were looked at */

	/* The thread's life. */
	__u64 birth_ns;
	__u64 birth_faults_minor, birth_faults_major;
	__u64 end_ns;
	__u64 end_faults_minor, end_faults_major;
	__u64 between_spin_ns;

	/* User tap: where the thread left the CPU, and the part of its life outside its calls. */
	__u32 tap_where; /* enum tap_where */
	__u32 lender;	 /* index + 1 of the thread whose memory this vfork child runs in */
	__u64 outside[PARTS];
	/*
	 * User stack of an open call that leaves the kernel on another one; between calls, the user
	 * stack of the open sleep.
	 */
	__u64 entry_stack;
	__u32 unstamped; /* debox_slot.tap_unstamped, when the thread ended */
	__u32 filters;	 /* seccomp filters that the session's first process was under */

	__u32 client; /* of the broker: index in `clients` */
	__u32 slot;   /* of the client's slots */

	__u64 stamps_kept; /* how many of the shim's completed records were sent */

	/* The open wait for a CPU (cpus.h). */
	__u64 queue;	       /* the run queue of its group, on the CPU where the wait began */
	__u64 throttled_clock; /* of that queue, when the wait began */
	__u32 is_throttled;    /* whether it was, then */
	__u32 left_cpu;	       /* the CPU that it was pushed off, + 1; 0: it was woken */
	__u32 taker_tgid, taker_flags; /* who took the CPU then; enum cpu_run_flag */
	char taker_comm[DEBOX_COMM_LEN];
	__u32 cpus_allowed;
	__u32 own_tgid; /* in the initial PID namespace */
};

/* The struct is set and copied in parts: clang does that for BPF up to 1024 bytes only. */
#define THREAD_PART 512

#define RUN_DELAY_UNKNOWN (1ULL << 62) /* more than any real value */

#define CLIENT_WORDS 16 /* 1,024 threads */

enum client_state {
	CLIENT_FREE,
	CLIENT_LIVE,
	CLIENT_GONE, /* its threads are being let go */
};

/* A process that the broker serves, with its children. Programs see none of this. */
struct client {
	__u32 state; /* enum client_state */
	__u32 uid;
	__u32 slots;		  /* how many slots it has been given */
	__u32 live;		  /* threads that have a slot */
	__u32 refused;		  /* tasks that were named for enrolment and are not the client's */
	__u32 level;		  /* of its PID namespace */
	__u64 namespace;	  /* address of that, 0 until its first thread is enrolled */
	__u64 salt;		  /* different for each client that there ever was */
	__u64 used[CLIENT_WORDS]; /* which slots are taken */
};

/* All completed calls of one number on one CPU. */
struct row {
	__u64 calls, errors, restarts;
	__u64 parts[PARTS];
	__u64 faults_minor, faults_major;
	__u64 max_ns;
	__u64 spin_ns;
	__u64 read_bytes, write_bytes;
	__u64 histogram[BUCKETS];
};

struct sleep_key {
	__u64 stack;
	__u32 call;
	__u32 lock_flags;
};

struct sleep_row {
	__u64 count, blocked_ns, max_ns;
	__u32 waiters_entry, waiters_exit;
	__u32 waiters_scope;
	__u32 reserved;
};

struct waker_key {
	__u64 stack;
	__u32 call;
	__u32 lock_flags;
	__u32 kind, tid;
};

struct waker_row {
	__u64 count;
	char comm[DEBOX_COMM_LEN];
};

/* Where in a program: stack 0 for all calls (detail "callsites"), else sleeps at that stack. */
struct site_key {
	__u64 stack, user_stack;
	__u32 call, lock_flags;
};

struct site_row {
	__u64 count, blocked_ns, wall_ns, max_ns;
};

struct kernel_stack {
	__u64 frames[STACK_DEPTH];
	__u64 args[3];	/* of the call, the bits that rules for labels look at */
	__u64 has_args; /* the stack's name depends on them */
};

/* Kernel locks that a call may well wait for, recognized by their address. */
enum lock_name {
	LOCK_UNNAMED,
	LOCK_INODE,	    /* inode->i_rwsem */
	LOCK_MMAP,	    /* mm->mmap_lock of the sleeper's own memory */
	LOCK_MOUNT,	    /* super_block->s_umount */
	LOCK_RENAME,	    /* super_block->s_vfs_rename_mutex */
	LOCK_POSITION,	    /* file->f_pos_lock */
	LOCK_PIPE,	    /* pipe_inode_info->mutex */
	LOCK_PAGE_CACHE,    /* address_space->invalidate_lock */
	LOCK_FILE_MAPPINGS, /* address_space->i_mmap_rwsem */
	LOCK_EPOLL,	    /* eventpoll->mtx */
};

/* Beside enum debox_resource_kind: one of several descriptors; `id` is how many, 0 if not known. */
#define RESOURCE_SEVERAL 7

/* What a sleep waits on. */
struct resource {
	__u32 kind;   /* enum debox_resource_kind, or RESOURCE_SEVERAL */
	__u32 what;   /* file: type in its mode; lock: enum lock_name */
	__u32 device; /* of a file, or of a lock's file */
	__u32 tgid;   /* for words and locks of an address space */
	__u64 id;     /* inode number, address, or process number */
};

enum owner_doing {
	DOING_UNKNOWN,
	DOING_ON_CPU,
	DOING_WAITING_FOR_CPU,
	DOING_ASLEEP,
};

/* Who held the resource when the wait began, and what it was doing then. */
struct owner {
	__u32 certainty; /* enum debox_owner_certainty */
	__u32 tid;
	__u32 index; /* + 1 in `threads`, 0 when it is not monitored */
	__u32 doing; /* enum owner_doing */
	__u64 stack; /* asleep: where */
	__u32 call, lock_flags;
	__u64 blocked_ns; /* monitored: asleep in its life until then */
	char comm[DEBOX_COMM_LEN];
};

/*
 * Who holds the lock that a task waits for, as the engine read it. `switches`: how often the task
 * had slept by then.
 */
struct read_holder {
	__u64 address, switches;
	__u32 holder, reserved;
};

/*
 * What the poll() or select() of a task waits for that was asleep when it was enrolled, as the
 * engine read it.
 */
struct read_polled {
	__u64 switches; /* as in struct read_holder */
	__u32 count;	/* descriptors */
	__s32 fd;	/* the descriptor, if there is only one */
};

#define LOGGED_SLEEPS 8

/* One of a thread's last sleeps. */
struct logged_sleep {
	__u64 begin_ns, blocked_ns;
	__u64 stack;
	__u64 resource; /* as in struct thread */
	__u32 call, lock_flags;
	struct owner owner;
};

/*
 * Sleeps to be added to the table of resources. For waits for one of several descriptors these are
 * all sleeps of the open call, as it is known only at its end which one was ready.
 */
struct ended_sleeps {
	__u64 stack, blocked_ns;
	__u64 calls; /* how many the thread had completed */
	__u32 count, lock_flags;
};

/* What one monitored thread waits for, and its last sleeps. */
struct wait {
	__u32 tid; /* the thread: entries of `threads` are used again */
	__u32 logged;
	__s32 fd;	  /* the descriptor through which a file was named */
	__u32 ownable;	  /* the resource is of a kind that a task can hold */
	__u32 bio_device; /* where the thread sent its last request since its last sleep */
	__u32 reserved;
	__u64 begin_ns;
	__u64 blocked_ns; /* asleep in its life, the open sleep not included */
	struct resource resource;
	struct owner owner;
	struct ended_sleeps now, later;
	struct logged_sleep log[LOGGED_SLEEPS];
};

struct resource_key {
	__u64 stack;
	__u32 call, lock_flags;
	struct resource resource;
};

/* A kernel lock for which a call has spun. */
struct spin_key {
	__u64 lock;
	__u32 call, flags;
};

struct spin_row {
	__u64 count, ns, max_ns;
	__u64 stack; /* where it was taken, the first time */
	struct resource resource;
};

#define SOCKET_PATH 112 /* sockaddr_un.sun_path has 108 */

/* The ends of a socket; port numbers in host order. */
struct socket_ends {
	__u16 family, type;
	__u16 local_port, peer_port;
	__u32 peer_tgid; /* Unix: the process that connected or listens */
	__u32 reserved;
	__u8 local[16], peer[16];	/* addresses; IPv4 in the first four bytes */
	char peer_comm[DEBOX_COMM_LEN]; /* of peer_tgid, empty if it has ended */
};

struct resource_row {
	__u64 count, blocked_ns;
	struct socket_ends ends;
	char name[SOCKET_PATH]; /* last component of a file's path; a Unix socket's address */
};

struct owner_key {
	__u64 stack;
	__u32 call, lock_flags;
	__u64 owner_stack;
	__u32 owner_call, owner_lock_flags;
	__u32 certainty, doing;
	__u32 tid, reserved;
};

struct owner_row {
	__u64 count, blocked_ns;
	char comm[DEBOX_COMM_LEN];
};

enum cpu_owner_kind {
	CPU_OWNER_UNKNOWN,
	CPU_OWNER_TASK,
	CPU_OWNER_KERNEL, /* a thread of the kernel's own */
	CPU_OWNER_NONE,	  /* the CPU was idle */
	CPU_OWNER_QUOTA,  /* the group had used up its quota */
	CPU_OWNER_HIDDEN, /* a task that the client is not shown */
	CPU_OWNER_MANY,	  /* tasks of processes beyond those that have rows of their own */
	CPU_OWNER_STOLEN, /* the hypervisor had the CPU */
};

/* Who had the CPU that threads waited for. */
struct cpu_key {
	__u32 call, part; /* PART_RUNQUEUE or PART_PREEMPTED */
	__u32 kind;	  /* enum cpu_owner_kind */
	__u32 tgid;
	__u64 group; /* quota: the cgroup's number */
};

#define GROUP_NAME 64

struct cpu_row {
	__u64 turns, ns, max_ns;
	__u64 quota_ns, period_ns;
	__u32 flags;	    /* enum cpu_run_flag */
	__u32 cpus_allowed; /* to the waiting thread, the fewest seen */
	char comm[DEBOX_COMM_LEN];
	char group[GROUP_NAME]; /* last component of the cgroup's path */
};

#define CPU_OWNERS 8 /* a power of two */

/* Who had the CPU for part of the time that one call waited for it. */
struct cpu_owner {
	__u64 ns;
	__u32 kind; /* enum debox_cpu_owner_kind */
	__u32 tgid; /* 0: no process, or one that is not shown */
	char comm[DEBOX_COMM_LEN];
};

/*
 * Who had the CPU that a thread's open call, or its open time between calls, waited for
 * (callcpu.h).
 */
struct call_cpu {
	__u64 begin_ns;	    /* of the call; with tid, says whose this is */
	__u64 throttled_ns; /* taken by a quota */
	__u64 unknown_ns;
	__u64 others_ns; /* of owners for which there is no room */
	__u64 told_ns;	 /* sum of all of these and of `holders` */
	__u32 tid;
	__u32 used;
	__u32 most; /* index of the holder that has most */
	__u32 reserved;
	struct cpu_owner owners[CPU_OWNERS];
	struct cpu_owner result; /* the largest owner, when the call has ended */
};

#define CHAIN_LINKS 4

/* A task in a chain of waits: the next link is whom it waited for. */
struct chain_link {
	__u64 stack;	  /* where it waited */
	__u64 blocked_ns; /* asleep within the wait of the link before it */
	__u64 stack_ns;	  /* of that, at `stack` */
	__u32 call, lock_flags;
	__u32 tid;	 /* 0 in a row: of several tasks */
	__u32 certainty; /* that the next link held it up */
	__u32 doing;	 /* when the wait of the link before it began */
	__u32 measured;	 /* monitored, so that blocked_ns is known */
	char comm[DEBOX_COMM_LEN];
};

enum chain_end {
	CHAIN_COMPLETE,
	CHAIN_CYCLE,	/* the next link is in the chain already */
	CHAIN_TOO_LONG, /* there is no room for the next link */
};

struct chain_row {
	__u64 count;
	__u32 length, end; /* enum chain_end */
	struct chain_link links[CHAIN_LINKS];
};

#define RAW_STACK 0x100 /* user_stack.depth: frames[1..] are words of the stack, not frames */

struct user_stack {
	__u32 tgid, depth;
	__u64 frames[USER_STACK_DEPTH];
};

/*
 * A user stack that has been unwound before. A stack is the same one if these words are where they
 * were. The key is the instruction and the low bits of the stack pointer, so that threads share the
 * entries.
 */
struct user_shape_key {
	__u64 ip;
	__u32 tgid;
	__u16 image; /* counts the process's execs */
	__u8 depth;  /* of the stack pointer, in words, modulo the smallest stack there is (Go's) */
	__u8 way;    /* several stacks can reach the same place at the same depth */
};

#define CHECK_OFFSET 0xffff
#define CHECK_FRAME_POINTER (1 << 16) /* the register, not a word of the stack */
#define CHECK_STACK_POINTER (1 << 17)
#define CHECK_RELATIVE (1 << 18) /* the word less the stack pointer */

struct user_shape {
	__u64 name;
	__u32 checks, reserved;
	__u64 value[STACK_CHECKS];
	__u32 at[STACK_CHECKS]; /* bytes above the stack pointer, and flags */
};

struct lost {
	__u64 records, sleeps, stacks, threads, rows, switches;
	/* The lives of threads whose end could not be reported. */
	__u64 between[PARTS], in_calls[PARTS];
	__u64 calls, faults_minor, faults_major;
	/* Waits for a CPU that no switch showed, according to the scheduler's own account. */
	__u64 unseen_wait_ns;
};

#define TRIGGERS_MAX 8
#define TRIGGER_STEPS 32
#define TRIGGER_SETS 4	     /* of calls, and names */
#define TRIGGER_SITE_TESTS 8 /* of one trigger */
#define TRIGGER_VALUES 32
#define CALL_SITES_MAX 8 /* of one call */

enum trigger_value {
	VALUE_RET, /* with its sign bit flipped, so that it compares as unsigned */
	VALUE_WALL,
	VALUE_CPU,
	VALUE_BLOCKED,
	VALUE_RUNQUEUE,
	VALUE_PREEMPTED,
	VALUE_IRQ,
	VALUE_SPIN,
	VALUE_LONGEST,
	VALUE_SLEEPS,
	VALUE_FAULTS_MINOR,
	VALUE_FAULTS_MAJOR,
	VALUE_PID,
	VALUE_TID,
	VALUE_ARG0,
	VALUE_ARG1,
	VALUE_ARG2,
	VALUE_THROTTLED,
	VALUE_ERROR, /* 0: none */
	VALUES_USED,
};

/* What a predicate knows about the owner of the CPU. */
enum trigger_owner {
	OWNER_NOBODY, /* the call did not wait for a CPU, or for no task */
	OWNER_NAMED,
	OWNER_UNNAMED, /* there is one, or may be, and it is not known or not shown */
};

enum trigger_operation {
	TRIGGER_EQUAL,
	TRIGGER_NOT_EQUAL,
	TRIGGER_LESS,
	TRIGGER_LESS_OR_EQUAL,
	TRIGGER_GREATER,
	TRIGGER_GREATER_OR_EQUAL,
	TRIGGER_CALL, /* is one of a set */
	TRIGGER_COMM, /* the thread's name */
	TRIGGER_SITE, /* the call slept where a test holds */
	TRIGGER_AND,
	TRIGGER_OR,
	TRIGGER_NOT,
	TRIGGER_RESTARTED,
	TRIGGER_CPU_OWNER, /* the process that had the CPU that the call waited for */
};

/* The same as in debox/engine/src/predicate/compile.rs. */
struct trigger_step {
	__u8 operation; /* enum trigger_operation */
	__u8 field;	/* enum trigger_value */
	__u16 index;
	__u32 reserved;
	__u64 value;
};

struct trigger_calls {
	__u64 native[ROWS / 64], ia32[ROWS / 64];
	__u64 others; /* 1: numbers that the 64-bit table does not have, 2: the 32-bit one */
};

struct trigger_name {
	__u64 words[2], masks[2];
};

struct trigger_code {
	__u32 used, reserved;
	struct trigger_step steps[TRIGGER_STEPS];
	struct trigger_calls calls[TRIGGER_SETS];
	struct trigger_name names[TRIGGER_SETS];
};

struct trigger {
	struct trigger_code code;
	__u32 signal; /* to the thread; 0: none */
	__u32 limit;  /* of firings in a second; 0: none */
};

struct trigger_counts {
	__u64 fired, suppressed;
	__u64 unsent;	      /* signals that the kernel refused */
	__u64 unlisted;	      /* fired, but could not be reported to the engine */
	__u64 undecided_lost; /* left to decide, but could not be passed on */
	__u64 window;	      /* the current second, and the firings in it */
};

struct call_site {
	__u64 stack;
	__u32 lock_flags, reserved;
};

/* Where the open call of a thread has slept. */
struct call_sleeps {
	__u64 number; /* of the call; with tid, says whose this is */
	__u32 tid;
	__u32 count;
	__u64 longest_ns, longest_stack;
	__u32 longest_flags;
	__u32 used;
	__u32 is_incomplete; /* some place is not among these */
	__u32 reserved;
	struct call_site sites[CALL_SITES_MAX];
};

struct site_answer {
	__u64 holds; /* bits: tests of the triggers */
	__u64 is_known;
};

#define UNDECIDED_MAX 4 /* calls of one thread; a power of two */

/*
 * A call that slept at a place whose label is not known yet, so that its own thread has to decide
 * whether predicates hold (debox_slot.triggers_undecided).
 */
struct undecided_call {
	__u64 number; /* of its record; 0: none. The thread takes it by setting it to 0 */
	__u64 at_ns;
	__u32 call;
	__u32 triggers; /* bits: those to be decided */
	__u32 sites_used;
	__u32 is_incomplete; /* of `sites` */
	__u64 values[VALUES_USED];
	char comm[DEBOX_COMM_LEN];
	__u32 cpu_owner; /* enum trigger_owner */
	__u32 reserved;
	char cpu_owner_comm[DEBOX_COMM_LEN];
	struct call_site sites[CALL_SITES_MAX];
};

_Static_assert(sizeof(struct thread) == 1128, "thread layout");
_Static_assert(sizeof(struct client) == 40 + 8 * CLIENT_WORDS, "client layout");
_Static_assert(sizeof(struct row) == 120 + 8 * BUCKETS, "row layout");
_Static_assert(sizeof(struct user_shape_key) == 16, "user_shape_key layout");
_Static_assert(sizeof(struct trigger_code) == 1192, "trigger_code layout");
_Static_assert(sizeof(struct undecided_call) * UNDECIDED_MAX ==
		       sizeof(((struct debox_slot *)0)->triggers_undecided),
	       "undecided_call layout");
_Static_assert(sizeof(struct cpu_owner) == 32, "cpu_owner layout");
_Static_assert(sizeof(struct lost) == 176, "lost layout");

#endif
