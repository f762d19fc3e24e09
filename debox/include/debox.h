/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * debox.h: the record of one system call, and the C interface that reads it.
 *
 * This file is the only definition of the record. The probes (BPF), the library, the Rust types and
 * the bindings all use this layout. The assertions below check it for C and BPF;
 * debox/engine/src/record.rs checks the same numbers for Rust.
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
#define DEBOX_SLEEPS_MAX 8   /* distinct sites kept in one record */
#define DEBOX_HISTORY_MAX 8  /* records kept for one thread; a power of two */
#define DEBOX_TRACE_MAX 256  /* trace entries kept for one thread */
#define DEBOX_COMM_LEN 16    /* TASK_COMM_LEN of the kernel */
#define DEBOX_CALL_USER (-1) /* the pseudo-call (user): a thread's time between calls */

enum debox_abi {
	DEBOX_ABI_X86_64 = 0,
	DEBOX_ABI_IA32 = 1, /* int 0x80 and 32-bit programs: another table of call numbers */
};

/* debox_record.flags */
enum debox_flag {
	DEBOX_RESTARTED = 1 << 0, /* part of a call that the kernel restarts: ret is -512..-516 */
	DEBOX_PARTIAL = 1 << 1,	  /* the call began before monitoring did: start is a lower bound */
	DEBOX_USER_TAP = 1 << 2,  /* stamps were taken in user space: outside_ns is meaningful */
	DEBOX_NESTED = 1 << 3,	  /* made by a signal handler inside another call */
	DEBOX_IRQ_MEASURED = 1 << 4, /* irq_ns is measured; without this flag cpu_ns includes it */
	/*
	 * The end was not seen: the record lasts until the thread's next call; ret and args are 0.
	 */
	DEBOX_END_UNSEEN = 1 << 5,
	DEBOX_CPU_MEASURED = 1 << 6, /* throttled_ns and cpu_owner_* are measured */
};

/* Each part is measured from its own pair of stamps; together they are the wall time. */
struct debox_budget {
	__u64 cpu_ns;	    /* running, in this call */
	__u64 blocked_ns;   /* asleep: from leaving the CPU to the wake-up */
	__u64 runqueue_ns;  /* woken, waiting for a CPU */
	__u64 preempted_ns; /* pushed off the CPU while it could have run */
	__u64 irq_ns;	    /* interrupts that ran on top of it, if DEBOX_IRQ_MEASURED */
	__u64 outside_ns;   /* user tap only: inside the stamps but not inside the call */
};

/* Why a user tap's stamps enclose more than the call; the parts of outside_ns. */
struct debox_outside {
	__u64 handler_ns;   /* signal handlers */
	__u64 stopped_ns;   /* SIGSTOP, ptrace */
	__u64 exit_work_ns; /* work on the way back to user mode: deferred closes, task work */
	__u64 preempted_ns; /* pushed off the CPU between a stamp and the instruction */
	__u64 other_ns;	    /* anything else seen there, such as a fault on the stamps' own page */
};

enum debox_waker_kind {
	DEBOX_WAKER_UNKNOWN = 0,
	DEBOX_WAKER_TASK = 1,
	DEBOX_WAKER_HARDIRQ = 2,
	DEBOX_WAKER_SOFTIRQ = 3,
};

enum debox_resource_kind {
	DEBOX_RESOURCE_NONE = 0,
	DEBOX_RESOURCE_FD = 1,	  /* a file descriptor of the calling process */
	DEBOX_RESOURCE_FUTEX = 2, /* the address of a futex word in the calling process */
	DEBOX_RESOURCE_TIMER = 3, /* a timer: the call's own timeout */
	DEBOX_RESOURCE_LOCK = 4,  /* a contended kernel lock; the value is its address */
	DEBOX_RESOURCE_CHILD = 5, /* a child process; the value is the call's argument */
	DEBOX_RESOURCE_DISK = 6,  /* a block device; the value is its device number in the kernel */
};

enum debox_waiters_scope {
	DEBOX_WAITERS_UNKNOWN = 0,   /* not counted */
	DEBOX_WAITERS_MONITORED = 1, /* among the session's tasks */
	DEBOX_WAITERS_ALL = 2,	     /* among all tasks (contended kernel locks) */
};

