/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * title.h: the title of a process: the words of its command line.
 *
 * The words lie in the process's own memory, and a program may write a title over them
 * (setproctitle). A process may have ended by the time the engine asks for them, so the probes send
 * them when a program begins and when a process ends itself. Changes in between are read by the
 * engine, in /proc.
 */
#ifndef PROBE_TITLE_H
#define PROBE_TITLE_H

#include "client.h"

#define PAGE_BYTES 4096

/*
 * Sends the words of the current process, as they are now. Best effort: pages that are not in
 * memory are not waited for.
 */
__noinline int send_title(struct thread *thread, __u32 reason)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	__u64 start, room, bytes = TITLE_BYTES;
	struct title_seen *seen;

	if (!thread || !mm || !want_report)
		return 0;
	start = BPF_CORE_READ(mm, arg_start);
	/* A long title extends into the memory of the environment. */
	room = BPF_CORE_READ(mm, env_end) - start;
	seen = bpf_ringbuf_reserve(&events, sizeof(*seen), 0);
	if (!seen)
		return 0;
	seen->kind = EVENT_TITLE;
	seen->tgid = thread->tgid;
	seen->parent = 0;
	seen->reason = reason;
	seen->at_ns = bpf_ktime_get_ns();
	seen->words_bytes = BPF_CORE_READ(mm, arg_end) - start;
	if (bytes > room)
		bytes = room;
	barrier_var(bytes); /* else clang removes the check that the verifier needs */
	if (bytes > TITLE_BYTES || bpf_probe_read_user(seen->words, bytes, (void *)start)) {
		/* The next page may not be there. */
		room = PAGE_BYTES - start % PAGE_BYTES;
		if (bytes > room)
			bytes = room;
		barrier_var(bytes);
		if (bytes > TITLE_BYTES || bpf_probe_read_user(seen->words, bytes, (void *)start))
			bytes = 0;
	}
	seen->bytes = may_be_read(task) ? bytes : 0;
	bpf_ringbuf_submit(seen, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Reports that a new process has its parent's title. */
__noinline int send_birth(struct thread *child, struct thread *parent)
{
	struct title_seen *seen;

	if (!child || !parent || !want_report)
		return 0;
	seen = bpf_ringbuf_reserve(&events, sizeof(*seen), 0);
	if (!seen)
		return 0;
	seen->kind = EVENT_TITLE;
	seen->tgid = child->tgid;
	seen->parent = parent->tgid;
	seen->reason = TITLE_OF_PARENT;
	seen->at_ns = bpf_ktime_get_ns();
	seen->words_bytes = 0;
	seen->bytes = 0;
	bpf_ringbuf_submit(seen, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
