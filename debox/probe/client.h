/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * client.h: what is different in a session of the broker, whose reader has no privilege.
 *
 * A client is a process and its children. It has slots of its own, which no other process maps. Of
 * other tasks it sees only that they exist: it gets opaque names instead of kernel addresses, no
 * names or numbers of other users' tasks, and the numbers of its own tasks as its PID namespace has
 * them. A task belongs to the client only while all its user and group ids are the client's and
 * other processes of that user may look into it.
 */
#ifndef PROBE_CLIENT_H
#define PROBE_CLIENT_H

#include "state.h"

#define ANOTHER_USER "(another user)"

static __always_inline struct client *client_at(__u32 number)
{
	return bpf_map_lookup_elem(&clients, &number);
}

static __always_inline struct client *client_of(struct thread *thread)
{
	return client_at(thread->client);
}

#define ROTATE(word, by) (((word) << (by)) | ((word) >> (64 - (by))))

#define SIP_ROUND                                                                                  \
	do {                                                                                       \
		a += b;                                                                            \
		b = ROTATE(b, 13) ^ a;                                                             \
		a = ROTATE(a, 32);                                                                 \
		c += d;                                                                            \
		d = ROTATE(d, 16) ^ c;                                                             \
		a += d;                                                                            \
		d = ROTATE(d, 21) ^ a;                                                             \
		c += b;                                                                            \
		b = ROTATE(b, 17) ^ c;                                                             \
		c = ROTATE(c, 32);                                                                 \
	} while (0)

/*
 * A name for a word that reveals nothing about the word: SipHash-1-3 (Aumasson and Bernstein, 2012)
 * of the word under the session's key. A plain hash of addresses could be inverted.
 */
static __always_inline __u64 secret_name(__u64 word)
{
	const __u64 length = 8ULL << 56;
	__u64 a = name_key[0] ^ 0x736f6d6570736575ULL, b = name_key[1] ^ 0x646f72616e646f6dULL;
	__u64 c = name_key[0] ^ 0x6c7967656e657261ULL, d = name_key[1] ^ 0x7465646279746573ULL;

	d ^= word;
	SIP_ROUND;
	a ^= word;
	d ^= length;
	SIP_ROUND;
	a ^= length;
	c ^= 0xff;
	SIP_ROUND;
	SIP_ROUND;
	SIP_ROUND;
	return a ^ b ^ c ^ d;
}

/* The name under which the session's reader sees a kernel address, or a hash of addresses. */
static __always_inline __u64 shown_address(__u64 address)
{
	return for_others && address ? secret_name(address) : address;
}

/*
 * The same for objects on the heap. Two clients must not find out that they wait for the same
 * object.
 */
static __always_inline __u64 shown_object(struct thread *thread, __u64 address)
{
	struct client *client;

	if (!for_others || !address)
		return address;
	client = client_of(thread);
	return client ? secret_name(address ^ client->salt) : 0;
}

static __always_inline unsigned long address_space_flags(struct mm_struct *mm)
{
	struct mm_struct___bitmap *bitmap = (void *)mm;
	struct mm_struct___word *word = (void *)mm;

	if (bpf_core_field_exists(word->flags))
		return BPF_CORE_READ(word, flags);
	if (bpf_core_field_exists(bitmap->flags))
		return BPF_CORE_READ(bitmap, flags.__mm_flags[0]);
	return 0; /* not known: treated as not dumpable */
}

/* Whether other processes of its user may look into the task. */
static __always_inline bool is_dumpable(struct task_struct *task, struct mm_struct *mm)
{
	struct task_struct___exec *executing = (void *)task;

	if (bpf_core_field_exists(executing->exec_state))
		return BPF_CORE_READ(executing, exec_state, dumpable) == TASK_DUMPABLE_OWNER;
	return (address_space_flags(mm) & DUMPABLE_MASK) == DUMPABLE_BY_USER;
}

/* Whether all ids of the task are those of this user, and the user's processes may look into it. */
static __always_inline bool is_users_own(struct task_struct *task, __u32 uid)
{
	const struct cred *cred = BPF_CORE_READ(task, real_cred);
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	__u32 gid = BPF_CORE_READ(cred, gid.val);

	if (BPF_CORE_READ(cred, uid.val) != uid || BPF_CORE_READ(cred, euid.val) != uid ||
	    BPF_CORE_READ(cred, suid.val) != uid || BPF_CORE_READ(cred, fsuid.val) != uid)
		return false;
	if (BPF_CORE_READ(cred, egid.val) != gid || BPF_CORE_READ(cred, sgid.val) != gid)
		return false;
	return mm && is_dumpable(task, mm);
}

