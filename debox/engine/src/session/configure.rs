//! Configures the probes before they are loaded: parts that are not needed are left out, and unused
//! tables are small.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{libbpf_sys, AsRawLibbpf, Object, Program};

use super::{random, Options, Role, Tap};
use crate::calls;
use crate::gate::Gate;
use crate::kernel;
use crate::labels::Labels;
use crate::skeleton::OpenDeboxSkel;
use crate::trigger;

/// Entries of an unused cache: each CPU needs a few.
const SMALL_CACHE: u32 = 1024;

/// The programs that the gate calls, in the order in which they are attached. The scheduler's
/// programs come before the tap's, so that no call is seen without its parts; ends come before
/// beginnings, so that every beginning has an end; each spare comes after the program that it stands
/// in for (debox/probe/tap.h).
const ATTACHED: [&str; 25] = [
    "on_switch",
    "on_waking",
    "on_fork",
    "on_contention_begin",
    "on_contention_end",
    "on_bio_queue",
    "on_exec",
    "on_irq_handler_exit",
    "on_softirq_exit",
    "on_local_timer_exit",
    "on_reschedule_exit",
    "on_call_function_exit",
    "on_call_function_single_exit",
    "on_irq_handler_entry",
    "on_softirq_entry",
    "on_local_timer_entry",
    "on_reschedule_entry",
    "on_call_function_entry",
    "on_call_function_single_entry",
    "on_sys_exit",
    "on_sys_exit_spare",
    "on_sys_enter",
    "on_sys_enter_spare",
    "on_kernel_fault",
    "on_signal_deliver",
];

/// The programs of [`ATTACHED`] that this session has, in the same order.
pub(super) fn programs_to_attach(object: &Object) -> Vec<(String, BorrowedFd<'_>)> {
    let find = |name: &str| object.progs().find(|program| program.name() == name);
    let loaded = ATTACHED.iter().filter_map(|name| {
        let program = find(name).filter(|program| program.autoload())?;
        // SAFETY: the object keeps the program's descriptor open for as long as it is borrowed here.
        let fd = unsafe { BorrowedFd::borrow_raw(program.as_fd().as_raw_fd()) };
        Some((name.to_string(), fd))
    });
    loaded.collect()
}

/// Closes their descriptors once the gate holds them: they cannot be attached again.
pub(super) fn leave_to_gate(object: &Object) {
    let names = |program: &Program| ATTACHED.iter().any(|name| program.name() == *name);
    for program in object.progs().filter(names) {
        // SAFETY: the object is loaded, and its programs' descriptors are not used after this.
        unsafe { libbpf_sys::bpf_program__unload(program.as_libbpf_object().as_ptr()) };
    }
}

/// Takes a place at the gate, and replaces the session's maps by the gate's.
pub(super) fn join_gate(open: &mut OpenDeboxSkel) -> Result<Gate> {
    let programs = open.open_object().progs();
    let wanted = programs.filter(|program| program.autoload());
    let wanted = wanted.map(|program| program.name().to_string_lossy().into_owned());
    let wanted: Vec<String> = wanted
        .filter(|name| ATTACHED.contains(&name.as_str()))
        .collect();
    let gate = Gate::join(&wanted)?;
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
pub(super) fn configure(open: &mut OpenDeboxSkel, options: &Options) -> Result<()> {
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
    let has_spares = facts.is_some_and(|facts| facts.calls_are_preempted);
    rodata.keep_cpu = has_spares;
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
    let progs = &mut open.progs;
    progs
        .on_contention_begin
        .set_autoload(options.detail.sleeps);
    progs.on_contention_end.set_autoload(options.detail.sleeps);
    progs.on_bio_queue.set_autoload(options.detail.sleeps);
    for prog in [
        &mut progs.on_irq_handler_entry,
        &mut progs.on_irq_handler_exit,
        &mut progs.on_softirq_entry,
        &mut progs.on_softirq_exit,
        &mut progs.on_local_timer_entry,
        &mut progs.on_local_timer_exit,
        &mut progs.on_reschedule_entry,
        &mut progs.on_reschedule_exit,
        &mut progs.on_call_function_entry,
        &mut progs.on_call_function_exit,
        &mut progs.on_call_function_single_entry,
        &mut progs.on_call_function_single_exit,
    ] {
        prog.set_autoload(options.detail.irq);
    }
    progs.on_sys_enter.set_autoload(options.tap == Tap::Kernel);
    progs.on_sys_exit.set_autoload(options.tap == Tap::Kernel);
    for spare in [&mut progs.on_sys_enter_spare, &mut progs.on_sys_exit_spare] {
        spare.set_autoload(options.tap == Tap::Kernel && has_spares);
    }
    progs
        .on_signal_deliver
        .set_autoload(options.tap == Tap::User || options.user_stamps);
    progs.on_kernel_fault.set_autoload(options.tap == Tap::User);
    Ok(())
}

/// `ring_bytes`: how many bytes of samples may be waiting; `None`: no samples are taken.
pub(super) fn configure_samples(open: &mut OpenDeboxSkel, ring_bytes: Option<u32>) -> Result<()> {
    open.progs.on_clock.set_autoload(ring_bytes.is_some());
    if let Some(bytes) = ring_bytes {
        open.maps.samples.set_max_entries(bytes)?;
    }
    Ok(())
}

/// Whether the session has to know when a program is executed.
pub(super) fn wants_exec(options: &Options, role: Role) -> bool {
    let has_handlers = !options.report && !options.triggers.is_empty();
    // A program that is executed has a new command line.
    options.tap == Tap::User || options.report || role != Role::Own || has_handlers
}

/// Sets what a session of the broker has in addition.
pub(super) fn configure_role(
    open: &mut OpenDeboxSkel,
    options: &Options,
    role: Role,
) -> Result<()> {
    let is_shared = matches!(role, Role::Shared { .. });
    open.progs.on_exec.set_autoload(wants_exec(options, role));
    open.progs.release_tasks.set_autoload(is_shared);
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
