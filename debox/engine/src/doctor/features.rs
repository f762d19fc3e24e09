//! Checks what the kernel offers to probes, according to its own types.

use std::io;
use std::mem::MaybeUninit;

use libbpf_rs::btf::types::{Enum, Enum64, Struct, Typedef};
use libbpf_rs::btf::Btf;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::MapType;

use super::finding::{Finding, NEEDS_ROOT};
use crate::kernel;
use crate::report::WakerKind;
use crate::skeleton::DeboxSkelBuilder;

/// The kernel's description of its own types (BTF), which any user may read.
pub(super) struct KernelTypes(Result<Btf<'static>, String>);

const NO_TYPES: &str = "not known without the kernel's types";

impl KernelTypes {
    pub fn read() -> KernelTypes {
        KernelTypes(Btf::from_vmlinux().map_err(|error| error.to_string()))
    }

    /// Every tracepoint that probes can attach to has a type of this name.
    fn has_event(&self, event: &str) -> Option<bool> {
        let btf = self.0.as_ref().ok()?;
        Some(
            btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{event}"))
                .is_some(),
        )
    }

    fn has_helper(&self, helper: &str) -> Option<bool> {
        let btf = self.0.as_ref().ok()?;
        let wanted = format!("BPF_FUNC_{helper}");
        let is_wanted = |name: Option<&std::ffi::OsStr>| name.is_some_and(|name| name == &*wanted);
        let in_enum = btf
            .type_by_name::<Enum<'_>>("bpf_func_id")
            .is_some_and(|ids| ids.iter().any(|id| is_wanted(id.name)));
        let in_enum64 = || {
            btf.type_by_name::<Enum64<'_>>("bpf_func_id")
                .is_some_and(|ids| ids.iter().any(|id| is_wanted(id.name)))
        };
        Some(in_enum || in_enum64())
    }

    fn has_member(&self, composite: &str, member: &str) -> Option<bool> {
        let btf = self.0.as_ref().ok()?;
        let composite = btf.type_by_name::<Struct<'_>>(composite);
        Some(composite.is_some_and(|composite| {
            composite
                .iter()
                .any(|found| found.name.is_some_and(|name| name == member))
        }))
    }
}

pub(super) fn kernel_types(types: &KernelTypes) -> Finding {
    let need = "kernel types (BTF)";
    match &types.0 {
        Ok(_) => Finding::met(need, "/sys/kernel/btf/vmlinux"),
        Err(error) => Finding::prevents(need, format!("/sys/kernel/btf/vmlinux: {error}"))
            .cost("the probes cannot find the kernel's fields")
            .remedy("a kernel built with CONFIG_DEBUG_INFO_BTF=y is needed, as Debian's are"),
    }
}

/// The kinds of tables that the probes use.
const TABLES: [(MapType, &str); 8] = [
    (MapType::TaskStorage, "task storage"),
    (MapType::RingBuf, "ring buffer"),
    (MapType::Array, "array"),
    (MapType::PercpuArray, "per-CPU array"),
    (MapType::Hash, "hash"),
    (MapType::PercpuHash, "per-CPU hash"),
    (MapType::LruHash, "LRU hash"),
    (MapType::Queue, "queue"),
];

pub(super) fn tables(bpf: &io::Result<()>) -> Finding {
    let need = "tables for probes";
    if bpf.is_err() {
        return Finding::unchecked(need, NEEDS_ROOT);
    }
    let missing: Vec<&str> = TABLES
        .iter()
        .filter(|(kind, _)| !kind.is_supported().unwrap_or(false))
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        return Finding::met(need, format!("all {} kinds can be made", TABLES.len()));
    }
    Finding::prevents(need, format!("missing: {}", missing.join(", ")))
        .cost("the probes have nowhere to keep what they measure")
        .remedy("a kernel of 6.1 or later is what debox is tested on")
}

/// The part of the data that is lost without an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    Everything,
    Sleeps,
    UserTap,
    Detail,
}

fn loss_without(event: &str) -> Loss {
    match event {
        "sys_enter" | "sys_exit" | "sched_switch" | "sched_wakeup" | "sched_process_fork" => {
            Loss::Everything
        }
        "sched_waking" | "contention_begin" | "contention_end" | "block_bio_queue" => Loss::Sleeps,
        "sched_process_exec" | "signal_deliver" | "page_fault_kernel" => Loss::UserTap,
        _ => Loss::Detail,
    }
}

/// The tracepoints that the probes attach to, read from the probes themselves.
fn events_used() -> Vec<String> {
    let mut object = MaybeUninit::uninit();
    let Ok(open) = DeboxSkelBuilder::default().open(&mut object) else {
        return Vec::new();
    };
    let sections = open
        .open_object()
        .progs()
        .map(|prog| prog.section().to_os_string());
    sections
        .filter_map(|section| Some(section.to_str()?.strip_prefix("tp_btf/")?.to_string()))
        .collect()
}