/* How certain it is that debox_sleep.owner_tid held the resource when the wait began. */
enum debox_owner_certainty {
	DEBOX_OWNER_NONE = 0,	     /* no owner is known */
	DEBOX_OWNER_LAST_READER = 1, /* held by readers; the kernel records only the last */
	DEBOX_OWNER_EXACT = 2,
	DEBOX_OWNER_LAST_HOLDER = 3, /* last to take the semaphore; has not released it itself */
};

/* In debox_sleep.lock_flags, for a semaphore: the kernel's lock events have no flag for these. */
#define DEBOX_LOCK_SEMAPHORE (1U << 31)
/*
 * In lock_flags, too, although there is no lock: a timeout ended the wait. Set for futex waits for
 * something that no task holds, and for waits with epoll.
 */
#define DEBOX_LOCK_TIMED_OUT (1U << 30)

/*
 * Who had the CPU for the largest part of the time in which the call waited for one (runqueue_ns
 * and preempted_ns, less what a quota took). The threads of a process count together.
 */
enum debox_cpu_owner_kind {
	DEBOX_CPU_OWNER_NONE = 0,    /* the call did not wait for a CPU, or only for its quota */
	DEBOX_CPU_OWNER_UNKNOWN = 1, /* switches were hidden by the machine, or too many */
	DEBOX_CPU_OWNER_TASK = 2,    /* another process */
	DEBOX_CPU_OWNER_OWN = 3,     /* other threads of the call's own process */
	DEBOX_CPU_OWNER_KERNEL = 4,  /* a thread of the kernel */
	DEBOX_CPU_OWNER_IDLE = 5,    /* no task: the CPU was idle and had to be woken */
	DEBOX_CPU_OWNER_HIDDEN = 6,  /* all processes that a broker's client may not see */
	DEBOX_CPU_OWNER_MANY = 7,    /* many processes; which one had most is not known */
	DEBOX_CPU_OWNER_STOLEN = 8,  /* the hypervisor, as far as that is certain */
};

/* One place where the call slept; sleeps at the same site are one entry. */
struct debox_sleep {
	__u64 site;	     /* kernel address of the site; 0 if the stack could not be captured */
	__u64 stack;	     /* name of the whole kernel stack in the session's table */
	__u64 blocked_ns;    /* total */
	__u64 longest_ns;    /* longest one */
	__u64 resource;	     /* what was waited on; its meaning depends on resource_kind */
	__u32 resource_kind; /* enum debox_resource_kind */
	__u32 count;	     /* how many sleeps */
	__u32 waiters_entry; /* most waiters when a sleep began, the sleeper included */
	__u32 waiters_exit;  /* most waiters left when one ended, the sleeper not included */
	__u32 waiters_scope; /* enum debox_waiters_scope */
	__u32 waker_kind;    /* enum debox_waker_kind, of the last sleep */
	__u32 waker_tid;     /* 0 unless waker_kind is DEBOX_WAKER_TASK */
	__u32 owner_tid;     /* who held the resource when the last sleep began; 0: not known */
	char waker_comm[DEBOX_COMM_LEN];
	char owner_comm[DEBOX_COMM_LEN];
	__u32 owner_certainty; /* enum debox_owner_certainty */
	__u32 lock_flags;      /* the kernel's LCB_F_* of a contended lock, or DEBOX_LOCK_* */
	__u32 reserved[4];
};

enum debox_trace_kind {
	DEBOX_TRACE_FUNCTION = 0,   /* entered and left; delta_ns is its time */
	DEBOX_TRACE_UNRETURNED = 1, /* entered; its return was not seen before the call ended */
	DEBOX_TRACE_SAMPLE = 2,	    /* where the clock found the call; depth is the stack's */
	DEBOX_TRACE_EVENT = 3,	    /* a tracepoint passed; function is its __traceiter_NAME */
};

/*
 * One kernel function entered during the call, in the order of entry (debox_start_trace()). Where
 * functions cannot be probed there are samples and events instead, which have no time.
 */
struct debox_trace_entry {
	__u64 function; /* kernel address */
	__u32 delta_ns; /* from its entry to its return, with all that it called */
	__u16 depth;	/* how many traced functions it is inside of */
	__u16 kind;	/* enum debox_trace_kind */
};

