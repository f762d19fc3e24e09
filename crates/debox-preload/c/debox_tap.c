/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * debox_tap.c: the end of a tapped call, and the rare paths: nesting, abandonment.
 *
 * Everything here is async-signal-safe. The order of stores matters to two readers: the probes,
 * which run on this thread whenever it leaves the CPU and look at tap_call, and other threads, which
 * look at the record's sequence.
 */
#include "debox_tap.h"

/* CLOCK_MONOTONIC at a value of the time-stamp counter. */
static __u64 monotonic(__u64 tsc)
{
	const volatile struct debox_tap_clock *clock = debox_tap_process.clock;
	__u64 base_tsc, base_ns, mult;
	__u32 sequence;

	do {
		sequence = clock->sequence;
		DEBOX_BARRIER();
		base_tsc = clock->base_tsc;
		base_ns = clock->base_ns;
		mult = clock->mult;
		DEBOX_BARRIER();
	} while (DEBOX_UNLIKELY(sequence & 1 || sequence != clock->sequence));
	return base_ns + (__s64)(((__int128)(__s64)(tsc - base_tsc) * (__int128)mult) >> 32);
}

static __u32 bucket_of(__u64 ns)
{
	int log;
	__u32 bucket;

	if (ns < 32)
		return 0;
	log = 63 - __builtin_clzll(ns);
	bucket = ((log - 5) << 3) + ((ns >> (log - 3)) & 7) + 1;
	return bucket < DEBOX_TAP_BUCKETS ? bucket : DEBOX_TAP_BUCKETS - 1;
}

static int is_restart(__s64 ret)
{
	return ret == -512 || ret == -513 || ret == -514 || ret == -516;
}

/* The record that the open call will complete. */
static struct debox_record *open_record(struct debox_slot *slot)
{
	return &slot->history[slot->completed % DEBOX_HISTORY_MAX];
}

static void add_to_row(const struct debox_tap *tap, const struct debox_record *record)
{
	struct debox_tap_row *row;
	const __u64 *parts = &record->budget.cpu_ns;
	int i;

	if (!debox_tap_rows || tap->call >= DEBOX_TAP_ROWS)
		return;
	row = &debox_tap_rows[tap->call];
	row->calls++;
	if (record->ret < 0 && record->ret >= -4095) {
		if (is_restart(record->ret))
			row->restarts++;
		else
			row->errors++;
	}
	row->faults += record->faults_minor;
	if (record->wall_ns > row->max_ns)
		row->max_ns = record->wall_ns;
	row->histogram[bucket_of(record->wall_ns)]++;
	if (record->budget.cpu_ns == record->wall_ns) {
		row->parts_ns[0] += record->wall_ns;
		return;
	}
	for (i = 0; i < 6; i++)
		row->parts_ns[i] += parts[i];
}

/*
 * The probes have closed every part between the first and the last time they saw the call; what
 * came before and after is added here. The stamps are all of one clock, so the parts add up.
 */
static void close_budget(const struct debox_slot *slot, struct debox_record *record, __u64 stop_ns)
{
	struct debox_budget *budget = &record->budget;
	struct debox_outside *outside = &record->outside;
	__s64 last = (__s64)(stop_ns - slot->tap_last_in_ns);
	__s64 cpu = (__s64)(slot->tap_first_out_ns - record->start_ns) + (__s64)budget->cpu_ns;

	if (slot->tap_handler)
		outside->handler_ns += last > 0 ? last : 0;
	else
		cpu += last;
	/* The two clocks agree within some tens of nanoseconds only: never below zero. */
	budget->cpu_ns = cpu > 0 ? cpu : 0;
	budget->outside_ns = outside->handler_ns + outside->stopped_ns + outside->exit_work_ns +
			     outside->preempted_ns + outside->other_ns;
	record->wall_ns = budget->cpu_ns + budget->blocked_ns + budget->runqueue_ns +
			  budget->preempted_ns + budget->outside_ns;
}

