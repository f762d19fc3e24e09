/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * directories.h: the directories that a call passes through on the way to a file: their locks, to
 * which no descriptor leads, and their paths.
 */
#ifndef PROBE_DIRECTORIES_H
#define PROBE_DIRECTORIES_H

#include "state.h"

#define DIRECTORY_NAME 256
#define DIRECTORY_DEPTH 64

/*
 * The inode that contains the lock, or 0: no argument leads to the directories along a path. The
 * inode's own page cache must point back to it.
 */
static __always_inline struct inode *inode_around(__u64 lock)
{
	struct inode *inode = (void *)(lock - bpf_core_field_offset(struct inode, i_rwsem));

	return BPF_CORE_READ(inode, i_data.host) == inode ? inode : 0;
}

/* A name of the inode; directories have only one. */
static __always_inline struct dentry *name_of_inode(struct inode *inode)
{
	struct hlist_node *name;
	__u32 offset;

	if (bpf_core_field_exists(struct dentry, d_u.d_alias))
		offset = bpf_core_field_offset(struct dentry, d_u.d_alias);
	else if (bpf_core_field_exists(struct dentry___unnamed, d_alias))
		offset = bpf_core_field_offset(struct dentry___unnamed, d_alias);
	else
		return 0;
	name = BPF_CORE_READ(inode, i_dentry.first);
	return name ? (void *)name - offset : 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct directory_seen);
} directory_scratch SEC(".maps");

/*
 * One step towards the root of the file system. A rename meanwhile gives the path of another place.
 */
static long add_name(__u32 index, struct dentry **at)
{
	struct dentry *dentry = *at, *above = BPF_CORE_READ(dentry, d_parent);
	struct directory_seen *seen;
	const unsigned char *name;
	__u32 zero = 0, used;
	long length;

	seen = bpf_map_lookup_elem(&directory_scratch, &zero);
	if (!seen)
		return 1;
	if (above == dentry) {
		seen->is_whole = 1;
		return 1;
	}
	name = BPF_CORE_READ(dentry, d_name.name);
	/* Read last: the verifier of 6.1 forgets the bound of a value that is put aside. */
	used = seen->path_bytes;
	if (used > DIRECTORY_PATH - DIRECTORY_NAME)
		return 1;
	length = bpf_probe_read_kernel_str(seen->path + used, DIRECTORY_NAME, name);
	if (length <= 1)
		return 1;
	seen->path_bytes = used + length;
	*at = above;
	return 0;
}

/*
 * Reports to the engine the path of a directory that the call only passes through, as far as its
 * file system knows the path. While the directory's lock is held, it must not be looked up by
 * walking there.
 */
static __noinline int announce_directory(struct resource *resource, struct inode *inode, __u32 tgid)
{
	struct directory_seen *seen;
	struct dentry *dentry;
	__u32 zero = 0;

	seen = bpf_map_lookup_elem(&directory_scratch, &zero);
	dentry = inode ? name_of_inode(inode) : 0;
	if (!seen || !dentry)
		return 0;
	seen->kind = EVENT_DIRECTORY;
	seen->tgid = tgid;
	seen->resource = *resource;
	seen->path_bytes = 0;
	seen->is_whole = 0;
	bpf_loop(DIRECTORY_DEPTH, add_name, &dentry, 0);
	if (bpf_ringbuf_output(&events, seen, sizeof(*seen), 0))
		COUNT_LOST(rows);
	return 0;
}

#endif