/*
 * The record of one call. `sequence` is odd while the record is being written. Another thread
 * copies the record and keeps the copy only if the sequence was even, and the same before and after
 * copying. The thread that made the call need not check.
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
	__u64 number;	   /* ordinal of this call on this thread, from 1 */
	__u32 trace_lost;  /* entries (functions, samples, events) that did not fit */
	__u32 trace_first; /* number of the first trace entry; see debox_slot.trace_written */
	struct debox_outside outside;
	/* With DEBOX_CPU_MEASURED (DEBOX_DETAIL_CPU), else 0. */
	__u64 throttled_ns; /* part of runqueue_ns and preempted_ns, caused by a cgroup's CPU quota
			     */
	__u64 cpu_owner_ns; /* part of the rest: the largest owner had the CPU */
	__u32 cpu_owner_kind;		     /* enum debox_cpu_owner_kind */
	__u32 cpu_owner_pid;		     /* TASK, OWN, KERNEL; else 0 */
	char cpu_owner_comm[DEBOX_COMM_LEN]; /* for the same kinds, the process's name; else "" */
	__u64 reserved[4];
	struct debox_sleep sleeps[DEBOX_SLEEPS_MAX];
};

/* debox_totals.flags */
enum debox_totals_flag {
	DEBOX_TOTALS_AWAY = 1 << 0,	/* last seen when it left the CPU */
	DEBOX_TOTALS_USER_TAP = 1 << 1, /* calls are counted in the tap's own fields of the slot */
	DEBOX_TOTALS_IRQ = 1 << 2,	/* interrupts are measured separately */
};

/*
 * How a thread has spent its time so far, for scopes (debox_scope_begin()). The kernel writes the
 * totals at each event after which the thread may run in user mode. `sequence` is odd meanwhile: a
 * reader that finds it even, and unchanged after reading the other fields and the clock, has a
 * consistent snapshot. From stamp_ns until that reading of the clock the thread ran, unless
 * DEBOX_TOTALS_AWAY says that its return to the CPU was not seen.
 */
struct debox_totals {
	__u32 sequence;
	__u32 flags;	   /* enum debox_totals_flag */
	__u64 birth_ns;	   /* when monitoring of the thread began */
	__u64 stamp_ns;	   /* life_ns covers the time up to here */
	__u64 life_ns[6];  /* in calls and between them, in the order of debox_budget */
	__u64 calls_ns[6]; /* kernel tap: the part of that in calls */
	__u64 calls;	   /* kernel tap: completed */
	__u64 sleeps;
	__u64 faults_minor, faults_major; /* kernel tap: in calls */
	__u64 unseen_ns;		  /* waits that no event showed; part of the CPU time */
	__u64 unseen;			  /* switches that no event showed */
};

/*
 * What one thread shares with the probes: its controls and its last records. A field is written by
 * the thread (marked "thread") or by the writer of the records ("tap": the kernel under the kernel
 * tap, the thread itself under the user tap).
 */
struct debox_slot {
	__u32 version;
	__u32 size;   /* sizeof(struct debox_slot) */
	__u32 tid;    /* thread id in the initial PID namespace, or a broker's client's; 0: free */
	__u32 tgid;   /* process id, in the same namespace */
	__u32 paused; /* thread: not 0 while no records are wanted */
	__u32 max_sleeps; /* thread: at most this many entries in sleeps[] */
	__u32 max_trace;  /* thread */
	__u32 gone;	  /* library: not 0 once the records are no longer written */
	__u64 completed;  /* tap: records completed; the last is history[(completed - 1) % MAX] */

	/* The user tap's own fields; see debox_tap.h. */
	__u32 tap_call;	   /* thread: call number + 1 between the stamps, else 0 */
	__u32 tap_touched; /* kernel: 1 added to the open record, 2 asleep, 3 pushed off, 4 woken */
	__u32 tap_foreign; /* kernel: processes that share this memory (vfork): no stamps then */
	__u32 tap_handler; /* kernel: 1 a handler runs inside the open call, 2 on its own stack */
	__u64 tap_first_out_ns; /* kernel: when the open call was first interrupted */
	__u64 tap_last_in_ns;	/* kernel: when it last resumed */
	__u64 tap_frame;  /* thread: stack frame of the open call, to tell nested from abandoned */
	__u32 tap_faults; /* kernel: faults taken inside calls since the slot began */
	__u32 tap_abandoned; /* thread: calls left by longjmp or cancellation */
	__u64 tap_unstamped; /* thread: calls left out (vfork children, too deeply nested handlers)
			      */
	__u64 tap_totals_ns[6]; /* thread: sums of the budgets of its calls */
	__u64 tap_caller;	/* thread: where the program made the open call */

