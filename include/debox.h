/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * debox.h: the record of one system call, and the C interface that reads it.
 *
 * This file is the one definition of the record. The probes (BPF), the library, the Rust types and
 * the bindings all use the layout given here; the assertions below hold it in place for C and BPF,
 * crates/debox/src/record.rs holds the same numbers for Rust.
 *
 * Units: every time is in nanoseconds of CLOCK_MONOTONIC unless its name says otherwise.
 * After Ruan and Pai, "Making the Box Transparent" (DeBoxInfo, PerSleepInfo, CallTrace).
 */
#ifndef DEBOX_H
#define DEBOX_H

#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DEBOX_VERSION 1
#define DEBOX_SLEEPS_MAX 8    /* distinct sites kept in one record */
#define DEBOX_HISTORY_MAX 8   /* records kept for one thread; a power of two */
#define DEBOX_TRACE_MAX 256   /* trace entries kept for one thread */
#define DEBOX_COMM_LEN 16     /* TASK_COMM_LEN of the kernel */
#define DEBOX_CALL_USER (-1)  /* the pseudo-call (user): a thread's time between calls */

enum debox_abi {
	DEBOX_ABI_X86_64 = 0,
	DEBOX_ABI_IA32 = 1, /* int 0x80 and 32-bit programs: another table of call numbers */
};

/* debox_record.flags */
enum debox_flag {
	DEBOX_RESTARTED = 1 << 0,    /* a piece of a call that the kernel restarts: returned -512..-516 */
	DEBOX_PARTIAL = 1 << 1,      /* the call began before monitoring did: start is a lower bound */
	DEBOX_USER_TAP = 1 << 2,     /* stamps were taken in user space: outside_ns is meaningful */
	DEBOX_NESTED = 1 << 3,       /* made by a signal handler inside another call */
	DEBOX_IRQ_MEASURED = 1 << 4, /* irq_ns is measured; without this flag it is inside cpu_ns */
};

/* Each part is measured from its own pair of stamps; together they are the wall time. */
struct debox_budget {
	__u64 cpu_ns;       /* running, in this call */
	__u64 blocked_ns;   /* asleep: from leaving the CPU to the wake-up */
	__u64 runqueue_ns;  /* woken, waiting for a CPU */
	__u64 preempted_ns; /* pushed off the CPU while it could have run */
	__u64 irq_ns;       /* interrupts that ran on top of it, if DEBOX_IRQ_MEASURED */
	__u64 outside_ns;   /* user tap only: inside the stamps but not inside the call */
};

/* Why a user tap's stamps enclose more than the call; the parts of outside_ns. */
struct debox_outside {
	__u64 handler_ns;   /* signal handlers */
	__u64 stopped_ns;   /* SIGSTOP, ptrace */
	__u64 exit_work_ns; /* work on the way back to user mode: deferred closes, task work */
	__u64 preempted_ns; /* pushed off the CPU between a stamp and the instruction */
	__u64 other_ns;     /* anything else seen there, such as a fault on the stamps' own page */
};

enum debox_waker_kind {
	DEBOX_WAKER_UNKNOWN = 0,
	DEBOX_WAKER_TASK = 1,
	DEBOX_WAKER_HARDIRQ = 2,
	DEBOX_WAKER_SOFTIRQ = 3,
};

enum debox_resource_kind {
	DEBOX_RESOURCE_NONE = 0,
	DEBOX_RESOURCE_FD = 1,    /* a file descriptor of the calling process */
	DEBOX_RESOURCE_FUTEX = 2, /* the address of a futex word in the calling process */
	DEBOX_RESOURCE_TIMER = 3, /* a timer: the call's own timeout */
	DEBOX_RESOURCE_LOCK = 4,  /* a contended kernel lock; the value is its address */
	DEBOX_RESOURCE_CHILD = 5, /* a process waited for, as the call's argument names it */
};

enum debox_waiters_scope {
	DEBOX_WAITERS_UNKNOWN = 0,   /* not counted */
	DEBOX_WAITERS_MONITORED = 1, /* over the session's tasks */
	DEBOX_WAITERS_ALL = 2,       /* over all tasks: contended kernel locks */
};

