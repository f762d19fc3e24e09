/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * mapped.h: the code that processes map, reported to the engine as it happens (detail `callsites`).
 *
 * By the time a stack is unwound its process may have ended, and no other source says then which
 * file was mapped where. The engine opens the file by its path, and uses it only if its device and
 * inode are those that the probe saw: the path may lead to another file by then.
 */
#ifndef PROBE_MAPPED_H
#define PROBE_MAPPED_H

#include "sites.h"
#include "title.h"

#define PATH_BYTES 4096
#define PATH_STEPS 128 /* components and mounts */
#define NAME_BYTES 256

/* Separate from `events`, so that a flood of new stacks does not cause events to be lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 32 << 20);
} stack_asks SEC(".maps");

/* `words` has room for one page more: the last page copied may begin just below the limit. */
struct ask_scratch {
	struct stack_ask ask;
	__u64 words[(STACK_ASK_BYTES + PAGE_BYTES) / sizeof(__u64)];
	__u64 hash;
	/* How far the file's path has been followed. */
	void *dentry, *mount;
	/*
	 * Where the path ends for a client of the broker, which gets only paths that it can see
	 * itself.
	 */
	void *root_dentry, *root_mount;
	__u32 path_bytes, is_whole_path;
};

/*
 * A sample is taken in an interrupt, which may come while a probe at a call fills in its own
 * scratch.
 */
enum {
	SCRATCH_OF_CALLS,
	SCRATCH_OF_SAMPLES,
	SCRATCHES,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, __u32);
	__type(value, struct ask_scratch);
} ask_scratch SEC(".maps");

/*
 * One step towards the root. Crosses from the root of a mount to where it is mounted, as d_path()
 * does, up to the root of the mount namespace. A rename meanwhile gives a path that leads nowhere,
 * or to another file, which the engine notices.
 */
static long add_component(__u32 index, void *unused)
{
	__u32 which = SCRATCH_OF_CALLS, used;
	struct ask_scratch *scratch = bpf_map_lookup_elem(&ask_scratch, &which);
	struct dentry *dentry, *above;
	struct vfsmount *at;
	struct mount *mount;
	long length;

	if (!scratch)
		return 1;
	dentry = scratch->dentry;
	at = scratch->mount;
	if (for_others && dentry == scratch->root_dentry && at == scratch->root_mount) {
		scratch->is_whole_path = 1;
		return 1;
	}
	if (dentry == BPF_CORE_READ(at, mnt_root)) {
		mount = (void *)at - bpf_core_field_offset(struct mount, mnt);
		if (BPF_CORE_READ(mount, mnt_parent) == mount) {
			scratch->is_whole_path = !for_others;
			return 1;
		}
		scratch->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
		scratch->mount = (void *)BPF_CORE_READ(mount, mnt_parent) +
				 bpf_core_field_offset(struct mount, mnt);
		return 0;
	}
	above = BPF_CORE_READ(dentry, d_parent);
	used = scratch->path_bytes;
	if (above == dentry || used > PATH_BYTES - NAME_BYTES)
		return 1;
	length = bpf_probe_read_kernel_str((char *)scratch->words + used, NAME_BYTES,
					   BPF_CORE_READ(dentry, d_name.name));
	if (length <= 1)
		return 1;
	scratch->path_bytes = used + length;
	scratch->dentry = above;
	return 0;
}

/*
 * The path of the file that was noted last, from its last component to its first, a zero after
 * each. Empty if it is too long.
 */
static __always_inline void note_path(struct ask_scratch *scratch, struct task_struct *task)
{
	scratch->path_bytes = 0;
	scratch->is_whole_path = 0;
	if (for_others) {
		scratch->root_dentry = BPF_CORE_READ(task, fs, root.dentry);
		scratch->root_mount = BPF_CORE_READ(task, fs, root.mnt);
	}
	if (scratch->dentry && bpf_core_type_exists(struct mount))
		bpf_loop(PATH_STEPS, add_component, 0, 0);
	scratch->ask.bytes = scratch->is_whole_path ? scratch->path_bytes : 0;
}

static __always_inline void note_path_begin(struct ask_scratch *scratch, struct file *file)
{
	scratch->dentry = file ? BPF_CORE_READ(file, f_path.dentry) : 0;
	scratch->mount = file ? BPF_CORE_READ(file, f_path.mnt) : 0;
}

static long note_ask_mapping(struct task_struct *task, struct vm_area_struct *vma, __u32 *which)
{
	struct ask_scratch *scratch = bpf_map_lookup_elem(&ask_scratch, which);

	if (scratch) {
		note_mapped(&scratch->ask.at_ip, vma);
		note_path_begin(scratch, vma->vm_file);
	}
	return 0;
}

/* The process, and the program that it runs. */
static __always_inline void note_program_of(struct ask_scratch *scratch, struct thread *thread,
					    struct task_struct *task)
{
	struct task_struct *parent = BPF_CORE_READ(task, real_parent, group_leader);
	struct stack_ask *ask = &scratch->ask;
	struct mm_struct *mm = BPF_CORE_READ(task, mm);

	ask->tgid = thread->tgid;
	ask->parent = known_number(thread, parent);
	ask->image = task->self_exec_id;
	__builtin_memset(&ask->at_ip, 0, sizeof(ask->at_ip));
	__builtin_memset(&ask->program, 0, sizeof(ask->program));
	ask->code_pages = 0;
	if (mm) {
		note_program(&ask->program, mm);
		ask->code_pages = BPF_CORE_READ(mm, exec_vm);
	}
}

/* What is mapped at the address in the ask. `which`: the scratch's number. */
static __always_inline void note_mapping_at_ip(struct ask_scratch *scratch,
					       struct task_struct *task, __u32 which)
{
	note_path_begin(scratch, 0);
	bpf_find_vma(task, scratch->ask.ip, note_ask_mapping, &which, 0);
}

static __always_inline void note_mappings(struct ask_scratch *scratch, struct thread *thread,
					  struct task_struct *task)
{
	note_program_of(scratch, thread, task);
	note_mapping_at_ip(scratch, task, SCRATCH_OF_CALLS);
}

static __always_inline long send_ask(struct ask_scratch *scratch, __u64 name, void *ring,
				     __u64 wake_flags)
{
	__u32 bytes = scratch->ask.bytes;

	scratch->ask.name = name;
	if (bytes > STACK_ASK_BYTES)
		bytes = STACK_ASK_BYTES;
	return bpf_ringbuf_output(ring, scratch, sizeof(scratch->ask) + bytes, wake_flags);
}

/*
 * Reports the code that the process has mapped at an address; 0: the program that it has begun to
 * run. A lost report is not counted: the engine then reads the mappings itself.
 */
__noinline int send_mapping(struct thread *thread, __u64 address)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct ask_scratch *scratch;
	__u32 which = SCRATCH_OF_CALLS;

	scratch = bpf_map_lookup_elem(&ask_scratch, &which);
	if (!scratch || !mm || !thread)
		return 0;
	scratch->ask.ip = address;
	note_mappings(scratch, thread, task);
	if (!address)
		note_path_begin(scratch, BPF_CORE_READ(mm, exe_file));
	note_path(scratch, task);
	send_ask(scratch, 0, &stack_asks, 0);
	return 0;
}

#endif
