//! Finds the methods that the kernel offers for tracing functions, by trying them on a function that
//! the kernel has for tests.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

use super::attach::{self, Kind};
use super::kernel_functions::KernelFunctions;
use super::method::{Method, Offer};
use crate::kernel::objects::owned;

/// A function that the kernel has for tests like this one; nothing else calls it.
const TRIAL_FUNCTION: &CStr = c"bpf_fentry_test1";

/// The methods that this kernel offers, the best first. Each is tried; nothing stays in the kernel.
pub fn offers() -> Vec<Offer> {
    // Without the list, no function can be chosen, whatever the method.
    let no_list = KernelFunctions::read()
        .err()
        .map(|error| format!("{error:#}"));
    let lack = |method| {
        let trial = match method {
            Method::Session => try_many(&[Kind::Session]),
            Method::Multi => try_many(&[Kind::Entry, Kind::Return]),
            Method::Pairs => try_pair(),
            Method::Sampled => return None,
        };
        let lack = trial.err().map(|error| reason(&error));
        lack.or_else(|| no_list.clone())
    };
    let offer = |method| Offer {
        method,
        lack: lack(method),
    };
    Method::ALL.map(offer).to_vec()
}

/// The kernel's error in its usual wording.
fn reason(error: &io::Error) -> String {
    /// An error of the kernel's own, which no C library knows.
    const ENOTSUPP: i32 = 524;
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | ENOTSUPP | libc::EINVAL) => {
            "not built into this kernel".to_string()
        }
        Some(libc::EPERM | libc::EACCES) => "refused by this kernel".to_string(),
        Some(libc::ESRCH | libc::ENOENT) => "no function to try it on".to_string(),
        _ => error.to_string(),
    }
}

fn try_many(kinds: &[Kind]) -> io::Result<()> {
    for kind in kinds {
        let options = libbpf_sys::bpf_prog_load_opts {
            sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
            expected_attach_type: kind.attach_type(),
            ..Default::default()
        };
        let program = load_nothing(libbpf_sys::BPF_PROG_TYPE_KPROBE, options)?;
        attach::by_name(program.as_fd(), *kind, TRIAL_FUNCTION)?;
    }
    Ok(())
}

fn try_pair() -> io::Result<()> {
    for kind in [libbpf_sys::BPF_TRACE_FENTRY, libbpf_sys::BPF_TRACE_FEXIT] {
        // SAFETY: the name is a C string.
        let id = unsafe { libbpf_sys::libbpf_find_vmlinux_btf_id(TRIAL_FUNCTION.as_ptr(), kind) };
        if id < 0 {
            return Err(io::Error::from_raw_os_error(-id));
        }
        let options = libbpf_sys::bpf_prog_load_opts {
            sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
            expected_attach_type: kind,
            attach_btf_id: id as u32,
            ..Default::default()
        };
        let program = load_nothing(libbpf_sys::BPF_PROG_TYPE_TRACING, options)?;
        attach::to_its_function(program.as_fd())?;
    }
    Ok(())
}

/// A program that returns 0.
fn load_nothing(
    kind: libbpf_sys::bpf_prog_type,
    options: libbpf_sys::bpf_prog_load_opts,
) -> io::Result<OwnedFd> {
    const EXIT: u8 = 0x95; // BPF_JMP | BPF_EXIT
    const MOVE: u8 = 0xb7; // BPF_ALU64 | BPF_MOV | BPF_K
    let instruction = |code| libbpf_sys::bpf_insn {
        code,
        ..Default::default()
    };
    let return_0 = [instruction(MOVE), instruction(EXIT)];
    // SAFETY: names, instructions and options outlive the call, which only reads them.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            c"debox_trial".as_ptr(),
            c"GPL".as_ptr(),
            return_0.as_ptr(),
            return_0.len() as _,
            std::ptr::from_ref(&options).cast_mut(),
        )
    };
    owned(fd)
}

/// Whether a descriptor is open; programs that were not loaded have none.
pub(super) fn is_open(fd: &impl AsRawFd) -> bool {
    fd.as_raw_fd() >= 0
}
