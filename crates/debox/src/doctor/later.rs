//! What no part of debox needs yet, and measurements inside the kernel's functions will.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;

use libbpf_rs::libbpf_sys;

use super::access::owned;
use super::{Finding, NEEDS_ROOT};
use crate::kernel;

/// A function that the kernel has for trials like this one; nothing calls it otherwise.
const TRIAL_FUNCTION: &std::ffi::CStr = c"bpf_fentry_test1";

pub(super) fn fentry(bpf: &io::Result<()>) -> Finding {
    let need = "function probes (fentry)";
    if bpf.is_err() {
        return Finding::unchecked(need, NEEDS_ROOT);
    }
    match try_fentry() {
        Ok(()) => Finding::met(need, "attach"),
        Err(error) => Finding::unused(need, reason(&error))
            .cost("nothing so far")
            .remedy("a kernel that lets its functions be patched, as Debian's do"),
    }
}

fn try_fentry() -> io::Result<()> {
    const EXIT: u8 = 0x95; // BPF_JMP | BPF_EXIT
    const MOVE: u8 = 0xb7; // BPF_ALU64 | BPF_MOV | BPF_K
    let instruction = |code| libbpf_sys::bpf_insn {
        code,
        ..Default::default()
    };
    let return_0 = [instruction(MOVE), instruction(EXIT)];
    // SAFETY: the name is a C string.
    let id = unsafe {
        libbpf_sys::libbpf_find_vmlinux_btf_id(
            TRIAL_FUNCTION.as_ptr(),
            libbpf_sys::BPF_TRACE_FENTRY,
        )
    };
    if id < 0 {
        return Err(io::Error::from_raw_os_error(-id));
    }
    let options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
        expected_attach_type: libbpf_sys::BPF_TRACE_FENTRY,
        attach_btf_id: id as u32,
        ..Default::default()
    };
    // SAFETY: names, instructions and options outlive the call, which only reads them.
    let program = owned(unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_TRACING,
            c"debox_doctor".as_ptr(),
            c"GPL".as_ptr(),
            return_0.as_ptr(),
            return_0.len() as _,
            std::ptr::from_ref(&options).cast_mut(),
        )
    })?;
    // SAFETY: fentry programs have no name to be opened by; the descriptor is open.
    let link =
        unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) };
    owned(link).map(drop)
}

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
    cycles.set_exclude_kernel(1); // which any user may count, unless perf_event_paranoid forbids it
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

/// The kernel's error in the words that people meet elsewhere.
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
