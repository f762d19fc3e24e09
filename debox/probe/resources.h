/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * resources.h: what a sleep waits on, as far as the call's arguments and the kernel show.
 *
 * A lock is named only by comparing its address with those of the locks that the call may use:
 * those of its files, its working directory and its own memory. Any other lock has its address for
 * a name. Files are named by device and inode; paths are the engine's business.
 */
#ifndef PROBE_RESOURCES_H
#define PROBE_RESOURCES_H

#include "calls.h"
#include "directories.h"
#include "polled.h"

#define NR_EPOLL_WAIT 232
#define NR_EPOLL_PWAIT 281
#define NR_EPOLL_PWAIT2 441
#define AT_FDCWD (-100)
#define FILE_TYPE 0170000
#define FILE_TYPE_FIFO 0010000
#define FILE_TYPE_SOCKET 0140000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define FILES_IN_ARGUMENTS 4

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct resource_key);
	__type(value, struct resource_row);
} resource_rows SEC(".maps");

__u32 resources_named; /* rows of `resource_rows` that have an identity */

/* The rest of the table is for rows without an identity, which give only the kind. */
#define RESOURCES_NAMED_MAX 14000

/* Resources that the engine was asked to name. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct resource);
	__type(value, __u32);
} announced SEC(".maps");

/* Too large for the BPF stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct resource_row);
} resource_scratch SEC(".maps");

/* The thread's call, whether the user tap saw it or not. */
static __always_inline __u32 plain_call(struct thread *thread)
{
	return thread->call == CALL_NONE ? CALL_NONE : thread->call & ~CALL_UNTAPPED;
}

static __always_inline struct file *file_of(struct task_struct *task, __u64 fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **open_files, *file = 0;

	if (!table)
		return 0;
	if (fd >= BPF_CORE_READ(table, max_fds))
		return 0;
	open_files = BPF_CORE_READ(table, fd);
	bpf_probe_read_kernel(&file, sizeof(file), open_files + fd);
	return file;
}

static __always_inline void set_file(struct resource *resource, struct inode *inode)
{
	resource->device = BPF_CORE_READ(inode, i_sb, s_dev);
	resource->id = BPF_CORE_READ(inode, i_ino);
}

static __noinline bool is_lock_of_inode(struct resource *resource, __u64 at, __u64 lock)
{
	struct inode *inode = (struct inode *)at;
	struct address_space *mapping;
	struct super_block *super;

	if (!inode)
		return false;
	if (lock == (__u64)&inode->i_rwsem) {
		resource->what = LOCK_INODE;
		set_file(resource, inode);
		return true;
	}
	super = BPF_CORE_READ(inode, i_sb);
	mapping = BPF_CORE_READ(inode, i_mapping);
	if (lock == (__u64)&super->s_umount)
		resource->what = LOCK_MOUNT;
	else if (lock == (__u64)&super->s_vfs_rename_mutex)
		resource->what = LOCK_RENAME;
	else if (bpf_core_field_exists(mapping->invalidate_lock) &&
		 lock == (__u64)&mapping->invalidate_lock)
		resource->what = LOCK_PAGE_CACHE;
	else if (lock == (__u64)&mapping->i_mmap_rwsem)
		resource->what = LOCK_FILE_MAPPINGS;
	else
		return false;
	set_file(resource, inode);
	return true;
}

static __always_inline bool is_lock_of_file(struct resource *resource, struct file *file,
					    __u64 lock)
{
	__u64 inode = (__u64)BPF_CORE_READ(file, f_inode);
	__u64 private = (__u64)BPF_CORE_READ(file, private_data);

	if (is_lock_of_inode(resource, inode, lock))
		return true;
	if (lock == (__u64)&file->f_pos_lock)
		resource->what = LOCK_POSITION;
	else if (lock == (__u64) & ((struct pipe_inode_info *)private)->mutex)
		resource->what = LOCK_PIPE;
	else if (lock == (__u64) & ((struct eventpoll *)private)->mtx)
		resource->what = LOCK_EPOLL;
	else
		return false;
	set_file(resource, (struct inode *)inode);
	return true;
}

