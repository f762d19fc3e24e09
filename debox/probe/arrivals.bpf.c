/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * arrivals.bpf.c: tells the engine of processes that may have become members of what a session
 * monitors by name, user or control group (debox/engine/src/targets/arrivals.rs).
 *
 * Children of monitored processes are followed where they are forked (life.h). This is for the
 * others: those that are moved into a control group or born in another one than their parent's,
 * those that execute another program, and those that get another name. It is an object of its own,
 * so sessions that need none of this load none of it.
 */
#include "../include/debox.h"
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile bool want_moves = false;
const volatile bool want_names = false;
const volatile bool want_users = false;

struct arrival {
	__u64 at_ns;
	__u32 tgid;
	__u32 is_followed; /* a session may monitor it already: it has task storage */
};

/* Names the type of what is sent, so that the skeleton generated from BTF has it. */
struct arrival arrival_type;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} arrivals SEC(".maps");

__u64 arrivals_lost;

#define NAMES_MAX 64

struct process_name {
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NAMES_MAX);
	__type(key, struct process_name);
	__type(value, __u8);
} names SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NAMES_MAX);
	__type(key, __u32);
	__type(value, __u8);
} users SEC(".maps");

/* All groups of a task, of every hierarchy, are in one set, shared by the tasks in the same ones.
 */
struct task_struct___in_groups {
	void *cgroups;
} CORE;

static __always_inline void *groups_of(struct task_struct *task)
{
	return BPF_CORE_READ((struct task_struct___in_groups *)task, cgroups);
}

static __always_inline int tell(struct task_struct *task)
{
	struct arrival *arrival = bpf_ringbuf_reserve(&arrivals, sizeof(*arrival), 0);

	if (!arrival) {
		__sync_fetch_and_add(&arrivals_lost, 1);
		return 0;
	}
	arrival->at_ns = bpf_ktime_get_ns();
	arrival->tgid = task->tgid;
	arrival->is_followed = task->bpf_storage != 0;
	bpf_ringbuf_submit(arrival, 0);
	return 0;
}

SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_move, struct cgroup *to, const char *path, struct task_struct *task)
{
	return want_moves ? tell(task) : 0;
}

/* clone3() can place a child in a group. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_birth, struct task_struct *parent, struct task_struct *child)
{
	if (!want_moves || child->tgid == parent->tgid || groups_of(parent) == groups_of(child))
		return 0;
	return tell(child);
}

/* Not told of its parent's name: a child is a member if its parent is one. */
SEC("tp_btf/task_rename")
int BPF_PROG(on_name, struct task_struct *task, const char *comm)
{
	struct process_name name = {};

	if (!want_names || task->pid != task->tgid)
		return 0;
	bpf_probe_read_kernel_str(name.comm, sizeof(name.comm), comm);
	return bpf_map_lookup_elem(&names, &name) ? tell(task) : 0;
}

/* A program can run as another user than the one that executed it. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_program, struct task_struct *task)
{
	__u32 user;

	if (!want_users)
		return 0;
	user = BPF_CORE_READ(task, real_cred, euid.val);
	return bpf_map_lookup_elem(&users, &user) ? tell(task) : 0;
}
