// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether a session with these options can be opened here; the error says what is missing.

use anyhow::{bail, ensure, Context, Result};

use super::{Options, Tap};
use crate::clock;
use crate::kernel;
use crate::predicate::{Field, Number};
use crate::trigger::{Trigger, TRIGGERS_MAX};

/// Fails, with a reason, if the tap does not support the options.
pub(crate) fn require_tap(options: &Options) -> Result<()> {
    let detail = options.detail;
    if options.tap == Tap::User && (detail.irq || detail.io || detail.callsites) {
        bail!(
            "the user tap measures basic, sleeps and cpu; irq, io and callsites need probes at both ends \
             of a call, which are the kernel tap (--tap kernel)"
        );
    }
    if options.tap == Tap::User && options.trace.is_some() {
        bail!(
            "the call tree (--trace) needs probes at both ends of a call, which are the kernel tap \
             (--tap kernel)"
        );
    }
    if options.tap == Tap::User || options.user_stamps {
        if let Some(refusal) = clock::refusal() {
            bail!(refusal);
        }
    }
    Ok(())
}

/// Fails, with a reason, if the session cannot be opened here.
pub(crate) fn require(options: &Options) -> Result<()> {
    require_tap(options)?;
    if !cfg!(target_arch = "x86_64") {
        bail!("DeBox reads call numbers from x86-64 registers; other machines are not done yet");
    }
    if !kernel::may_load_probes() {
        bail!(
            "loading probes {}: {}",
            kernel::what_it_takes(),
            kernel::remedy()
        );
    }
    require_descriptors()?;
    if !std::path::Path::new("/sys/kernel").exists() {
        bail!(
            "/sys is not mounted here, where the probes find the kernel's types \
             (/sys/kernel/btf/vmlinux): mount -t sysfs sysfs /sys"
        );
    }
    if !kernel::has_types() {
        bail!(
            "this kernel has no BTF (/sys/kernel/btf/vmlinux), so the probes cannot find its \
             fields; a kernel built with CONFIG_DEBUG_INFO_BTF=y is needed, as Debian's are"
        );
    }
    Ok(())
}

/// Fails, with a reason, if too few descriptors are left to load anything.
fn require_descriptors() -> Result<()> {
    /// The fewest descriptors that must be free; a session takes several times as many.
    const FEWEST: usize = 16;
    let mut held = Vec::new();
    for _ in 0..FEWEST {
        // SAFETY: takes two integers and returns a new descriptor or -1.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            drop(held);
            if kernel::is_out_of_descriptors(&error) {
                bail!(
                    "a session takes about 90 file descriptors: {}",
                    kernel::descriptor_limit()
                );
            }
            return Ok(()); // other errors show when the probes are loaded
        }
        // SAFETY: the descriptor is new and has no other owner.
        held.push(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) });
    }
    Ok(())
}

/// Checks whether a session supports its triggers; the error says what is missing.
pub(crate) fn require_triggers(options: &Options) -> Result<()> {
    let triggers = &options.triggers;
    if triggers.is_empty() {
        return Ok(());
    }
    ensure!(
        options.tap == Tap::Kernel,
        "triggers need the kernel tap: under the user tap no probe runs at the end of a call"
    );
    ensure!(
        triggers.len() <= TRIGGERS_MAX,
        "a session has {TRIGGERS_MAX} triggers at most; `||` joins predicates with the same actions"
    );
    for trigger in triggers {
        require_one(trigger, options)
            .with_context(|| format!("trigger `{}`", trigger.predicate))?;
    }
    Ok(())
}

fn require_one(trigger: &Trigger, options: &Options) -> Result<()> {
    let predicate = &trigger.predicate;
    let uses = |field: Number| predicate.uses(Field::Number(field));
    let of_sleeps = predicate.uses(Field::Label)
        || predicate.uses(Field::Class)
        || [Number::Longest, Number::Sleeps, Number::Spin]
            .into_iter()
            .any(uses);
    ensure!(
        options.detail.sleeps || !of_sleeps,
        "it asks for sleeps, which are not measured without `--detail sleeps`"
    );
    ensure!(
        options.detail.irq || !uses(Number::Irq),
        "it asks for `irq`, which is not measured without `--detail irq`"
    );
    ensure!(
        options.detail.cpu || !(uses(Number::Throttled) || predicate.uses(Field::CpuOwner)),
        "it asks for who had the CPU, which is not measured without `--detail cpu`"
    );
    ensure!(
        !predicate.names_user_time(),
        "triggers are evaluated when a call ends, so `(user)` never matches"
    );
    predicate.compile()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_measured_is_refused() {
        let refused = |text: &str, change: fn(&mut Options)| {
            let mut options = Options {
                triggers: vec![text.parse().expect(text)],
                ..Options::default()
            };
            change(&mut options);
            require_triggers(&options).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(refused("label == epoll", |_| ()), Ok(()));
        let error = refused("label == epoll", |options| options.detail.sleeps = false);
        assert!(error.is_err_and(|error| error.contains("--detail sleeps")));
        let error = refused("irq > 1us", |_| ());
        assert!(error.is_err_and(|error| error.contains("--detail irq")));
        for asks in ["throttled > 1ms", "cpu_owner == gzip"] {
            let error = refused(asks, |_| ());
            assert!(error.is_err_and(|error| error.contains("--detail cpu")));
            assert_eq!(refused(asks, |options| options.detail.cpu = true), Ok(()));
        }
        let error = refused("wall > 1us", |options| options.tap = Tap::User);
        assert!(error.is_err_and(|error| error.contains("kernel tap")));
        let error = refused("syscall == (user)", |_| ());
        assert!(error.is_err_and(|error| error.contains("`(user)` never matches")));
        let error = refused("comm == \"*x\"", |_| ());
        assert!(error.is_err_and(|error| error.contains("beginning")));
        let error = refused("wall > 1us", |options| {
            options.triggers = vec![options.triggers[0].clone(); TRIGGERS_MAX + 1];
        });
        assert!(error.is_err_and(|error| error.contains("8 triggers at most")));
    }
}