/* Argument words that may be descriptors; a word that is not one matches no lock. */
static __always_inline __u64 argument_word(struct pt_regs *regs, __u32 index)
{
	switch (index) {
	case 0:
		return regs->di;
	case 1:
		return regs->si;
	case 2:
		return regs->dx;
	}
	return regs->r8; /* mmap's */
}

static __always_inline __u32 shown_tgid(struct thread *thread, struct task_struct *task)
{
	return for_others ? thread->tgid : task->tgid;
}

static __noinline int name_lock(struct wait *wait, struct thread *thread, struct task_struct *task,
				__u64 lock)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct resource *resource = &wait->resource;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct file *file;
	struct inode *directory;

	resource->kind = DEBOX_RESOURCE_LOCK;
	resource->id = lock;
	if (mm && lock == (__u64)&mm->mmap_lock) {
		resource->what = LOCK_MMAP;
		resource->tgid = shown_tgid(thread, task);
		resource->id = 0;
		return 0;
	}
	if (!regs || (long)regs->orig_ax < 0)
		return 0;
	for (__u32 i = 0; i < FILES_IN_ARGUMENTS; i++) {
		file = file_of(task, argument_word(regs, i));
		if (file && is_lock_of_file(resource, file, lock)) {
			wait->fd = argument_word(regs, i);
			return 0;
		}
	}
	directory = BPF_CORE_READ(task, fs, pwd.dentry, d_inode);
	if (is_lock_of_inode(resource, (__u64)directory, lock))
		wait->fd = AT_FDCWD;
	else
		is_lock_of_inode(resource, (__u64)inode_around(lock), lock);
	return 0;
}

/* The wait is for the file behind a descriptor. Returns the file's inode; 0 if there is none. */
static __always_inline struct inode *set_fd(struct wait *wait, struct task_struct *task, __s32 fd)
{
	struct file *file = file_of(task, (__u32)fd);
	struct inode *inode;

	if (!file)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	wait->fd = fd;
	wait->resource.kind = DEBOX_RESOURCE_FD;
	wait->resource.what = BPF_CORE_READ(inode, i_mode) & FILE_TYPE;
	set_file(&wait->resource, inode);
	return inode;
}

/*
 * Names what the wait is for by the arguments of the open call. Returns the name under which its
 * waiters are counted.
 */
static __always_inline __u64 name_argument(struct wait *wait, struct thread *thread,
					   struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct resource *resource = &wait->resource;
	__u32 call = plain_call(thread);
	struct inode *inode;
	__s32 fd = regs ? (__s32)regs->di : 0;
	__u64 count;

	if (!regs)
		return 0;
	resource->kind = resource_kind_of(call);
	if (is_poll(call)) {
		count = polled_by(task, regs, call);
		resource->kind = (__u32)count == 1 ? DEBOX_RESOURCE_FD : RESOURCE_SEVERAL;
		resource->id = (__u32)count;
		fd = count >> 32;
	}
	switch (resource->kind) {
	case DEBOX_RESOURCE_FUTEX: /* the same word of the same address space */
		resource->tgid = shown_tgid(thread, task);
		resource->id = regs->di;
		return resource->id ^ ((__u64)BPF_CORE_READ(task, mm) << 1);
	case DEBOX_RESOURCE_CHILD:
		resource->id = regs->di;
		return 0;
	case DEBOX_RESOURCE_FD:
		inode = set_fd(wait, task, fd);
		return inode ? (__u64)inode ^ ((__u64)call << 48) : 0;
	}
	return 0;
}

static __always_inline bool is_epoll_wait(__u32 call)
{
	return call == NR_EPOLL_WAIT || call == NR_EPOLL_PWAIT || call == NR_EPOLL_PWAIT2;
}

/*
 * A wait on an epoll instance was for the file that ended it: the first in the instance's list of
 * ready files, which the thread has yet to look at. If none is ready (a timeout, a signal), it was
 * for the instance itself.
 */