/*
 * Whether data read from the current task's memory may be passed on. Call this after reading: a
 * process forbids others to look into it before it stores a secret.
 */
static __always_inline bool may_be_read(struct task_struct *task)
{
	struct mm_struct *mm;

	if (!for_others)
		return true;
	mm = BPF_CORE_READ(task, mm);
	return mm && is_dumpable(task, mm);
}

static __always_inline bool is_clients_own(struct task_struct *task, struct client *client)
{
	return client && client->state == CLIENT_LIVE && is_users_own(task, client->uid);
}

/* The number of a process or thread at a level of namespaces. */
static __always_inline struct upid *number_at(struct pid *pid, __u32 level)
{
	return (void *)pid + bpf_core_field_offset(struct pid, numbers) +
	       level * bpf_core_type_size(struct upid);
}

/* Learns the PID namespace whose numbers the client knows: that of its first thread. */
static __always_inline void learn_namespace(struct client *client, struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level);

	client->level = level;
	client->namespace = (__u64)BPF_CORE_READ(number_at(pid, level), ns);
}

/* The task's number as the client knows it; 0 if it cannot see the task. */
static __always_inline __u32 number_for(struct client *client, struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	struct upid *number;

	if (!pid || BPF_CORE_READ(pid, level) < client->level)
		return 0;
	number = number_at(pid, client->level);
	if ((__u64)BPF_CORE_READ(number, ns) != client->namespace)
		return 0;
	return BPF_CORE_READ(number, nr);
}

/* The numbers under which a new thread is known to the session's reader. */
static __always_inline void number_thread(struct thread *thread, struct task_struct *task)
{
	struct client *client = for_others ? client_of(thread) : 0;

	thread->tid = client ? number_for(client, task) : task->pid;
	thread->tgid = client ? number_for(client, BPF_CORE_READ(task, group_leader)) : task->tgid;
}

/*
 * The number under which the thread's reader knows a task. 0 if the task is another user's, or
 * outside the reader's PID namespace, which counts as foreign, too.
 */
static __always_inline __u32 known_number(struct thread *thread, struct task_struct *task)
{
	struct client *client;

	if (!for_others)
		return BPF_CORE_READ(task, pid);
	client = client_of(thread);
	return client && is_users_own(task, client->uid) ? number_for(client, task) : 0;
}

/*
 * The same for a task that may be ending. Such a task no longer shows whose it is, but if it is the
 * reader's it is known already.
 */
static __always_inline __u32 number_of_waker(struct thread *thread, struct task_struct *waker)
{
	struct thread *other;

	if (!for_others)
		return waker->pid;
	other = thread_of(waker);
	if (other && other->state == THREAD_LIVE && other->client == thread->client)
		return other->tid;
	return known_number(thread, waker);
}

/* A task's name, as far as the reader may know it. */
static __always_inline void show_comm(char *to, struct task_struct *task, __u32 number)
{
	if (for_others && !number)
		__builtin_memcpy(to, ANOTHER_USER, sizeof(ANOTHER_USER));
	else
		copy_comm(to, task);
}

/* The key under which waiters are counted: each client's waiters are counted separately. */
static __always_inline __u64 counted_resource(struct thread *thread, __u64 resource)
{
	struct client *client;

	if (!shared_slots || !resource)
		return resource;
	client = client_of(thread);
	return client ? resource ^ client->salt : 0;
}

/* Takes the lowest free slot of a client for the thread. */
static __always_inline bool take_slot(struct client *client, struct thread *thread)
{
	__u64 used, bit;
	__u32 slot;

	for (__u32 word = 0; word < CLIENT_WORDS; word++) {
		for (int tries = 0; tries < 4; tries++) {
			used = *(volatile __u64 *)&client->used[word];
			bit = ~used & (used + 1);
			slot = word * 64 + floor_log2(bit);
			if (!bit)
				break;
			if (slot >= client->slots)
				return false;
			if (__sync_fetch_and_or(&client->used[word], bit) & bit)
				continue;
			thread->slot = slot;
			__sync_fetch_and_add(&client->live, 1);
			return true;
		}
	}
	return false;
}

static __always_inline void give_slot_back(struct thread *thread)
{
	struct client *client = client_of(thread);
	__u32 word = thread->slot / 64;

	if (!client || word >= CLIENT_WORDS)
		return;
	__sync_fetch_and_and(&client->used[word], ~(1ULL << (thread->slot % 64)));
	__sync_fetch_and_add(&client->live, -1);
}

#endif
