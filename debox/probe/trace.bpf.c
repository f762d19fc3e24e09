/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * trace.bpf.c: the call tree inside the kernel, an object of its own beside debox.bpf.c.
 *
 * Functions are seen in one of three ways, whichever the kernel offers: one probe for entry and
 * return (kprobe.session, 6.10), one for each (kprobe.multi, 5.18), or a pair for every function
 * (fentry and fexit; loaded once for each function, see debox/engine/src/trace/pairs.rs). Where it
 * offers none, samples and tracepoints stand in for it.
 *
 *   trace_shared.h  tables' layouts    trace_tree.h     functions, their nesting and time
 *   trace_state.h   maps and settings  trace_samples.h  samples and tracepoints
 */
#include "trace_tree.h"
#include "trace_samples.h"

/* 6.10 to 6.x take nothing, 7.x the context; the one that is not there is never called. */
extern bool bpf_session_is_return(void) __ksym __weak;
extern bool bpf_session_is_return___ctx(void *ctx) __ksym __weak;

SEC("kprobe.session")
int on_function(struct pt_regs *ctx)
{
	__u64 function = bpf_get_func_ip(ctx);
	bool returns;

	if (bpf_ksym_exists(bpf_session_is_return___ctx))
		returns = bpf_session_is_return___ctx(ctx);
	else
		returns = bpf_session_is_return();
	if (returns) {
		leave_function(function);
		return 0;
	}
	return !enter_function(function); /* 1: leave its return alone */
}

SEC("kprobe.multi")
int on_enter(struct pt_regs *ctx)
{
	enter_function(bpf_get_func_ip(ctx));
	return 0;
}

SEC("kretprobe.multi")
int on_return(struct pt_regs *ctx)
{
	leave_function(bpf_get_func_ip(ctx));
	return 0;
}

SEC("fentry/bpf_fentry_test1")
int on_enter_one(void *ctx)
{
	enter_function(bpf_get_func_ip(ctx));
	return 0;
}

SEC("fexit/bpf_fentry_test1")
int on_return_one(void *ctx)
{
	leave_function(bpf_get_func_ip(ctx));
	return 0;
}
