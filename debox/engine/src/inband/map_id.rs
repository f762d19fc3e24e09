// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which map a descriptor stands for, asked without allocation.

use std::cell::UnsafeCell;

use crate::record::Slot;

/// The attributes of BPF_OBJ_GET_INFO_BY_FD, at a fixed address by which the library's own call is recognised.
#[repr(C)]
struct InfoRequest {
    fd: u32,
    length: u32,
    info: *mut libbpf_rs::libbpf_sys::bpf_map_info,
}

struct Shared(UnsafeCell<InfoRequest>);

unsafe impl Sync for Shared {}

static INFO_REQUEST: Shared = Shared(UnsafeCell::new(InfoRequest {
    fd: 0,
    length: 0,
    info: std::ptr::null_mut(),
}));

/// The address of the attributes that [`map_id_of`] uses.
pub(super) fn info_request() -> usize {
    INFO_REQUEST.0.get() as usize
}

/// The map that a descriptor stands for now; 0 if it is not a map. No allocation. The caller holds the
/// lock, or is the child of a fork.
pub(super) fn map_id_of(fd: i32) -> u32 {
    let mut info = libbpf_rs::libbpf_sys::bpf_map_info::default();
    let request = InfoRequest {
        fd: fd as u32,
        length: std::mem::size_of_val(&info) as u32,
        info: &mut info,
    };
    // SAFETY: nothing else uses the request, and what it points to is valid for writing.
    let failed = unsafe {
        *INFO_REQUEST.0.get() = request;
        let size = std::mem::size_of::<InfoRequest>();
        let command = libbpf_rs::libbpf_sys::BPF_OBJ_GET_INFO_BY_FD;
        libc::syscall(libc::SYS_bpf, command, INFO_REQUEST.0.get(), size)
    };
    // A program or a link would fill the same bytes; only a map has this value size.
    let is_slots = failed == 0 && info.value_size as usize == std::mem::size_of::<Slot>();
    if is_slots {
        info.id
    } else {
        0
    }
}
