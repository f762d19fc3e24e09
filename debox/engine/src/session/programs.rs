// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of the probes: which of them a session loads, and in what order they are attached.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::{libbpf_sys, AsRawLibbpf, Object, OpenObject};

use crate::options::{Options, Role, Tap};

/// A program that not every session needs, or that the gate calls.
pub(super) struct Program {
    pub name: &'static str,
    /// Whether the gate calls it: for the event that it is named after.
    is_at_gate: bool,
    is_wanted: fn(&Needs) -> bool,
    /// What it means if the kernel skips the gate at its event.
    pub skips: Skips,
}

/// What it means if the kernel skips the gate at an event, which it does where the gate is already running.
pub(super) enum Skips {
    /// Each loses an event.
    Lose,
    /// The probes of locks do nothing in interrupts. So nothing is lost if only interrupts can hit a running probe
    /// (debox/probe/context.h).
    LoseInTasks,
    /// The begin or end of a call is lost only if the spare was skipped, too, and did not stand in
    /// (debox/probe/tap.h).
    LoseUnlessSpared { spare: &'static str, end: bool },
    /// Not counted here.
    Uncounted,
}

/// What decides which programs a session needs.
pub(super) struct Needs {
    pub options: Options,
    pub role: Role,
    /// Whether the kernel may take the CPU from a thread while a probe runs at the begin or the end of its call.
    pub calls_are_preempted: bool,
    pub takes_samples: bool,
}

impl Needs {
    fn always(&self) -> bool {
        true
    }

    fn kernel_tap(&self) -> bool {
        self.options.tap == Tap::Kernel
    }

    fn spares(&self) -> bool {
        self.kernel_tap() && self.calls_are_preempted
    }

    fn sleeps(&self) -> bool {
        self.options.detail.sleeps
    }

    fn irq(&self) -> bool {
        self.options.detail.irq
    }

    fn user_tap(&self) -> bool {
        self.options.tap == Tap::User
    }

    fn stamps(&self) -> bool {
        self.user_tap() || self.options.user_stamps
    }

    /// Whether the session has to know when a program is executed, which has a new command line.
    fn exec(&self) -> bool {
        let has_handlers = !self.options.report && !self.options.triggers.is_empty();
        self.user_tap() || self.options.report || self.role != Role::Own || has_handlers
    }

    fn clients(&self) -> bool {
        matches!(self.role, Role::Shared { .. })
    }

