//! Configures the probes before they are loaded: parts that are not needed are left out, and unused
//! tables are small.

use anyhow::{Context, Result};
use libbpf_rs::skel::OpenSkel;

use super::programs::{choose, chosen_for_gate, Needs};
use crate::calls;
use crate::gate::Gate;
use crate::kernel;
use crate::labels::Labels;
use crate::options::{Options, Role, Tap};
use crate::random::random;
use crate::skeleton::OpenDeboxSkel;
use crate::trigger;

/// Entries of an unused cache: each CPU needs a few.
const SMALL_CACHE: u32 = 1024;

/// Takes a place at the gate, and replaces the session's maps by the gate's.
pub(super) fn join_gate(open: &mut OpenDeboxSkel) -> Result<Gate> {
    let gate = Gate::join(&chosen_for_gate(open.open_object()))?;
    let [tasks, contended, waiters, runs] = gate.shared_maps();
    open.maps.gate_tasks.reuse_fd(tasks)?;
    open.maps.contended_lock.reuse_fd(contended)?;
    open.maps.lock_waiters.reuse_fd(waiters)?;
    open.maps.cpu_runs.reuse_fd(runs)?;
    let rodata = open.maps.rodata_data.as_deref_mut();
    rodata.context("no .rodata in the probes")?.gate_bit = gate.bit();
    Ok(gate)
}

/// Sets the options and the sizes of the tables.
pub(super) fn configure(open: &mut OpenDeboxSkel, needs: &Needs) -> Result<()> {
    choose(open.open_object_mut(), needs);
    let options = &needs.options;
    let rodata = open
        .maps
        .rodata_data
        .as_deref_mut()
        .context("no .rodata in the probes")?;
    rodata.want_sleeps = options.detail.sleeps;
    // Without a report, nothing would unwind the stacks.
    rodata.want_callsites = options.detail.callsites && options.report;
    rodata.want_irq = options.detail.irq;
    rodata.want_io = options.detail.io;
    rodata.want_cpu = options.asks_for_cpus();
    rodata.adopt_sleeps = options.adopts_sleeps;
    rodata.one_process = options.one_process;
    rodata.want_report = options.report;
    rodata.want_records = options.max_records > 0 && !options.user_stamps;
    rodata.want_history = options.history_bytes > 0;
    rodata.want_live = options.live;
    rodata.want_stamps = options.user_stamps;
    rodata.slow_ns = options.slow_ns;
    rodata.user_tap = options.tap == Tap::User;
    rodata.max_threads = options.max_threads;
    rodata.max_records = options.max_records;
    for (call, masks) in rodata.label_arg_masks.iter_mut().enumerate() {
        *masks = Labels::builtin().arg_masks(&calls::name(call as u32));
    }
    trigger::configure(open, &options.triggers, options.max_threads)?;
    let rodata = open
        .maps
        .rodata_data
        .as_deref_mut()
        .context("no .rodata in the probes")?;
    let facts = kernel::type_facts();
    rodata.want_steal = facts.is_some_and(|facts| facts.tells_steal);
    rodata.keep_cpu = needs.calls_are_preempted;
    if let Some(area) = facts.and_then(|facts| facts.per_cpu_area.as_ref()) {
        rodata.runqueues_offset = area.runqueues;
        rodata.current_task_offset = area.current_task;
        rodata.preempt_count_offset = area.preempt_count;
        rodata.hardirq_or_nmi = area.hardirq_or_nmi;
    }
    open.maps.threads.set_max_entries(options.max_threads)?;
    open.maps
        .free_threads
        .set_max_entries(options.max_threads)?;
    open.maps
        .slots
        .set_max_entries(options.max_records.max(1))?;
    open.maps
        .slot_tids
        .set_max_entries(options.max_records.max(1))?;
    if options.history_bytes > 0 {
        open.maps.history.set_max_entries(options.history_bytes)?;
    }
    if !options.report {
        // Tables that only a report needs.
        open.maps.events.set_max_entries(4096)?;
        open.maps.site_rows.set_max_entries(1)?;
        open.maps.user_stacks.set_max_entries(1)?;
        open.maps.wrappers.set_max_entries(SMALL_CACHE)?;
    }
    configure_live(open, options)?;
    if !options.detail.callsites && options.triggers.is_empty() {
        open.maps.stack_asks.set_max_entries(4096)?;
        open.maps.user_shapes.set_max_entries(SMALL_CACHE)?;
        open.maps.asked_stacks.set_max_entries(SMALL_CACHE)?;
    }
    if !options.report || !options.detail.sleeps {
        // Tables for details that are not requested need not take memory.
        open.maps.sleep_rows.set_max_entries(1)?;
        open.maps.waker_rows.set_max_entries(1)?;
        open.maps.owner_rows.set_max_entries(1)?;
        open.maps.resource_rows.set_max_entries(1)?;
        open.maps.chain_rows.set_max_entries(1)?;
        open.maps.announced.set_max_entries(1)?;
    }
    if !options.report || !options.detail.cpu {
        open.maps.cpu_rows.set_max_entries(1)?;
    }
    if options.keeps_call_cpu() {
        open.maps.call_cpus.set_max_entries(options.max_threads)?;
    }
    if !options.detail.sleeps {
        open.maps.kernel_stacks.set_max_entries(1)?;
    } else {
        open.maps.waits.set_max_entries(options.max_threads)?;
    }
    Ok(())
}

/// The tables of a view that is refreshed, and those that such a view does not use. What is named in them is
/// forgotten in time: the view may go on for days.
fn configure_live(open: &mut OpenDeboxSkel, options: &Options) -> Result<()> {
    let maps = &mut open.maps;
    if !options.live {
        maps.live_even.set_max_entries(1)?;
        maps.live_odd.set_max_entries(1)?;
        return Ok(());
    }
    maps.site_rows.set_max_entries(1)?;
    maps.user_stacks.set_max_entries(1)?;
    maps.sleep_rows.set_max_entries(1)?;
    maps.waker_rows.set_max_entries(1)?;
    maps.kernel_stacks.set_type(libbpf_rs::MapType::LruHash)?;
    maps.resource_rows.set_type(libbpf_rs::MapType::LruHash)?;
    maps.announced.set_type(libbpf_rs::MapType::LruHash)?;
    maps.cpu_rows.set_type(libbpf_rs::MapType::LruHash)?;
    Ok(())
}

/// Sets what a session of the broker has in addition.
pub(super) fn configure_role(
    open: &mut OpenDeboxSkel,
    options: &Options,
    role: Role,
) -> Result<()> {
    let is_shared = matches!(role, Role::Shared { .. });
    if role == Role::Own {
        return Ok(());
    }
    let rodata = open
        .maps
        .rodata_data
        .as_deref_mut()
        .context("no .rodata in the probes")?;
    rodata.for_others = true;
    rodata.shared_slots = is_shared;
    rodata.name_key = [random()?, random()?];
    open.maps
        .retired_threads
        .set_max_entries(options.max_threads)?;
    let Role::Shared { clients } = role else {
        // Stacks are passed on at once, not unwound here.
        if options.detail.callsites {
            open.maps.stack_asks.set_max_entries(8 << 20)?;
        }
        return Ok(());
    };
    open.maps.clients.set_max_entries(clients)?;
    open.maps.slots_of_clients.set_max_entries(clients)?;
    // Over days, or with malicious clients, more places are seen than there is room for.
    open.maps
        .kernel_stacks
        .set_type(libbpf_rs::MapType::LruHash)?;
    Ok(())
}
