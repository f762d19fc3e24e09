//! Facts about the kernel, from its own types (BTF).

use std::fs;
use std::sync::OnceLock;

use libbpf_rs::btf::types::{DataSec, Func, MemberAttr, Struct, Union, Var};
use libbpf_rs::btf::Btf;

/// All facts that are read from the types, which takes some hundredths of a second.
pub(crate) struct TypeFacts {
    pub per_cpu_area: Option<PerCpuArea>,
    /// Whether a thread may lose its CPU while a probe runs at the beginning or the end of its call:
    /// the events of calls leave preemption enabled since programs at them may fault (7.2), and the
    /// kernel skips a program on a CPU where it is already running.
    pub calls_are_preempted: bool,
    /// Whether the probes can find a task by its id, with a function added in 6.2.
    pub finds_tasks: bool,
    /// Whether there is a hypervisor and the kernel reports the time that it takes from a CPU
    /// (`CONFIG_PARAVIRT_TIME_ACCOUNTING`).
    pub tells_steal: bool,
}

/// The running kernel's facts, read once; `None` if it has no types.
pub(crate) fn type_facts() -> Option<&'static TypeFacts> {
    static FACTS: OnceLock<Option<TypeFacts>> = OnceLock::new();
    let read = || Btf::from_vmlinux().ok().map(|btf| TypeFacts::of(&btf));
    FACTS.get_or_init(read).as_ref()
}

impl TypeFacts {
    fn of(btf: &Btf<'_>) -> TypeFacts {
        let has_function = |name: &str| btf.type_by_name::<Func<'_>>(name).is_some();
        let run_queue = || btf.type_by_name::<Struct<'_>>("rq");
        let has_steal = |rq| member_offset(btf, &rq, "prev_steal_time_rq").is_some();
        TypeFacts {
            per_cpu_area: per_cpu_area(btf),
            calls_are_preempted: has_function("trace_call_bpf_faultable"),
            finds_tasks: has_function("bpf_task_from_pid"),
            tells_steal: has_hypervisor() && run_queue().is_some_and(has_steal),
        }
    }
}

/// According to the processor's flags.
pub(crate) fn has_hypervisor() -> bool {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = cpuinfo.lines();
    let flags = lines.find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// The places of some variables in the per-CPU area.
pub(crate) struct PerCpuArea {
    pub runqueues: u64,
    pub current_task: u64,
    pub preempt_count: u64,
    /// The bits of the preemption counter that are set in a hard interrupt and an NMI.
    pub hardirq_or_nmi: u32,
}

/// Four bits each from bit 16 on; where interrupts can be disabled by counting (7.3, commit
/// 9634d860ac15 "preempt: Introduce HARDIRQ_DISABLE_BITS"), that count is in these bits, and hard
/// interrupts are counted from bit 24 on, with an NMI's first bit at 28.
fn hardirq_or_nmi(counts_disabling: bool) -> u32 {
    if counts_disabling {
        0x1f00_0000
    } else {
        0x00ff_0000
    }
}

/// Reads the places from the kernel's BTF. The preemption counter and the current task are
/// variables of their own up to 6.1 and from 6.15, and inside `pcpu_hot` between (commit
/// 64701838bf05 and the series that undid it).
fn per_cpu_area(btf: &Btf<'_>) -> Option<PerCpuArea> {
    let section: DataSec = btf.type_by_name(".data..percpu")?;
    let offset_of = |wanted: &str| {
        section.iter().find_map(|entry| {
            let var: Var = btf.type_by_id(entry.ty)?;
            (var.name()? == wanted).then_some(u64::from(entry.offset))
        })
    };
    let in_hot = |wanted: &str| {
        let start = offset_of("pcpu_hot")?;
        let hot: Struct = btf.type_by_name("pcpu_hot")?;
        // The members are in an anonymous struct in an anonymous union.
        member_offset(btf, &hot, wanted).map(|offset| start + offset)
    };
    Some(PerCpuArea {
        runqueues: offset_of("runqueues")?,
        current_task: offset_of("current_task").or_else(|| in_hot("current_task"))?,
        preempt_count: offset_of("__preempt_count").or_else(|| in_hot("preempt_count"))?,
        hardirq_or_nmi: hardirq_or_nmi(offset_of("local_interrupt_disable_state").is_some()),
    })
}

/// The byte offset of a member, looked for in anonymous members too.
fn member_offset(btf: &Btf<'_>, composite: &Struct<'_>, wanted: &str) -> Option<u64> {
    let bytes = |attr: MemberAttr| match attr {
        MemberAttr::Normal { offset } | MemberAttr::BitField { offset, .. } => {
            u64::from(offset) / 8
        }
    };
    for member in composite.iter() {
        if member.name.is_some_and(|name| name == wanted) {
            return Some(bytes(member.attr));
        }
        if member.name.is_some_and(|name| !name.is_empty()) {
            continue;
        }
        if let Some(inner) = btf.type_by_id::<Struct>(member.ty) {
            if let Some(offset) = member_offset(btf, &inner, wanted) {
                return Some(bytes(member.attr) + offset);
            }
        } else if let Some(union) = btf.type_by_id::<Union>(member.ty) {
            for inside in union.iter() {
                let Some(inner) = btf.type_by_id::<Struct>(inside.ty) else {
                    continue;
                };
                if let Some(offset) = member_offset(btf, &inner, wanted) {
                    return Some(bytes(member.attr) + bytes(inside.attr) + offset);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Facts that came with a release can be checked against the release.
    #[test]
    fn what_the_types_tell_fits_the_release() {
        let Some(facts) = type_facts() else {
            debox_skipped::skipped("what_the_types_tell_fits_the_release: the kernel has no types");
            return;
        };
        let release = crate::kernel::release();
        let mut numbers = release
            .split('.')
            .map_while(|part| part.parse::<u32>().ok());
        let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        assert_eq!(facts.finds_tasks, release >= (6, 2));
        assert_eq!(facts.calls_are_preempted, release >= (7, 2));
        assert!(facts.per_cpu_area.is_some());
    }
}