/* One place where the call slept; sleeps at the same site are one entry. */
struct debox_sleep {
	__u64 site;          /* kernel address of the site, 0 when its stack was not had */
	__u64 stack;         /* names the whole kernel stack in the session's table */
	__u64 blocked_ns;    /* total */
	__u64 longest_ns;    /* longest one */
	__u64 resource;      /* what was waited on; its meaning is resource_kind */
	__u32 resource_kind; /* enum debox_resource_kind */
	__u32 count;         /* how many sleeps */
	__u32 waiters_entry; /* most waiters when a sleep began, the sleeper included */
	__u32 waiters_exit;  /* most waiters left when one ended, the sleeper not included */
	__u32 waiters_scope; /* enum debox_waiters_scope */
	__u32 waker_kind;    /* enum debox_waker_kind, of the last sleep */
	__u32 waker_tid;     /* 0 unless waker_kind is DEBOX_WAKER_TASK */
	__u32 owner_tid;     /* who held the resource, 0 when not known */
	char waker_comm[DEBOX_COMM_LEN];
	char owner_comm[DEBOX_COMM_LEN];
	__u32 owner_certainty; /* 0: none */
	__u32 reserved[5];
};

/* One kernel function entered during the call (detail "trace"). */
struct debox_trace_entry {
	__u64 function;
	__u32 delta_ns;
	__u16 depth;
	__u16 reserved;
};

/*
 * The record of one call. `sequence` is odd while it is being written: another thread copies the
 * record and keeps the copy if the sequence was even and the same before and after. The thread that
 * made the call needs no such care.
 */
struct debox_record {
	__u32 sequence;
	__u16 version; /* DEBOX_VERSION */
	__u16 size;    /* sizeof(struct debox_record) as the writer knew it */
	__s32 call;    /* call number, or DEBOX_CALL_USER */
	__u16 abi;     /* enum debox_abi */
	__u16 flags;   /* enum debox_flag */
	__s64 ret;     /* as the kernel returned it: -errno on error */
	__u64 args[3]; /* the first argument words */
	__u64 start_ns;
	__u64 wall_ns;
	struct debox_budget budget;
	__u32 faults_minor;
	__u32 faults_major;
	__u16 sleeps_used; /* entries of sleeps[] that are filled */
	__u16 trace_used;
	__u32 sleeps_lost; /* sleeps that did not fit; their time is still in the budget */
	__u64 number;      /* ordinal of this call on this thread, from 1 */
	__u32 trace_lost;
	__u32 trace_first; /* index of the first trace entry in the thread's ring */
	struct debox_outside outside;
	__u64 reserved[9];
	struct debox_sleep sleeps[DEBOX_SLEEPS_MAX];
};

/*
 * What one thread shares with the probes: its controls and its last records. Written by the thread
 * (marked "thread") or by the writer of the records ("tap": the kernel under the kernel tap, the
 * thread itself under the user tap).
 */
struct debox_slot {
	__u32 version;
	__u32 size;       /* sizeof(struct debox_slot) */
	__u32 tid;        /* thread id as the kernel names it in the first PID namespace; 0: free */
	__u32 tgid;       /* process id, likewise */
	__u32 paused;     /* thread: not 0 while no records are wanted */
	__u32 max_sleeps; /* thread: at most this many entries in sleeps[] */
	__u32 max_trace;  /* thread */
	__u32 reserved0;
	__u64 completed;  /* tap: records completed; the last is history[(completed - 1) % MAX] */

	/* The user tap's own words; see debox_tap.h. */
	__u32 tap_call;    /* thread: call number + 1 between the stamps, else 0 */
	__u32 tap_touched; /* kernel: counts what it added to the open record */
	__u64 tap_first_out_ns; /* kernel: when the open call first left the CPU */
	__u64 tap_last_in_ns;   /* kernel: when it last came back */
	__u64 tap_start_ns;     /* thread */
	__u64 reserved1[55];

	struct debox_record history[DEBOX_HISTORY_MAX];
	struct debox_trace_entry trace[DEBOX_TRACE_MAX];
	__u64 reserved2[192];
};

#if defined(__cplusplus)
#define DEBOX_ASSERT(condition, text) static_assert(condition, text)
#else
#define DEBOX_ASSERT(condition, text) _Static_assert(condition, text)
#endif
DEBOX_ASSERT(sizeof(struct debox_budget) == 48, "budget layout");
DEBOX_ASSERT(sizeof(struct debox_sleep) == 128, "sleep layout");
DEBOX_ASSERT(sizeof(struct debox_trace_entry) == 16, "trace entry layout");
DEBOX_ASSERT(__builtin_offsetof(struct debox_record, budget) == 64, "record layout");
DEBOX_ASSERT(__builtin_offsetof(struct debox_record, number) == 128, "record layout");
DEBOX_ASSERT(__builtin_offsetof(struct debox_record, sleeps) == 256, "record layout");
DEBOX_ASSERT(sizeof(struct debox_record) == 1280, "record layout");
DEBOX_ASSERT(__builtin_offsetof(struct debox_slot, history) == 512, "slot layout");
DEBOX_ASSERT(sizeof(struct debox_slot) == 16384, "slot layout");

#ifdef __cplusplus
}
#endif
#endif