static __noinline bool name_ready_file(struct wait *wait, struct task_struct *task)
{
	struct file *file = file_of(task, (__u32)wait->fd);
	struct eventpoll *poll = (struct eventpoll *)BPF_CORE_READ(file, private_data);
	struct list_head *first = BPF_CORE_READ(poll, rdllist.next);
	struct epitem *item;
	struct inode *inode;

	if (!bpf_core_field_exists(struct epitem, ffd.file) || !first || first == &poll->rdllist)
		return false;
	item = (void *)first - bpf_core_field_offset(struct epitem, rdllink);
	file = BPF_CORE_READ(item, ffd.file);
	inode = BPF_CORE_READ(file, f_inode);
	if (!inode)
		return false;
	wait->fd = BPF_CORE_READ(item, ffd.fd);
	wait->resource.what = BPF_CORE_READ(inode, i_mode) & FILE_TYPE;
	set_file(&wait->resource, inode);
	return true;
}

/*
 * Names the disk, for a sleep about which the call's arguments say nothing: opens, execs, faults.
 */
static __always_inline void name_disk(struct wait *wait, struct task_struct *task)
{
	if (!wait->bio_device || !BPF_CORE_READ_BITFIELD(task, in_iowait))
		return;
	wait->resource.kind = DEBOX_RESOURCE_DISK;
	wait->resource.device = wait->bio_device;
}

/* A request goes to a device; on a stack of devices the last one does the work. */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(on_bio_queue, struct bio *bio)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct wait *wait;
	__u32 index;

	if (!task->bpf_storage)
		return 0;
	index = index_of(task);
	wait = index ? wait_at(index - 1) : 0;
	if (wait)
		wait->bio_device = bio->bi_bdev->bd_dev;
	return 0;
}

static __always_inline void read_inet_ends(struct socket_ends *ends, struct sock *sock)
{
	__u32 local, peer;

	ends->local_port = BPF_CORE_READ(sock, __sk_common.skc_num);
	ends->peer_port = __builtin_bswap16(BPF_CORE_READ(sock, __sk_common.skc_dport));
	if (ends->family == AF_INET) {
		local = BPF_CORE_READ(sock, __sk_common.skc_rcv_saddr);
		peer = BPF_CORE_READ(sock, __sk_common.skc_daddr);
		__builtin_memcpy(ends->local, &local, sizeof(local));
		__builtin_memcpy(ends->peer, &peer, sizeof(peer));
	} else if (bpf_core_field_exists(sock->__sk_common.skc_v6_daddr)) {
		bpf_core_read(ends->local, sizeof(ends->local),
			      &sock->__sk_common.skc_v6_rcv_saddr);
		bpf_core_read(ends->peer, sizeof(ends->peer), &sock->__sk_common.skc_v6_daddr);
	}
}

/*
 * The process at the other end, by its number, which may long be another process's, and by its name
 * while it lives.
 */
static __always_inline void read_unix_peer(struct socket_ends *ends, struct pid *process)
{
	struct hlist_node *first = BPF_CORE_READ(process, tasks[PIDTYPE_TGID].first);
	struct task_struct *leader;

	ends->peer_tgid = BPF_CORE_READ(process, numbers[0].nr);
	if (!first || !bpf_core_field_exists(struct task_struct, pid_links))
		return;
	leader = (void *)first - bpf_core_field_offset(struct task_struct, pid_links[PIDTYPE_TGID]);
	bpf_core_read_str(ends->peer_comm, sizeof(ends->peer_comm), &leader->comm);
}

