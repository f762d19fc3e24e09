/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * kernel.h: the few kernel types the probes look into, for CO-RE.
 *
 * Only the fields that are used are named; libbpf finds their offsets in the running kernel's BTF,
 * so that building needs no kernel headers beyond the system call interface.
 */
#ifndef PROBE_KERNEL_H
#define PROBE_KERNEL_H

#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define CORE __attribute__((preserve_access_index))
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

struct bpf_local_storage;

/* x86-64: arguments in di, si, dx; orig_ax is the call number, -1 when user mode was interrupted.
 */
struct pt_regs {
	unsigned long bp, ax, dx, si, di, orig_ax, ip, sp;
} CORE;

struct thread_info {
	__u32 status;
} CORE;

struct super_block {
	__u32 s_dev;
} CORE;

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
} CORE;

struct qstr {
	const unsigned char *name;
} CORE;

struct dentry {
	struct qstr d_name;
} CORE;

struct path {
	struct dentry *dentry;
} CORE;

struct file {
	struct inode *f_inode;
	struct path f_path;
} CORE;

struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_pgoff;
	struct file *vm_file;
} CORE;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} CORE;

struct files_struct {
	struct fdtable *fdt;
} CORE;

struct task_io_accounting {
	__u64 read_bytes, write_bytes;
} CORE;

struct mm_struct {
	unsigned long start_code, end_code;
	struct file *exe_file;
} CORE;

struct rq;
struct cfs_rq {
	struct rq *rq;
} CORE;

struct sched_entity {
	struct cfs_rq *cfs_rq;
} CORE;

struct sched_info {
	unsigned long long run_delay;
} CORE;

struct thread_struct {
	unsigned long sp;
	unsigned long fsbase;
} CORE;

struct task_struct {
	struct thread_struct thread;
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	unsigned int
		on_cpu; /* a byte from 7.3 on; loads of unsigned fields take the kernel's size */
	int exit_state;
	int pid, tgid;
	unsigned long min_flt, maj_flt;
	char comm[16];
	struct sched_entity se;
	struct sched_info sched_info;
	struct mm_struct *mm;
	struct files_struct *files;
	struct task_io_accounting ioac;
	struct bpf_local_storage *bpf_storage;
} CORE;

struct sigaction {
	void *sa_handler;
	unsigned long sa_flags;
} CORE;

struct k_sigaction {
	struct sigaction sa;
} CORE;

struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
} CORE;
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} CORE;

/* include/linux/sched.h; values unchanged from 6.1 to 7.x. */
#define TASK_DEAD 0x80
#define PF_KTHREAD 0x00200000
/* arch/x86/include/asm/thread_info.h: a 32-bit call is in progress. */
#define TS_COMPAT 0x2

/* include/trace/events/lock.h */
#define LCB_F_SPIN (1U << 0)
#define LCB_F_READ (1U << 1)
#define LCB_F_WRITE (1U << 2)
#define LCB_F_RT (1U << 3)
#define LCB_F_PERCPU (1U << 4)
#define LCB_F_MUTEX (1U << 5)

/* include/linux/errno.h: restart codes, seen by tracers but never by programs. */
#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516
#define ENOSYS 38

#endif