    fn samples(&self) -> bool {
        self.takes_samples
    }
}

const fn gate(name: &'static str, is_wanted: fn(&Needs) -> bool, skips: Skips) -> Program {
    Program {
        name,
        is_at_gate: true,
        is_wanted,
        skips,
    }
}

const fn beside_gate(name: &'static str, is_wanted: fn(&Needs) -> bool) -> Program {
    Program {
        name,
        is_at_gate: false,
        is_wanted,
        skips: Skips::Uncounted,
    }
}

/// All of them, in the order in which they are attached. The scheduler's programs come before the tap's, so that no call
/// is seen without its parts; ends come before beginnings, so that every beginning has an end; each spare comes
/// after the program that it stands in for (debox/probe/tap.h).
#[rustfmt::skip]
pub(super) const PROGRAMS: &[Program] = &[
    gate("on_switch", Needs::always, Skips::Lose),
    gate("on_waking", Needs::always, Skips::Lose),
    gate("on_fork", Needs::always, Skips::Lose),
    gate("on_contention_begin", Needs::sleeps, Skips::LoseInTasks),
    gate("on_contention_end", Needs::sleeps, Skips::LoseInTasks),
    gate("on_bio_queue", Needs::sleeps, Skips::Lose),
    gate("on_exec", Needs::exec, Skips::Lose),
    gate("on_irq_handler_exit", Needs::irq, Skips::Uncounted),
    gate("on_softirq_exit", Needs::irq, Skips::Uncounted),
    gate("on_local_timer_exit", Needs::irq, Skips::Uncounted),
    gate("on_reschedule_exit", Needs::irq, Skips::Uncounted),
    gate("on_call_function_exit", Needs::irq, Skips::Uncounted),
    gate("on_call_function_single_exit", Needs::irq, Skips::Uncounted),
    gate("on_irq_handler_entry", Needs::irq, Skips::Uncounted),
    gate("on_softirq_entry", Needs::irq, Skips::Uncounted),
    gate("on_local_timer_entry", Needs::irq, Skips::Uncounted),
    gate("on_reschedule_entry", Needs::irq, Skips::Uncounted),
    gate("on_call_function_entry", Needs::irq, Skips::Uncounted),
    gate("on_call_function_single_entry", Needs::irq, Skips::Uncounted),
    gate("on_sys_exit", Needs::kernel_tap, Skips::LoseUnlessSpared { spare: "on_sys_exit_spare", end: true }),
    gate("on_sys_exit_spare", Needs::spares, Skips::Uncounted),
    gate("on_sys_enter", Needs::kernel_tap, Skips::LoseUnlessSpared { spare: "on_sys_enter_spare", end: false }),
    gate("on_sys_enter_spare", Needs::spares, Skips::Uncounted),
    gate("on_kernel_fault", Needs::user_tap, Skips::Lose),
    gate("on_signal_deliver", Needs::stamps, Skips::Lose),
    beside_gate("on_clock", Needs::samples),
    beside_gate("release_tasks", Needs::clients),
];

/// Sets which of the programs are loaded.
pub(super) fn choose(object: &mut OpenObject, needs: &Needs) {
    for mut loaded in object.progs_mut() {
        let program = PROGRAMS
            .iter()
            .find(|program| loaded.name() == program.name);
        if let Some(program) = program {
            loaded.set_autoload((program.is_wanted)(needs));
        }
    }
}

/// The programs that the gate will call, by name.
pub(super) fn chosen_for_gate(object: &OpenObject) -> Vec<String> {
    let chosen = object.progs().filter(|program| program.autoload());
    let at_gate = chosen.filter(|program| at_gate().any(|known| program.name() == known.name));
    at_gate
        .map(|program| program.name().to_string_lossy().into_owned())
        .collect()
}

/// The loaded programs that the gate calls, in the order of the table.
pub(super) fn loaded_for_gate(object: &Object) -> Vec<(String, BorrowedFd<'_>)> {
    let loaded = at_gate().filter_map(|known| {
        let mut programs = object.progs();
        let program = programs.find(|program| program.name() == known.name)?;
        if !program.autoload() {
            return None;
        }
        // SAFETY: the object keeps the program's descriptor open for as long as it is borrowed here.
        let fd = unsafe { BorrowedFd::borrow_raw(program.as_fd().as_raw_fd()) };
        Some((known.name.to_string(), fd))
    });
    loaded.collect()
}

/// Closes their descriptors once the gate holds them: they cannot be attached again.
pub(super) fn leave_to_gate(object: &Object) {
    for program in object.progs() {
        if at_gate().any(|known| program.name() == known.name) {
            // SAFETY: the object is loaded, and its programs' descriptors are not used after this.
            unsafe { libbpf_sys::bpf_program__unload(program.as_libbpf_object().as_ptr()) };
        }
    }
}

fn at_gate() -> impl Iterator<Item = &'static Program> {
    PROGRAMS.iter().filter(|program| program.is_at_gate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Detail;

    fn wanted(change: impl FnOnce(&mut Needs), options: &Options) -> Vec<&'static str> {
        let mut needs = Needs {
            options: options.clone(),
            role: Role::Own,
            calls_are_preempted: false,
            takes_samples: false,
        };
        change(&mut needs);
        let wanted = PROGRAMS
            .iter()
            .filter(|program| (program.is_wanted)(&needs));
        wanted.map(|program| program.name).collect()
    }

    #[test]
    fn sessions_load_what_they_need() {
        let bare = Options {
            detail: Detail::default(),
            report: false,
            ..Options::default()
        };
        let scheduler = ["on_switch", "on_waking", "on_fork"];
        let tap = ["on_sys_exit", "on_sys_enter"];
        assert_eq!(wanted(|_| (), &bare), [&scheduler[..], &tap[..]].concat());
        let of_clients = wanted(|needs| needs.role = Role::Shared { clients: 1 }, &bare);
        assert!(of_clients.contains(&"on_exec") && of_clients.ends_with(&["release_tasks"]));
        let spared = wanted(|needs| needs.calls_are_preempted = true, &bare);
        assert_eq!(
            spared
                .iter()
                .filter(|name| name.ends_with("_spare"))
                .count(),
            2
        );
        let user = Options {
            tap: Tap::User,
            ..bare
        };
        let user = wanted(|needs| needs.calls_are_preempted = true, &user);
        assert!(user.ends_with(&["on_kernel_fault", "on_signal_deliver"]));
        assert!(!user.iter().any(|name| name.starts_with("on_sys_")));
    }

    #[test]
    fn a_spare_is_attached_after_the_program_that_it_stands_in_for() {
        let at = |name: &str| PROGRAMS.iter().position(|program| program.name == name);
        for program in PROGRAMS {
            if let Skips::LoseUnlessSpared { spare, .. } = program.skips {
                assert!(at(spare) > at(program.name), "{spare}");
            }
        }
    }
}