/* The address that the socket itself is bound to, or else the one it is connected to. */
static __always_inline void read_unix_ends(struct resource_row *row, struct sock *sock)
{
	struct unix_sock *own = (struct unix_sock *)sock, *peer;
	struct unix_address *address;
	struct pid *process;
	__u32 length;

	if (!bpf_core_type_exists(struct unix_sock))
		return;
	process = BPF_CORE_READ(sock, sk_peer_pid);
	if (process && !for_others)
		read_unix_peer(&row->ends, process);
	address = BPF_CORE_READ(own, addr);
	if (!address) {
		peer = (struct unix_sock *)BPF_CORE_READ(own, peer);
		address = peer ? BPF_CORE_READ(peer, addr) : 0;
	}
	if (!address)
		return;
	length = BPF_CORE_READ(address, len) - sizeof(__u16); /* without the family */
	if (length > sizeof(row->name))
		length = sizeof(row->name);
	bpf_probe_read_kernel(row->name, length, &address->name[0].sun_path);
}

/* For a new row: reads what helps to name the file later, even if its process has ended by then. */
static __noinline int read_names(struct resource_row *row, struct wait *wait, struct thread *thread,
				 struct task_struct *task)
{
	struct sock *sock;
	struct socket *socket;
	struct inode *inode;
	struct dentry *dentry;
	struct file *file = 0;

	if (wait->fd == AT_FDCWD) {
		dentry = BPF_CORE_READ(task, fs, pwd.dentry);
	} else if (wait->fd == FD_NONE) {
		inode = wait->resource.what == LOCK_INODE ? inode_around(thread->resource) : 0;
		dentry = inode ? name_of_inode(inode) : 0;
		if (!dentry)
			return 0;
	} else {
		file = file_of(task, (__u32)wait->fd);
		if (!file)
			return 0;
		dentry = BPF_CORE_READ(file, f_path.dentry);
	}
	inode = BPF_CORE_READ(dentry, d_inode);
	if (BPF_CORE_READ(inode, i_ino) != wait->resource.id)
		return 0; /* another file by now */
	if (!file || wait->resource.kind != DEBOX_RESOURCE_FD ||
	    wait->resource.what != FILE_TYPE_SOCKET) {
		bpf_probe_read_kernel_str(row->name, sizeof(row->name),
					  BPF_CORE_READ(dentry, d_name.name));
		return 0;
	}
	socket = (struct socket *)BPF_CORE_READ(file, private_data);
	sock = BPF_CORE_READ(socket, sk);
	if (!sock)
		return 0;
	row->ends.type = BPF_CORE_READ(socket, type);
	row->ends.family = BPF_CORE_READ(sock, __sk_common.skc_family);
	if (row->ends.family == AF_UNIX)
		read_unix_ends(row, sock);
	else if (row->ends.family == AF_INET || row->ends.family == AF_INET6)
		read_inet_ends(&row->ends, sock);
	return 0;
}

/* Asks the engine for the name while the process exists and is still asleep. */
static __noinline int announce_resource(struct wait *wait, struct thread *thread,
					struct task_struct *task)
{
	struct resource_seen seen = {
		.kind = EVENT_RESOURCE,
		.tgid = shown_tgid(thread, task),
		.tid = for_others ? thread->tid : task->pid,
		.fd = wait->fd,
		.resource = wait->resource,
	};
	__u32 kind = wait->resource.kind;

	if (!want_report || kind == DEBOX_RESOURCE_DISK || kind == RESOURCE_SEVERAL ||
	    (kind != DEBOX_RESOURCE_FUTEX && !wait->resource.device))
		return 0;
	if (kind != DEBOX_RESOURCE_FUTEX && wait->resource.what == FILE_TYPE_SOCKET)
		return 0;
	if (bpf_map_lookup_elem(&announced, &wait->resource))
		return 0;
	if (bpf_map_update_elem(&announced, &wait->resource, &seen.tid, BPF_NOEXIST))
		return 0; /* another CPU was first, or there are too many to name */
	if (wait->fd == FD_NONE && kind == DEBOX_RESOURCE_LOCK)
		return announce_directory(&wait->resource, inode_around(thread->resource),
					  seen.tgid);
	if (bpf_ringbuf_output(&events, &seen, sizeof(seen), 0))
		COUNT_LOST(rows);
	return 0;
}

static __noinline int add_resource_row(struct resource_key *key, struct wait *wait,
				       struct thread *thread, struct task_struct *task,
				       struct ended_sleeps *ended)
{
	struct resource_row *fresh, *row;
	__u32 zero = 0;

