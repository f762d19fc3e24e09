//! The kernel's BPF objects, by their ids. Looking them up takes `CAP_SYS_ADMIN`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys;

/// A new descriptor, or the error that its negative value stands for.
pub(crate) fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the descriptor is new and owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a map again. The state of the new open file (its flags, and locks, which are kernel memory) is
/// released with the holders of the new descriptor.
pub(crate) fn map_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes a number.
    owned(unsafe { libbpf_sys::bpf_map_get_fd_by_id(id) })
}

pub(crate) fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes a number.
    owned(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) })
}

pub(crate) fn link_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes a number.
    owned(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) })
}

/// The next program's id. Fails with `NotFound` after the last one.
pub(crate) fn next_program_id(after: u32) -> io::Result<u32> {
    let mut next = 0;
    // SAFETY: `next` is valid for writing.
    match unsafe { libbpf_sys::bpf_prog_get_next_id(after, &mut next) } {
        0 => Ok(next),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Fills in `info`, one of the kernel's structs for that kind of object.
fn ask<T>(fd: BorrowedFd, info: &mut T) -> io::Result<()> {
    let mut size = std::mem::size_of::<T>() as u32;
    // SAFETY: `info` and `size` are valid for writing, and `size` is the size of `info`.
    let failed = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(
            fd.as_raw_fd(),
            std::ptr::from_mut(info).cast(),
            &mut size,
        )
    };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(-failed));
    }
    Ok(())
}

pub(crate) fn map_info(fd: BorrowedFd) -> io::Result<libbpf_sys::bpf_map_info> {
    let mut info = libbpf_sys::bpf_map_info::default();
    ask(fd, &mut info)?;
    Ok(info)
}

/// The kernel's id of a map.
pub(crate) fn map_id(fd: BorrowedFd) -> io::Result<u32> {
    Ok(map_info(fd)?.id)
}

pub(crate) fn link_info(fd: BorrowedFd) -> io::Result<libbpf_sys::bpf_link_info> {
    let mut info = libbpf_sys::bpf_link_info::default();
    ask(fd, &mut info)?;
    Ok(info)
}

/// The kernel's information about a program, and the ids of up to `N` of its maps.
pub(crate) fn program_info<const N: usize>(
    fd: BorrowedFd,
) -> io::Result<(libbpf_sys::bpf_prog_info, [u32; N])> {
    let mut maps = [0; N];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: N as u32,
        map_ids: maps.as_mut_ptr() as u64,
        ..Default::default()
    };
    ask(fd, &mut info)?;
    Ok((info, maps))
}

/// A name as the kernel keeps it: at most 15 bytes.
pub(crate) fn name_of(name: &[std::ffi::c_char]) -> Vec<u8> {
    let bytes = name.iter().map(|byte| *byte as u8);
    bytes.take_while(|byte| *byte != 0).collect()
}

/// Whether the kernel has released a map: no descriptor or mapping holds it. Without the privilege to
/// check, the result is false.
pub(crate) fn map_is_gone(id: u32) -> bool {
    map_by_id(id).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Runs a task iterator program over the tasks of one process or over all.
pub(crate) fn walk_tasks(program: BorrowedFd, process: Option<BorrowedFd>) -> Result<()> {
    let mut info = libbpf_sys::bpf_iter_link_info::default();
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: std::mem::size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        ..Default::default()
    };
    if let Some(process) = process {
        info.task.pid_fd = process.as_raw_fd() as u32;
        options.iter_info = &mut info;
        options.iter_info_len = std::mem::size_of_val(&info) as u32;
    }
    // SAFETY: the program is loaded, and options and info live as long as the call.
    let link = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), 0, libbpf_sys::BPF_TRACE_ITER, &options)
    };
    let link = owned(link).context("cannot walk the tasks")?;
    // SAFETY: the link is open.
    let walk = owned(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) });
    let mut walk = std::fs::File::from(walk.context("cannot walk the tasks")?);
    io::copy(&mut walk, &mut io::sink()).context("cannot walk the tasks")?;
    Ok(())
}
