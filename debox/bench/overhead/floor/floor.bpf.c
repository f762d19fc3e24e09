/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * floor.bpf.c: programs at the events that DeBox uses, which do nothing or only read the clock.
 */
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

SEC("tp_btf/sys_enter")
int enter_nothing(void *ctx)
{
	return 0;
}

SEC("tp_btf/sys_exit")
int exit_nothing(void *ctx)
{
	return 0;
}

SEC("tp_btf/sys_enter")
int enter_clock(void *ctx)
{
	bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sys_exit")
int exit_clock(void *ctx)
{
	bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_switch")
int switch_nothing(void *ctx)
{
	return 0;
}

SEC("tp_btf/sched_waking")
int waking_nothing(void *ctx)
{
	return 0;
}