	fresh = bpf_map_lookup_elem(&resource_scratch, &zero);
	if (!fresh)
		return 0;
	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->count = ended->count;
	fresh->blocked_ns = ended->blocked_ns;
	if (resources_named >= RESOURCES_NAMED_MAX) {
		key->resource.id = 0;
		key->resource.device = 0;
	} else {
		__sync_fetch_and_add(&resources_named, 1);
		if (wait->resource.kind != DEBOX_RESOURCE_DISK &&
		    (wait->resource.kind == DEBOX_RESOURCE_FD || wait->resource.device))
			read_names(fresh, wait, thread, task);
	}
	if (!bpf_map_update_elem(&resource_rows, key, fresh, BPF_NOEXIST))
		return 0;
	row = bpf_map_lookup_elem(&resource_rows, key);
	if (!row) {
		COUNT_LOST(rows);
		return 0;
	}
	__sync_fetch_and_add(&row->count, ended->count);
	__sync_fetch_and_add(&row->blocked_ns, ended->blocked_ns);
	return 0;
}

/* Adds sleeps that have ended to the row of what they waited on. */
static __noinline int add_ended(struct thread *thread, struct task_struct *task, struct wait *wait,
				struct ended_sleeps *ended)
{
	struct resource_key key = {
		.stack = ended->stack,
		.call = thread->call,
		.lock_flags = ended->lock_flags,
		.resource = wait->resource,
	};
	struct resource_row *row;

	if (key.resource.kind == DEBOX_RESOURCE_NONE)
		return 0;
	row = bpf_map_lookup_elem(&resource_rows, &key);
	if (!row)
		return add_resource_row(&key, wait, thread, task, ended);
	__sync_fetch_and_add(&row->count, ended->count);
	__sync_fetch_and_add(&row->blocked_ns, ended->blocked_ns);
	return 0;
}

/*
 * Keeps a sleep for the end of its call. Returns 0 if the call slept elsewhere before: only one
 * place is kept. Not static, so that it is verified once.
 */
__noinline int keep_for_later(struct wait *wait)
{
	struct ended_sleeps *later, *now;

	if (!wait)
		return 0;
	later = &wait->later;
	now = &wait->now;
	if (later->calls != now->calls || !later->count) {
		*later = *now; /* left over from a call whose end was not seen, if anything */
		return 1;
	}
	if (later->stack != now->stack || later->lock_flags != now->lock_flags)
		return 0;
	later->count += now->count;
	later->blocked_ns += now->blocked_ns;
	return 1;
}

/* Counts the sleep that has ended, or keeps it for the end of its call. */
static __noinline int add_resource(struct thread *thread, struct task_struct *task,
				   struct wait *wait, __u64 stack)
{
	wait->now.stack = stack;
	wait->now.blocked_ns = thread->sleep_ns;
	wait->now.calls = thread->calls;
	wait->now.count = 1;
	wait->now.lock_flags = thread->lock_flags;
	if (!user_tap && wait->resource.kind == RESOURCE_SEVERAL && keep_for_later(wait))
		return 0;
	return add_ended(thread, task, wait, &wait->now);
}

/*
 * At the end of a call that slept for one of several descriptors: counts its sleeps for the one
 * that is ready. If none is, as after a timeout, only the number of descriptors is known.
 */
static __noinline int settle_polled(struct thread *thread, struct task_struct *task, long ret)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct wait *wait = wait_at(thread->index);
	__s32 fd;

	if (!regs || !wait || wait->tid != thread->tid || !wait->later.count ||
	    wait->later.calls != thread->calls)
		return 0;
	fd = ret > 0 ? ready_fd(regs, thread->call) : FD_NONE;
	if (fd >= 0 && set_fd(wait, task, fd))
		announce_resource(wait, thread, task);
	add_ended(thread, task, wait, &wait->later);
	if (!want_history) /* else keep_polled() needs it for the call's record */
		wait->later.count = 0;
	return 0;
}

#endif
