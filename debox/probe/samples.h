/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * samples.h: where monitored threads are while they compute (detail `samples`).
 *
 * The clock of each CPU interrupts at a fixed period whatever runs there. If that is a monitored
 * thread, its user stack goes to the engine with the registers, to be unwound as the stacks of
 * calls are (userstack.h). Nearly every stack is new, as the instructions differ, so it is not
 * looked up among the known ones: at some hundred samples a second it costs less to send all.
 *
 * What is mapped at the instruction is looked up for the first sample of a program, and again when
 * the program has mapped more code: the look-up locks the memory map, and from an interrupt it can
 * be unlocked only by a second one.
 *
 * A sample that finds a soft interrupt on top of the thread says nothing about the thread. Hard
 * interrupts are not sampled: they keep the clock's own interrupt out until they have ended.
 */
#ifndef PROBE_SAMPLES_H
#define PROBE_SAMPLES_H

#include "context.h"
#include "callsites.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} samples SEC(".maps");

/* Programs of which the engine has received a sample, so that it knows what they map. */
struct sampled_program {
	__u32 tgid, image;
	__u64 code_pages;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct sampled_program);
	__type(value, __u8);
} sampled_programs SEC(".maps");

__u64 samples_lost;	     /* could not be sent */
__u64 samples_in_interrupts; /* in soft interrupts on top of monitored threads */

/* Whether the engine has yet to learn what the thread's program maps. */
static __always_inline bool is_new_program(struct thread *thread, struct stack_ask *ask)
{
	struct sampled_program program = {
		.tgid = thread->tgid,
		.image = ask->image,
		.code_pages = ask->code_pages,
	};
	__u8 known = 1;

	if (bpf_map_lookup_elem(&sampled_programs, &program))
		return false;
	bpf_map_update_elem(&sampled_programs, &program, &known, BPF_ANY);
	return true;
}

/* Where the sample was taken, instead of the stack's name: the thread, and the call it was in. */
static __always_inline __u64 place_of_sample(struct thread *thread, struct pt_regs *regs,
					     bool is_compat)
{
	__u32 call = CALL_NONE;

	if ((long)regs->orig_ax >= 0)
		call = (regs->orig_ax & 0xffff) | (is_compat ? CALL_IA32 : 0);
	return (__u64)thread->tid << 32 | call;
}

SEC("perf_event")
int on_clock(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = thread_of(task);
	__u32 which = SCRATCH_OF_SAMPLES;
	struct ask_scratch *scratch;
	struct pt_regs *regs;
	/* The engine finds most samples at its next poll. */
	__u64 place, wake_flags = BPF_RB_NO_WAKEUP;
	int context;

	if (!thread || thread->state != THREAD_LIVE)
		return 0;
	context = preempt_count(task);
	if (context != -1 && context & SERVING_SOFTIRQ) {
		__sync_fetch_and_add(&samples_in_interrupts, 1);
		return 0;
	}
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	scratch = bpf_map_lookup_elem(&ask_scratch, &which);
	if (!scratch || !regs)
		return 0;
	/* In a fault, or interrupted in user mode, the thread is at an instruction of its own. */
	note_stack(scratch, task, regs, (long)regs->orig_ax < 0);
	note_program_of(scratch, thread, task);
	if (regs->orig_ax == NR_EXECVE || regs->orig_ax == NR_EXECVEAT) {
		/* The registers are the old program's, the memory may be the new one's. */
		scratch->ask.ip = 0;
		scratch->ask.bytes = 0;
	} else if (is_new_program(thread, &scratch->ask)) {
		/* What is mapped can be read only while the process lives: the engine wakes up. */
		note_mapping_at_ip(scratch, task, which);
		wake_flags = BPF_RB_FORCE_WAKEUP;
	}
	place = place_of_sample(thread, regs, scratch->ask.is_compat);
	if (send_ask(scratch, place, &samples, wake_flags))
		__sync_fetch_and_add(&samples_lost, 1);
	return 0;
}

#endif
