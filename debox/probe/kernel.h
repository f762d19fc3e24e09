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
	unsigned long r15, r14, r13, r12, bp, bx, r10, ax, dx, si, di, r8, orig_ax, ip, sp;
} CORE;

struct thread_info {
	__u32 status;
} CORE;

struct counter {
	long counter;
} CORE;

struct list_head {
	struct list_head *next;
} CORE;

struct rw_semaphore {
	struct counter owner;
	struct list_head wait_list; /* gone in some later kernels, as is the mutex's */
} CORE;

enum rwsem_waiter_type {
	RWSEM_WAITING_FOR_WRITE,
	RWSEM_WAITING_FOR_READ,
};

struct rwsem_waiter {
	struct list_head list;
	struct task_struct *task;
	enum rwsem_waiter_type type;
} CORE;

struct mutex {
	struct counter owner;
	struct list_head wait_list;
} CORE;

struct mutex_waiter {
	struct list_head list;
	struct task_struct *task;
} CORE;

struct semaphore {
	unsigned long last_holder; /* 6.16 */
} CORE;

struct rt_mutex_base {
	struct task_struct *owner;
} CORE;

struct super_block {
	__u32 s_dev;
	struct rw_semaphore s_umount;
	struct mutex s_vfs_rename_mutex;
} CORE;

struct address_space {
	struct inode *host;
	struct rw_semaphore invalidate_lock;
	struct rw_semaphore i_mmap_rwsem;
} CORE;

struct file_lock_context {
	struct list_head flc_flock, flc_posix;
} CORE;

struct hlist_node {
	struct hlist_node *next;
} CORE;

struct hlist_head {
	struct hlist_node *first;
} CORE;

struct inode {
	struct address_space i_data;
	struct hlist_head i_dentry;
	unsigned short i_mode;
	unsigned long i_ino;
	struct super_block *i_sb;
	struct rw_semaphore i_rwsem;
	struct address_space *i_mapping;
	struct file_lock_context *i_flctx;
	long long i_size;
} CORE;

struct block_device {
	__u32 bd_dev;
} CORE;

struct bio {
	struct block_device *bi_bdev;
} CORE;

struct pipe_inode_info {
	struct mutex mutex;
} CORE;

struct eventpoll {
	struct mutex mtx;
	struct list_head rdllist;
} CORE;

struct epoll_filefd {
	struct file *file;
	int fd;
} CORE;

struct epitem {
	struct list_head rdllink;
	struct epoll_filefd ffd;
} CORE;

/* A lock of a file; until 6.8 all of it is in file_lock, from 6.9 on most is in its core. */
struct file_lock___old {
	struct list_head fl_list;
	void *fl_owner;
	unsigned int fl_flags;
	unsigned char fl_type;
	unsigned int fl_pid;
	struct file *fl_file;
	long long fl_start, fl_end;
} CORE;

struct file_lock_core {
	struct list_head flc_list;
	void *flc_owner;
	unsigned int flc_flags;
	unsigned char flc_type;
	int flc_pid;
	struct file *flc_file;
} CORE;

struct file_lock___new {
	struct file_lock_core c;
	long long fl_start, fl_end;
} CORE;

struct qstr {
	const unsigned char *name;
} CORE;

struct dentry {
	union {
		struct hlist_node d_alias; /* link in its inode's list of names */
	} d_u;
	struct qstr d_name;
	struct dentry *d_parent;
	struct inode *d_inode;
} CORE;

struct dentry___unnamed { /* 7.x: the union has no name */
	struct hlist_node d_alias;
} CORE;

struct vfsmount {
	struct dentry *mnt_root;
} CORE;

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
} CORE;

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
} CORE;

struct file {
	struct inode *f_inode;
	struct path f_path;
	void *private_data;
	struct mutex f_pos_lock;
	long long f_pos;
} CORE;

/* The path that the task is looking up. */
struct nameidata {
	struct path path;
} CORE;

struct fs_struct {
	struct path root, pwd;
} CORE;

struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	unsigned short skc_family;
	__u32 skc_daddr, skc_rcv_saddr;
	__u16 skc_dport, skc_num;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
} CORE;

struct pid_namespace;
struct upid {
	int nr;
	struct pid_namespace *ns;
} CORE;

#define PIDTYPE_TGID 1 /* since 4.19; 0 is a thread */

struct pid {
	unsigned int level;
	struct hlist_head tasks[4];
	struct upid numbers[];
} CORE;

struct sock {
	struct sock_common __sk_common;
	struct pid *sk_peer_pid;
} CORE;

struct socket {
	short type;
	struct sock *sk;
} CORE;

struct sockaddr_un {
	char sun_path[108];
} CORE;

struct unix_address {
	int len;
	struct sockaddr_un name[];
} CORE;

struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
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
	struct rw_semaphore mmap_lock;
	unsigned long start_code, end_code, exec_vm;
	unsigned long arg_start, arg_end, env_end;
	struct file *exe_file;
} CORE;

/* The flags of an address space: a word, and from 6.18 on a bitmap that begins with it. */
struct mm_struct___word {
	unsigned long flags;
} CORE;
struct mm_flags {
	unsigned long __mm_flags[1];
} CORE;
struct mm_struct___bitmap {
	struct mm_flags flags;
} CORE;

/* Who may look into a task: the last bits of those flags, before 7.x. */
enum task_dumpable {
	TASK_DUMPABLE_OWNER = 1,
};
struct task_exec_state {
	enum task_dumpable dumpable;
} CORE;
struct task_struct___exec {
	struct task_exec_state *exec_state;
} CORE;

typedef struct {
	unsigned int val;
} kuid_t;
typedef struct {
	unsigned int val;
} kgid_t;
struct cred {
	kuid_t uid, suid, euid, fsuid;
	kgid_t gid, sgid, egid;
} CORE;

struct linux_binprm {
	unsigned int secureexec : 1;
} CORE;

struct rq {
	__u64 prev_steal_time_rq; /* taken by the hypervisor so far; CONFIG_PARAVIRT_TIME_ACCOUNTING
				   */
} CORE;

struct kernfs_node {
	const char *name;
	__u64 id;
} CORE;
struct cgroup {
	struct kernfs_node *kn;
} CORE;
struct cgroup_subsys_state {
	struct cgroup *cgroup;
} CORE;
struct cfs_bandwidth {
	long long period;
	__u64 quota; /* all ones: none */
} CORE;
struct task_group {
	struct cgroup_subsys_state css;
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
} CORE;

struct cfs_rq {
	struct rq *rq;
	struct task_group *tg;
	int throttle_count;		 /* CONFIG_CFS_BANDWIDTH */
	__u64 throttled_clock_self_time; /* 6.6 */
} CORE;

struct sched_entity {
	struct cfs_rq *cfs_rq;
	unsigned char sched_delayed; /* 6.12: asleep, but still on its run queue */
} CORE;

struct signal_struct {
	unsigned int nr_threads;
} CORE;

struct sched_info {
	unsigned long long run_delay;
} CORE;

struct thread_struct {
	unsigned long sp;
	unsigned long fsbase;
} CORE;

struct int_counter {
	int counter;
} CORE;

struct seccomp {
	struct int_counter filter_count;
} CORE;

struct task_struct {
	struct seccomp seccomp;
	struct hlist_node pid_links[4];
	struct thread_struct thread;
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	unsigned int
		on_cpu; /* a byte from 7.3 on; loads of unsigned fields take the kernel's size */
	unsigned int on_rq;
	unsigned int in_iowait : 1;
	int exit_state;
	int prio;
	int nr_cpus_allowed;
	int pid, tgid;
	unsigned long min_flt, maj_flt;
	unsigned long nvcsw;
	__u64 self_exec_id;
	struct task_struct *real_parent;
	char comm[16];
	struct sched_entity se;
	struct sched_info sched_info;
	struct mm_struct *mm;
	struct files_struct *files;
	struct fs_struct *fs;
	struct signal_struct *signal;
	struct pid *thread_pid;
	struct task_io_accounting ioac;
	struct task_struct *group_leader;
	const struct cred *real_cred;
	struct bpf_local_storage *bpf_storage;
	struct nameidata *nameidata;
	unsigned long blocker; /* 6.16 */
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

/* 6.2: finds a task by its number in the initial PID namespace, and takes a reference. */
extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;
/* 6.14: the same by its number in the current task's namespace. */
extern struct task_struct *bpf_task_from_vpid(__s32 pid) __ksym __weak;

/* 6.10 */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

/* 6.14 */
extern void bpf_local_irq_save(unsigned long *flags__irq_flag) __ksym __weak;
extern void bpf_local_irq_restore(unsigned long *flags__irq_flag) __ksym __weak;

/* Before 6.10 these two do nothing. */
static __always_inline void preempt_disable(void)
{
	if (bpf_ksym_exists(bpf_preempt_disable))
		bpf_preempt_disable();
}

static __always_inline void preempt_enable(void)
{
	if (bpf_ksym_exists(bpf_preempt_enable))
		bpf_preempt_enable();
}

/* include/linux/sched.h; values unchanged from 6.1 to 7.x. */
#define TASK_DEAD 0x80
#define TASK_UNINTERRUPTIBLE 0x2
#define PF_KTHREAD 0x00200000
#define MAX_RT_PRIO 100 /* include/linux/sched/prio.h: below are deadlines and real time */
/* include/linux/mm_types.h and sched/coredump.h: who may look into a process. */
#define DUMPABLE_MASK 3
#define DUMPABLE_BY_USER 1
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