void debox_tap_finish(struct debox_tap *tap, __u64 stop, __s64 ret)
{
	struct debox_slot *slot = tap->slot;
	struct debox_record *record = open_record(slot);
	int mine = slot->tap_call == tap->call + 1;
	const __u64 *parts = &record->budget.cpu_ns;
	int i;

	slot->tap_call = 0; /* from here on the probes leave the record alone */
	DEBOX_BARRIER();
	if (!(record->sequence & 1)) {
		record->sequence++;
		record->sleeps_used = 0;
		record->sleeps_lost = 0;
	}
	DEBOX_BARRIER();
	record->version = DEBOX_VERSION;
	record->size = sizeof(*record);
	record->call = tap->call;
	record->abi = DEBOX_ABI_X86_64;
	record->flags = DEBOX_USER_TAP | (tap->outer ? DEBOX_NESTED : 0) |
			(is_restart(ret) ? DEBOX_RESTARTED : 0);
	record->ret = ret;
	record->args[0] = tap->args[0];
	record->args[1] = tap->args[1];
	record->args[2] = tap->args[2];
	record->start_ns = monotonic(tap->start);
	record->faults_minor = slot->tap_faults - tap->faults;
	record->faults_major = 0;
	record->trace_used = 0;
	if (!slot->tap_touched) {
		record->wall_ns =
			((unsigned __int128)(stop - tap->start) * debox_tap_process.clock->mult) >> 32;
		record->budget = (struct debox_budget){.cpu_ns = record->wall_ns};
		if (DEBOX_UNLIKELY(!mine)) {
			/* What the probes had added is gone with the stamps: say so, do not guess. */
			record->budget = (struct debox_budget){.outside_ns = record->wall_ns};
			record->outside = (struct debox_outside){.other_ns = record->wall_ns};
		}
		slot->tap_totals_ns[mine ? 0 : 5] += record->wall_ns;
	} else {
		close_budget(slot, record, monotonic(stop));
		for (i = 0; i < 6; i++)
			slot->tap_totals_ns[i] += parts[i];
	}
	record->number = ++slot->tap_calls;
	add_to_row(tap, record);
	DEBOX_BARRIER();
	record->sequence++;
	DEBOX_BARRIER();
	slot->completed++;
	if (DEBOX_UNLIKELY(tap->outer != 0)) {
		/* Give the interrupted call its record back, in the next place. */
		struct debox_tap_saved *saved = tap->outer;
		__u32 sequence;

		record = open_record(slot);
		sequence = record->sequence | 1;
		record->sequence = sequence;
		DEBOX_BARRIER();
		saved->record.sequence = sequence;
		__builtin_memcpy(record, &saved->record, sizeof(*record));
		slot->tap_first_out_ns = saved->first_out_ns;
		slot->tap_last_in_ns = saved->last_in_ns;
		slot->tap_frame = saved->frame;
		slot->tap_caller = saved->caller;
		slot->tap_handler = saved->handler;
		slot->tap_touched = saved->touched;
		DEBOX_BARRIER();
		slot->tap_call = saved->call;
	}
}

void debox_tap_nest(struct debox_tap *tap, struct debox_tap_saved *saved)
{
	struct debox_slot *slot = tap->slot;
	struct debox_record *record = open_record(slot);

	saved->call = slot->tap_call;
	slot->tap_call = 0;
	DEBOX_BARRIER();
	saved->touched = slot->tap_touched;
	saved->handler = slot->tap_handler;
	saved->first_out_ns = slot->tap_first_out_ns;
	saved->last_in_ns = slot->tap_last_in_ns;
	saved->frame = slot->tap_frame;
	saved->caller = slot->tap_caller;
	__builtin_memcpy(&saved->record, record, sizeof(*record));
	if (record->sequence & 1)
		record->sequence++; /* the nested call starts it afresh */
	tap->outer = saved;
}

void debox_tap_abandon(struct debox_slot *slot)
{
	struct debox_record *record = open_record(slot);

	slot->tap_call = 0;
	DEBOX_BARRIER();
	slot->tap_abandoned++;
	if (record->sequence & 1)
		record->sequence++;
}
