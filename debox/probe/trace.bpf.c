/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * trace.bpf.c: the call tree inside the kernel, an object of its own beside debox.bpf.c.
 *
 * Functions are observed in one of three ways, depending on the kernel: one probe for entry and
 * return (kprobe.session, 6.10), one for each (kprobe.multi, 5.18), or a pair for every function
 * (fentry and fexit; loaded once for each function, see debox/engine/src/trace/pairs.rs). If the
 * kernel offers none of these, samples and tracepoints are used instead.
 *
 *   trace_shared.h  tables' layouts    trace_tree.h     functions, their nesting and time
 *   trace_state.h   maps and settings  trace_samples.h  samples and tracepoints
 */
#include "trace_tree.h"
#include "trace_samples.h"

/*
 * Takes no argument in 6.10 to 6.x, and the context in 7.x. The form that does not exist is never
 * called.
 */
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
	return !enter_function(function); /* 1: do not probe its return */
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