	/* Entry N is trace[N % DEBOX_TRACE_MAX], until entry N + DEBOX_TRACE_MAX is written. */
	__u32 trace_written;   /* kernel: entries so far; wraps around */
	__u32 trace_open;      /* kernel: those of the open call */
	__u32 trace_open_lost; /* kernel: its entries beyond max_trace */
	__u32 trace_reserved;

	struct debox_totals totals; /* kernel */
	__u64 reserved2[22];

	struct debox_record history[DEBOX_HISTORY_MAX];
	struct debox_trace_entry trace[DEBOX_TRACE_MAX];
	__u64 triggers_fired; /* kernel: bit mask of triggers; thread: 0 once their callbacks ran */
	__u64 triggers_undecided[176]; /* the library's own: calls that the thread has to decide */
	__u64 reserved3[15];
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
DEBOX_ASSERT(sizeof(struct debox_totals) == 168, "totals layout");
DEBOX_ASSERT(__builtin_offsetof(struct debox_slot, totals) == 168, "slot layout");
DEBOX_ASSERT(__builtin_offsetof(struct debox_slot, history) == 512, "slot layout");
DEBOX_ASSERT(sizeof(struct debox_slot) == 16384, "slot layout");

#ifndef __bpf__
/*
 * The C interface: a program reads the records of its own calls. Link with -ldebox.
 *
 * debox_enable() loads the probes and enrols the calling process: all its threads, and from then on
 * new threads and children. Then each thread finds the record of its last call with debox_last().
 *
 * A thread sees only its own calls, including those of its signal handlers and of the C library.
 * The calls of libdebox itself are left out; their ordinals (debox_record.number) are skipped.
 * Functions that stay in user space (the vDSO's clock_gettime and the like) are not calls.
 *
 * fork(): the child is monitored and has records of its own, which the same functions read there. A
 * child made by a raw clone() reads nothing until it enables DeBox itself; one made by vfork()
 * shares its parent's memory and must not use the library. Monitoring lasts as long as some process
 * has the session open: the one that enabled it, or a forked child that has not called
 * debox_disable() and has not executed another program.
 *
 * Functions return 0 or a count, or a negative enum debox_error. All may be called from any thread;
 * those marked "signal-safe" also from a signal handler.
 */
enum debox_error {
	DEBOX_ERROR_PRIVILEGE = -1,	/* the process may not load probes */
	DEBOX_ERROR_UNSUPPORTED = -2,	/* the kernel lacks what the probes need */
	DEBOX_ERROR_ENABLED = -3,	/* enabled already */
	DEBOX_ERROR_NOT_ENABLED = -4,	/* not enabled */
	DEBOX_ERROR_NOT_MONITORED = -5, /* more threads than debox_options.max_threads */
	DEBOX_ERROR_NO_THREAD = -6,	/* no such thread is monitored */
	DEBOX_ERROR_ARGUMENT = -7,	/* an argument is out of its range */
	DEBOX_ERROR_SYSTEM = -8,	/* anything else; debox_last_error_text() says what */
	DEBOX_ERROR_OTHER_THREAD = -9,	/* the scope began on another thread */
	DEBOX_ERROR_INTERRUPTED = -10,	/* monitoring ended or restarted inside the scope */
	DEBOX_ERROR_CLOSED = -11,	/* the program closed the library's file descriptors */
};

/* debox_options.detail; budgets and faults are always measured */
enum debox_detail {
	DEBOX_DETAIL_SLEEPS = 1 << 0, /* where calls sleep, who wakes them, who else waits */
	DEBOX_DETAIL_IRQ = 1 << 1,    /* interrupts measured separately from CPU time */
	/*
	 * Who had the CPU that calls waited for; kernel tap only. Every context switch on the
	 * machine then takes longer, as it notes who had the CPU.
	 */
	DEBOX_DETAIL_CPU = 1 << 2,
};

/* debox_options.tap; see debox_call() for what a user tap sees */
enum debox_tap_choice {
	DEBOX_TAP_ANY = 0,    /* joins a `debox run --tap user`; elsewhere as DEBOX_TAP_KERNEL */
	DEBOX_TAP_KERNEL = 1, /* a session of the process's own: every call is seen */
	DEBOX_TAP_USER = 2, /* joins a `debox run --tap user`; elsewhere takes stamps of its own */
};

struct debox_options {
	__u32 size;	   /* sizeof(struct debox_options) */
	__u32 max_threads; /* threads monitored at the same time; 17 KB of memory each; 0: 1024 */
	__u32 detail;	   /* enum debox_detail */
	__u32 tap;	   /* enum debox_tap_choice */
	__u32 reserved[4]; /* 0 */
};

/* What a sleep means; strings that are too long are cut. */
struct debox_explanation {
	char label[48];	     /* human-readable name of the wait: "page read" */
	char wait_class[16]; /* idle, disk, lock, memory, cpu, network, process, other */
	char function[64];   /* the kernel function that decided to wait */
	__u64 offset;	     /* offset in that function */
	char file[120];	     /* source file, "" where the kernel has no debug information */
	__u32 line;	     /* 0 in the same case */
	__u32 reserved;
};

/*
 * Loads the probes and enrols this process. NULL means 1024 threads, DEBOX_DETAIL_SLEEPS and
 * DEBOX_TAP_ANY. Needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE; or a broker (`debox
 * broker`) at /run/debox/broker.sock, or at the path in DEBOX_BROKER. Takes some tenths of a
 * second, with a broker some milliseconds. Fails with SYSTEM if a broker does not answer at all for
 * 10 seconds, or falls silent for 60 more while it loads the probes.
 *
 * A session of the process's own takes about 90 file descriptors, 115 with DEBOX_DETAIL_IRQ, and
 * 15 MiB of kernel memory on two CPUs besides the records. While there is any session, or any
 * client of a broker, each system call of every process on the machine takes some 40 to 50 ns
 * longer, and each switch between processes a few per cent longer. That cost does not grow with the
 * number of sessions, up to 32, if their processes run as root with CAP_SYS_ADMIN: these sessions
 * share the attached programs.
 *
 * The descriptors of such a session are BPF maps, programs, links and types and an epoll instance
 * (anon_inode:bpf-map and so on in /proc/self/fd). All of them are opened in this function or in
 * debox_start_trace(), with close-on-exec. A program that closes descriptors that it does not know
 * (closefrom(), close_range()) ends the session, unless a fork of it still holds them; beside other
 * sessions on the machine it may go on for a second. The library notices the end when it is used:
 * at once if the thread's last call was such a close; at the beginning or end of a scope if nothing
 * has happened on the thread for 10 ms; and in debox_last() if the record has been looked at before
 * and is a second old. It then makes a gettid, which neither records nor scopes show, and checks
 * whether that call was measured. If not, debox_last() returns NULL from then on, functions return
 * CLOSED, an open scope returns INTERRUPTED, and debox_enable() begins a new session. Descriptors
 * that the program has since opened under the same numbers are left alone. With a broker there are
 * two descriptors, a socket and the map of the records.
 *
 * With a broker these things differ: it may allow fewer threads than asked for; tasks of other
 * users that end a sleep are called "(another user)"; the site, the stack and the resource of a
 * lock are opaque names instead of addresses; waiters of kernel locks are not counted; who had the
 * CPU (DEBOX_DETAIL_CPU) is not measured, as under a user tap. If the broker goes away there are no
 * records, and threads that ask for records look for a new broker: that takes some system calls in
 * the function that was called, at most once per millisecond, with a wait of 2 ms at most five
 * times per second. When there is a broker again, the process is enrolled again, but not its
 * children. A child that was forked before can call debox_enable() again.
 *
 * A program that runs under `debox run --tap user` joins that session, unless it asks for
 * DEBOX_TAP_KERNEL. That needs no privilege, the limit on threads and the detail are the session's,
 * and debox_last() returns the records that the preload shim completes for ordinary calls of libc.
 * There, debox_explain() knows labels only with the privilege to find the session's stacks; without
 * it, only the site.
 *
 * Under `debox run` with the kernel tap (or with DEBOX_TAP_KERNEL under the user tap) the process
 * opens a session of its own beside the other one. Both measure correctly; each call pays for both,
 * and what the library does in this function appears in the outer session's report.
 *
 * Errors: PRIVILEGE, UNSUPPORTED, ENABLED, ARGUMENT, SYSTEM.
 */
int debox_enable(const struct debox_options *options);

/* Ends monitoring and takes the probes out of the kernel. Errors: NOT_ENABLED. */
int debox_disable(void);

/*
 * The record of this thread's last call. NULL before its first call, while DeBox is not enabled,
 * and on a thread that is not monitored. Signal-safe. It makes plain loads only, except that the
 * first use on a thread makes one gettid, which is not shown; see debox_enable() for a broker that
 * has gone. The record is not a copy: the kernel overwrites it at this thread's eighth call after
 * it (DEBOX_HISTORY_MAX). The memory stays readable for good.
 */
const struct debox_record *debox_last(void);

/*
 * Copies up to `n` of this thread's last calls, the newest first; returns how many. Signal-safe.
 * Errors: NOT_ENABLED, NOT_MONITORED, ARGUMENT.
 */
int debox_history(struct debox_record *out, int n);

/*
 * The same for another monitored thread, of this process or of its children. Each record is
 * consistent; one that its thread overwrites faster than it can be read is left out. Signal-safe.
 * Errors: NOT_ENABLED, NO_THREAD, ARGUMENT.
 */
int debox_history_of(int tid, struct debox_record *out, int n);

/*
 * Stop and resume recording this thread's calls. Under the kernel tap, calls made while paused
 * still count in debox_record.number. Signal-safe. Errors: NOT_ENABLED, NOT_MONITORED.
 */
int debox_pause(void);
int debox_resume(void);

/*
 * Limits this thread's next records to `max_sleeps` sites (initially DEBOX_SLEEPS_MAX) and
 * `max_trace` trace entries (initially 0; see debox_start_trace()). A limit larger than a record
 * holds is cut to that. What does not fit is counted in sleeps_lost and trace_lost. Signal-safe.
 * Errors: NOT_ENABLED, NOT_MONITORED.
 */
int debox_set_limits(unsigned int max_sleeps, unsigned int max_trace);

/*
 * Makes a system call, as syscall(2) does, and returns what the kernel returned: -errno on error.
 * Does not change errno itself. Signal-safe.
 *
 * With DEBOX_TAP_USER no probe runs at the calls themselves. That makes monitoring several times
 * cheaper, and calls of processes that are not monitored cost nothing extra. In return, only calls
 * made through this function, or between debox_call_begin() and debox_call_end(), have records.
 * Those have DEBOX_USER_TAP set and `outside` filled in; debox_record.number counts only them
 * (while paused, nothing is counted); all their faults count as minor.
 *
 * Under another tap, or while DeBox is not enabled, this function only makes the call, so a program
 * may use it throughout. It also only makes those calls that do not return to where they were made
 * (fork, vfork, clone, execve, exit, rt_sigreturn); a raw vfork is not possible.
 */
long debox_call(long number, ...);

/*
 * Stamps of the user tap around any function that makes one system call:
 *
 *	struct debox_slot *tapped = debox_call_begin(SYS_read, fd, (__u64)buffer, size);
 *	ssize_t ret = read(fd, buffer, size);
 *	debox_call_end(tapped, SYS_read, ret < 0 ? -errno : ret);
 *
 * Anything else that runs between the stamps counts as the call's CPU time. Calls made in between
 * have no records of their own, unless a signal handler makes them. debox_call_begin() returns NULL
 * if there are no stamps to take, which debox_call_end() accepts. A call left by longjmp() ends,
 * with -EINTR, when the thread begins its next one. errno is not changed. Signal-safe.
 */
struct debox_slot *debox_call_begin(long number, __u64 arg0, __u64 arg1, __u64 arg2);
void debox_call_end(struct debox_slot *tapped, long number, long ret);

/* debox_scope_begin()'s flags */
enum debox_scope_flag {
	DEBOX_SCOPE_ALL_FAULTS =
		1 << 0, /* also count faults of the program's own code: one getrusage at each end */
};

/* debox_sums.flags */
enum debox_sums_flag {
	DEBOX_SUMS_IRQ_MEASURED = 1 << 0, /* irq_ns is measured; else cpu_ns includes it */
	DEBOX_SUMS_USER_TAP = 1 << 1, /* only tapped calls are counted, and included in in_calls */
	DEBOX_SUMS_ALL_FAULTS = 1 << 2, /* all faults count; else only those taken in calls */
};

/* Where a scope began. Opaque; may be copied, and needs no clean-up. */
struct debox_scope {
	__u32 state;
	__s32 error;
	__u64 began[31];
};

/* What happened on a thread in a scope. */
struct debox_sums {
	__u64 wall_ns;
	struct debox_budget
		budget; /* of the whole scope; its parts add up to wall_ns, outside_ns is 0 */
	struct debox_budget
		in_calls; /* the part of that in system calls; the rest was in user mode */
	__u64 calls;
	__u64 sleeps; /* in calls, and in page faults between them */
	__u64 faults_minor, faults_major;
	/*
	 * Time whose use is not known, because the machine hid switches; see README. It is included
	 * in the parts, mostly in cpu_ns.
	 */
	__u64 unseen_ns;
	__u64 unseen;	/* such switches that were noticed */
	__u64 untapped; /* user tap: calls that could not be stamped */
	__u32 flags;	/* enum debox_sums_flag */
	__u32 reserved[3];
};

/*
 * Sums up what happens on the calling thread from here on. The sums are exact however many calls
 * there are: they do not come from the records. budget.cpu_ns - in_calls.cpu_ns is CPU time in user
 * mode. It includes page faults of the program's own code, and signal handling between calls; if
 * such a fault sleeps, that time is in budget.blocked_ns, but not in in_calls.
 *
 * Scopes may nest and overlap; each costs two readings of the clock and some plain loads.
 * Everything that the thread does inside a scope counts. Under an event loop that includes other
 * tasks, so put a scope there around work that does not suspend. A scope must end on the thread on
 * which it began; a forked child cannot end its parent's scopes.
 *
 * The time that the library spends in debox_explain(), debox_explain_trace() and
 * debox_start_trace() is left out of all sums, including wall_ns.
 *
 * Under the kernel tap, calls count even while records are paused. Under a user tap, time off the
 * CPU is that of the whole thread; only calls that the tap saw are counted.
 *
 * Returns 0, or the error that debox_scope_end() will return, too: a program that could not enable
 * broker has gone, may use scopes all the same. Signal-safe, but not inside an open tapped call.
 * Errors: NOT_ENABLED, NOT_MONITORED, ARGUMENT.
 */
int debox_scope_begin(struct debox_scope *scope, unsigned int flags);

/*
 * Computes the sums from the beginning of the scope until now; may be called again later.
 * Signal-safe. Errors: those of debox_scope_begin(); OTHER_THREAD, INTERRUPTED.
 */
int debox_scope_end(const struct debox_scope *scope, struct debox_sums *out);

/*
 * Explains record->sleeps[index] (the label depends on the call, hence the whole record). This
 * thread's records are paused meanwhile, so `record` may be what debox_last() returned, and scopes
 * leave the work out. debox_enable() has read the names, so a program that has since changed its
 * root or dropped its privilege may still call this, unless a broker serves it. Not signal-safe.
 * Errors: NOT_ENABLED, ARGUMENT, SYSTEM.
 */
int debox_explain(const struct debox_record *record, int index, struct debox_explanation *out);

/*
 * Loads the probes of the call tree, unless they are loaded already. From then on, records of
 * threads that asked for trace entries with debox_set_limits() have them. `functions` is a list as
 * for `debox run --trace=LIST`; NULL means the default list. How functions are observed depends on
 * the kernel; if it allows no probes on functions, there are samples and events instead. Takes some
 * tenths of a second, or seconds for thousands of functions; every process pays for each entry of a
 * probed function. Ends with debox_disable(). Not signal-safe. Errors: NOT_ENABLED, UNSUPPORTED
 * (under a user tap), ARGUMENT, SYSTEM.
 */
int debox_start_trace(const char *functions);

/*
 * Copies the trace entries of one of this thread's records, in the order in which the functions
 * were entered. Returns how many it copied: at most `n`, and 0 if entries of later calls have
 * overwritten them. Signal-safe. Errors: NOT_ENABLED, NOT_MONITORED, ARGUMENT.
 */
int debox_trace(const struct debox_record *record, struct debox_trace_entry *out, int n);

/*
 * Names the function of a trace entry: fills in function, offset, file and line of `out`; there is
 * no label. Not signal-safe. Errors: NOT_ENABLED, ARGUMENT.
 */
int debox_explain_trace(const struct debox_trace_entry *entry, struct debox_explanation *out);

/*
 * Registers a trigger: `callback` is called, with the record and `argument`, for each call of this
 * process for which `predicate` holds. It runs when the call ends, in the thread that made the
 * call, before any other code of the program runs there. debox/README.md describes the language.
 * At most `limit` callbacks per second; 0: no limit. A process may have up to 8 triggers and must
 * register them before debox_enable(), which then uses no broker and opens a session of its own,
 * with the kernel tap.
 *
 * Predicates with `throttled` or `cpu_owner` need DEBOX_DETAIL_CPU.
 *
 * Predicates with `label` or `class` need DEBOX_DETAIL_SLEEPS. They make debox_enable() read the
 * kernel's symbols, once: some tenths of a second, and a few MB. The first thread that sleeps at a
 * new place finds out the label of that place when its call ends, in the signal handler. That takes
 * about 0.1 ms and 2 KB of stack, but neither a lock nor memory from malloc(), so its callback,
 * too, runs before the program goes on. From then on the kernel decides about that place, and a
 * call for which nothing holds costs no signal. Before that, such a call costs a signal without a
 * callback; the thread's last call is then the handler's return (rt_sigreturn), as it is after
 * every callback. A sleep whose place could not be captured counts as missed; some virtual machines
 * cause that now and then. Functions of kernel modules that are loaded later have no names.
 *
 * The callback runs in a handler of `signal`, which the program must not use otherwise. It may do
 * what a signal handler may do. If the callback makes a call for which the predicate holds, the
 * next callback runs when it has returned. If a thread blocks the signal, the callback runs later:
 * once for all calls made meanwhile, with the record of the thread's last call. For calls that
 * slept at a new place it runs once for each of the first four, with that call's own record, or not
 * at all if that record has been overwritten by then. There are no callbacks for parts of restarted
 * calls, for returns from handlers (rt_sigreturn), on paused threads, in children of vfork(), and
 * in programs that are executed. Triggers last for the life of the process. Errors: ENABLED,
 * ARGUMENT, SYSTEM.
 */
int debox_trigger(const char *predicate, int signal, unsigned int limit,
		  void (*callback)(const struct debox_record *record, void *argument),
		  void *argument);

/* Counts for a trigger since debox_enable(), in all processes of the session. */
struct debox_trigger_counts {
	__u64 fired;	  /* calls for which the predicate held, within the limit */
	__u64 suppressed; /* the same, beyond the limit */
	__u64 missed;	  /* calls that could not be decided, or whose record was gone: see above */
	__u64 unsent;	  /* signals that the kernel refused to send */
	__u64 reserved[4];
};

/*
 * Fills in `out` for a trigger. Triggers are numbered in the order of their registration, from 0.
 * The counts stay available after debox_disable(), until the next debox_enable(). Signal-safe.
 * Errors: ARGUMENT if there is no such trigger.
 */
int debox_trigger_counts(unsigned int trigger, struct debox_trigger_counts *out);

/* A call's name, such as "read"; "syscall_N" if it has none. Never freed; not signal-safe. */
const char *debox_call_name(int call, int abi);

/* What an error code means in general. Never freed; signal-safe. */
const char *debox_strerror(int error);

/*
 * The details of this thread's last error; "" if there was none. Valid until the thread's next
 * error. Not signal-safe; functions that are signal-safe do not change it.
 */
const char *debox_last_error_text(void);

DEBOX_ASSERT(sizeof(struct debox_options) == 32, "options layout");
DEBOX_ASSERT(sizeof(struct debox_scope) == 256, "scope layout");
DEBOX_ASSERT(sizeof(struct debox_sums) == 176, "sums layout");
DEBOX_ASSERT(sizeof(struct debox_explanation) == 264, "explanation layout");
DEBOX_ASSERT(sizeof(struct debox_trigger_counts) == 64, "trigger counts layout");
#endif /* __bpf__ */

#ifdef __cplusplus
}
#endif
#endif
