//! Checks for features that no part of debox needs yet.

use std::fs;
use std::io;

use libbpf_rs::libbpf_sys;

use super::finding::{Finding, NEEDS_ROOT};
use crate::kernel;
use crate::kernel::objects::owned;

/// A function that the kernel has for tests like this one; nothing else calls it.
const TRIAL_FUNCTION: &std::ffi::CStr = c"bpf_fentry_test1";

pub(super) fn kprobes() -> Finding {
    let need = "function probes (kprobe)";
    let absent = |found: String| {
        Finding::unused(need, found).cost("nothing so far").remedy(
            "a kernel built with CONFIG_KPROBES=y and CONFIG_KPROBE_EVENTS=y, as Debian's are",
        )
    };
    let kind = match fs::read_to_string("/sys/bus/event_source/devices/kprobe/type") {
        Ok(text) => text.trim().parse().unwrap_or(0),
        Err(_) => return absent("not built into this kernel".to_string()),
    };
    let mut event = libbpf_sys::perf_event_attr {
        type_: kind,
        ..Default::default()
    };
    event.__bindgen_anon_3.kprobe_func = TRIAL_FUNCTION.as_ptr() as u64;
    match open_event(event, -1, 0) {
        Ok(()) => Finding::met(need, "attach"),
        Err(_) if !kernel::has_bpf_privilege() => Finding::unchecked(need, NEEDS_ROOT),
        Err(error) => absent(reason(&error)),
    }
}

pub(super) fn hardware_counters() -> Finding {
    let need = "hardware counters";
    let mut cycles = libbpf_sys::perf_event_attr {
        type_: libbpf_sys::PERF_TYPE_HARDWARE,
        config: libbpf_sys::PERF_COUNT_HW_CPU_CYCLES.into(),
        ..Default::default()
    };
    cycles.set_exclude_kernel(1); // any user may count these, unless perf_event_paranoid forbids it
    match open_event(cycles, 0, -1) {
        Ok(()) => Finding::met(need, "cycles can be counted"),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Finding::unchecked(need, NEEDS_ROOT)
        }
        Err(error) => Finding::unused(need, reason(&error))
            .cost("nothing so far")
            .remedy("a machine, or a virtual machine, that has them"),
    }
}

/// The kernel's error in its usual wording.
fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => "none here".to_string(),
        Some(libc::EPERM | libc::EACCES) => "refused by this kernel".to_string(),
        _ => error.to_string(),
    }
}

/// Opens and closes a counter of `pid` (0: this process, -1: all) on `cpu` (-1: all).
fn open_event(mut event: libbpf_sys::perf_event_attr, pid: i32, cpu: i32) -> io::Result<()> {
    event.size = size_of_val(&event) as u32;
    // SAFETY: the description outlives the call, which only reads it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &event,
            pid,
            cpu,
            -1,
            libbpf_sys::PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    owned(fd as i32).map(drop)
}