/// One finding if all events exist, otherwise one for each loss.
pub(super) fn events(types: &KernelTypes) -> Vec<Finding> {
    let events = events_used();
    if types.0.is_err() || events.is_empty() {
        return vec![Finding::unchecked("kernel events", NO_TYPES)];
    }
    let missing = |loss| {
        let names: Vec<&str> = events
            .iter()
            .map(String::as_str)
            .filter(|event| loss_without(event) == loss)
            .filter(|event| types.has_event(event) == Some(false))
            .collect();
        (!names.is_empty()).then(|| format!("missing: {}", names.join(", ")))
    };
    let remedy = "a kernel built with tracepoints, 5.19 or later, is needed, as Debian's are";
    let lacks = [
        (
            Loss::Sleeps,
            "sleeps",
            "where calls sleep cannot be seen: only --detail basic works",
        ),
        (Loss::UserTap, "the user tap", "--tap user does not work"),
        (
            Loss::Detail,
            "further details",
            "the details that need them do not work, such as irq",
        ),
    ];
    let mut findings = Vec::new();
    if let Some(found) = missing(Loss::Everything) {
        let finding = Finding::prevents("kernel events", found);
        findings.push(
            finding
                .cost("calls and their parts cannot be seen")
                .remedy(remedy),
        );
    }
    for (loss, of, cost) in lacks {
        if let Some(found) = missing(loss) {
            let finding = Finding::limits(&format!("kernel events of {of}"), found);
            findings.push(finding.cost(cost).remedy(remedy));
        }
    }
    if findings.is_empty() {
        let found = format!("all {} are there", events.len());
        findings.push(Finding::met("kernel events", found));
    }
    findings
}

/// The helpers that the probes need beyond the most basic ones.
const HELPERS: [&str; 10] = [
    "task_storage_get",
    "get_current_task_btf",
    "task_pt_regs",
    "ktime_get_ns",
    "get_task_stack",
    "get_stack",
    "find_vma",
    "ringbuf_reserve",
    "seq_write",
    "loop",
];

pub(super) fn helpers(types: &KernelTypes) -> Finding {
    let need = "kernel helpers";
    if types.0.is_err() {
        return Finding::unchecked(need, NO_TYPES);
    }
    let missing: Vec<&str> = HELPERS
        .iter()
        .filter(|helper| types.has_helper(helper) == Some(false))
        .copied()
        .collect();
    if missing.is_empty() {
        return Finding::met(need, format!("all {} are there", HELPERS.len()));
    }
    Finding::prevents(need, format!("missing: {}", missing.join(", ")))
        .cost("the kernel will not accept the probes")
        .remedy("a kernel of 6.1 or later is what debox is tested on")
}

/// The probes find the preemption counter through the per-CPU variables in the kernel's types and
/// through the run queue that a task points to. The result of the trial session takes precedence:
/// its sleep was ended by a timer, in a hard interrupt.
pub(super) fn waker_context(types: &KernelTypes, seen_waker: Option<WakerKind>) -> Finding {
    let need = "interrupts told from tasks";
    let lacks = |found: &str| {
        Finding::limits(need, found)
            .cost("who ended a sleep is shown as unknown")
            .remedy(
                "a kernel with CONFIG_FAIR_GROUP_SCHED=y whose BTF has its per-CPU variables, as \
                 Debian's are",
            )
    };
    match seen_waker {
        Some(WakerKind::HardIrq) => {
            Finding::met(need, "the timer of the trial's sleep was seen as hardirq")
        }
        Some(WakerKind::Unknown) => lacks("the preemption counter cannot be found"),
        Some(waker) => Finding::limits(
            need,
            format!("the timer of the trial's sleep was seen as {waker}"),
        )
        .cost("a task hit by an interrupt is shown as the waker")
        .remedy("please report this as a bug, with the kernel's version"),
        None if types.0.is_err() => Finding::unchecked(need, NO_TYPES),
        None if kernel::type_facts().is_some_and(|facts| facts.per_cpu_area.is_some())
            && types.has_member("sched_entity", "cfs_rq") == Some(true) =>
        {
            Finding::met(need, "the preemption counter is in the kernel's types")
        }
        None => lacks("the preemption counter cannot be found"),
    }
}

/// Some switches are hidden from probes; then the scheduler's account shows the length of the wait.
pub(super) fn wait_account(types: &KernelTypes) -> Finding {
    let need = "scheduler's own account";
    match types.has_member("sched_info", "run_delay") {
        None => Finding::unchecked(need, NO_TYPES),
        Some(true) => Finding::met(need, "time waiting for a CPU, by task"),
        Some(false) => Finding::limits(need, "none")
            .cost("after a switch that probes are not shown, waiting for a CPU counts as asleep")
            .remedy("a kernel built with CONFIG_SCHED_INFO=y, as Debian's are"),
    }
}

/// Checks whether the probes can find a task by its id, as they must for the owner of a lock.
pub(super) fn owners() -> Finding {
    let need = "owners of locks";
    match kernel::type_facts().map(|facts| facts.finds_tasks) {
        None => Finding::unchecked(need, NO_TYPES),
        Some(true) => Finding::met(need, "tasks can be found by their numbers"),
        Some(false) => Finding::limits(need, "tasks cannot be found by their numbers")
            .cost("only owners that are monitored themselves, or hold a lock of the kernel alone, are named, and it is not known on what they sleep")
            .remedy("a kernel of 6.2 or later (bpf_task_from_pid)"),
    }
}

pub(super) fn storage_account(types: &KernelTypes) -> Finding {
    let need = "bytes from storage";
    match types.has_member("task_io_accounting", "read_bytes") {
        None => Finding::unchecked(need, NO_TYPES),
        Some(true) => Finding::met(need, "counted by task"),
        Some(false) => Finding::limits(need, "not counted")
            .cost("--detail io shows nothing")
            .remedy("a kernel built with CONFIG_TASK_IO_ACCOUNTING=y, as Debian's are"),
    }
}
