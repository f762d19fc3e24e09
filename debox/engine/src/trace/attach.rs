//! Attaches one probe to many functions at once.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys;

use super::attached::Attached;
use super::kernel_functions::Function;
use crate::kernel::objects::owned;

/// The kind of probe of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Session,
    Entry,
    Return,
}

impl Kind {
    pub fn attach_type(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Kind::Session => libbpf_sys::BPF_TRACE_KPROBE_SESSION,
            Kind::Entry | Kind::Return => libbpf_sys::BPF_TRACE_KPROBE_MULTI,
        }
    }

    fn flags(self) -> u32 {
        match self {
            Kind::Return => libbpf_sys::BPF_F_KPROBE_MULTI_RETURN,
            Kind::Session | Kind::Entry => 0,
        }
    }
}

fn link(
    program: BorrowedFd,
    kind: Kind,
    count: usize,
    names: *const *const libc::c_char,
    addresses: *const u64,
) -> io::Result<OwnedFd> {
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        ..Default::default()
    };
    options.__bindgen_anon_1.kprobe_multi.flags = kind.flags();
    options.__bindgen_anon_1.kprobe_multi.cnt = count as u32;
    options.__bindgen_anon_1.kprobe_multi.syms = names.cast_mut().cast();
    options.__bindgen_anon_1.kprobe_multi.addrs = addresses.cast();
    // SAFETY: the options, and the `count` names or addresses that they point to, outlive the call.
    owned(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), 0, kind.attach_type(), &options)
    })
}

/// Attaches to one function, by its name.
pub(super) fn by_name(program: BorrowedFd, kind: Kind, name: &CStr) -> io::Result<OwnedFd> {
    link(program, kind, 1, &name.as_ptr(), std::ptr::null())
}

/// Attaches an fentry or fexit program to the function that it was loaded for.
pub(super) fn to_its_function(program: BorrowedFd) -> io::Result<OwnedFd> {
    // SAFETY: such programs have no name to be opened by; the descriptor is open.
    owned(unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) })
}

/// Attaches each program to all functions, and returns how many there were in the end. The kernel
/// accepts all of them or none: functions that it rejects are found by bisection.
pub(super) fn many(
    programs: &[(BorrowedFd, Kind)],
    functions: &[Function],
    attached: &mut Attached,
    denied: &mut BTreeMap<String, Vec<String>>,
) -> Result<usize> {
    let mut refused: Vec<(usize, String)> = Vec::new();
    let mut waiting = vec![functions.iter().collect::<Vec<_>>()];
    let mut count = 0;
    while let Some(part) = waiting.pop() {
        if part.is_empty() {
            continue;
        }
        let addresses: Vec<u64> = part.iter().map(|function| function.address).collect();
        let all = programs.iter().map(|(program, kind)| {
            link(
                *program,
                *kind,
                addresses.len(),
                std::ptr::null(),
                addresses.as_ptr(),
            )
        });
        match all.collect::<io::Result<Vec<OwnedFd>>>() {
            Ok(links) => {
                count += part.len();
                attached.descriptors.extend(links);
            }
            Err(error) if part.len() == 1 => {
                let functions = denied
                    .entry(format!("refused by the kernel: {error}"))
                    .or_default();
                functions.push(part[0].name.clone());
                refused.push((count, part[0].name.clone()));
            }
            Err(error) if refused.len() > 100 => {
                return Err(error).context("the kernel refuses to probe its functions");
            }
            Err(_) => {
                let (first, second) = part.split_at(part.len() / 2);
                waiting.push(second.to_vec());
                waiting.push(first.to_vec());
            }
        }
    }
    if count == 0 {
        anyhow::bail!("the kernel refuses to probe any of the functions");
    }
    Ok(count)
}

/// How many functions were entered while the kernel had no place left to track their return.
pub(super) fn missed_by_link(link: &OwnedFd) -> u64 {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: `info` and `size` are valid for writing and `size` is the size of `info`.
    let failed = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(
            link.as_raw_fd(),
            std::ptr::from_mut(&mut info).cast(),
            &mut size,
        )
    };
    if failed != 0 || info.type_ != libbpf_sys::BPF_LINK_TYPE_KPROBE_MULTI {
        return 0;
    }
    // SAFETY: the type says which member of the union the kernel wrote, and all were zero before.
    unsafe { info.__bindgen_anon_1.kprobe_multi.missed }
}
