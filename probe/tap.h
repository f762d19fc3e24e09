/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * tap.h: the kernel tap, where a call starts and ends.
 *
 * Every process on the machine pays for these two tracepoints, so they are attached only while a
 * session needs them.
 */
#ifndef PROBE_TAP_H
#define PROBE_TAP_H

#include "calls.h"
#include "life.h"
#include "switch.h"

#define NR_EXECVE 59
#define NR_EXECVEAT 322

SEC("tp_btf/sys_enter")
int BPF_PROG(on_sys_enter, struct pt_regs *regs, long id)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = thread_of(task);
	__u64 now;

	if (!thread)
		return 0;
	begin_work(thread);
	now = bpf_ktime_get_ns();
	if (thread->state == THREAD_ARMED) {
		if (id != NR_EXECVE && id != NR_EXECVEAT) {
			end_work(thread);
			return 0;
		}
		begin_life(thread, task, now, MODE_RUNNING);
	}
	if (thread->mode != MODE_RUNNING)
		resume_unseen(thread, task, now);
	if (thread->call != CALL_NONE) {
		/* The exit was not seen (monitoring began inside the call): all of it is partial.
		 */
		if (thread->parted)
			close_part(thread, PART_CPU, now);
		close_call(thread, index_of(task) - 1, task, regs, ctx, now, 0);
	} else {
		if (thread->parted)
			close_part(thread, PART_CPU, now);
		close_between(thread, ctx, now);
	}
	thread->call = call_number(task, id);
	snapshot(thread, task);
	end_work(thread);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 index = index_of(task);
	struct thread *thread;
	__u64 now;

	if (!index)
		return 0;
	thread = thread_at(index - 1);
	if (!thread || thread->state != THREAD_LIVE)
		return 0;
	begin_work(thread);
	now = bpf_ktime_get_ns();
	if (thread->mode != MODE_RUNNING)
		resume_unseen(thread, task, now);
	if (thread->call == CALL_NONE) {
		/* A new child's first return, or a call that seccomp refused before it was seen. */
		if (thread->flags & THREAD_BORN)
			thread->flags &= ~THREAD_BORN;
		else
			refused_call(thread, task, regs, ret, now);
		end_work(thread);
		return 0;
	}
	if (thread->parted)
		close_part(thread, PART_CPU, now);
	close_call(thread, index - 1, task, regs, ctx, now, ret);
	end_work(thread);
	return 0;
}

#endif
