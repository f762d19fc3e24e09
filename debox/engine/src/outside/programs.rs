//! Programs and libraries, which any user may have made, and where they are mapped.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::{look_up, Source};
use crate::process::{parse_maps, Processes};
use crate::stacks::tables::Tables;
use crate::stacks::Stacks;
use crate::symbols::Symbols;
use crate::tables::{self, types};
use crate::unwind;

/// Parses the text of `/proc/PID/maps`, and looks up addresses in it. Paths in it are opened, so
/// files that exist are read as programs.
pub fn mappings(bytes: &[u8]) {
    let Some(maps) = parse_maps(bytes) else {
        return;
    };
    let mut processes = Processes::default();
    processes.add_mappings(1, &maps);
    let symbols = Symbols::default();
    for map in maps.iter().take(8) {
        for ip in [map.address.0, map.address.1.wrapping_sub(1), map.address.1] {
            let _ = processes.wrapper(1, ip);
            look_up(&processes, &symbols, 1, ip, true);
        }
    }
}

/// A memory file with a path that opens it.
pub fn memory_file(bytes: &[u8]) -> (File, PathBuf) {
    // SAFETY: the name is a valid C string; nothing else owns the new descriptor.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"debox-any-program".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0, "no memory file");
        File::from_raw_fd(fd)
    };
    file.write_all(bytes).expect("memory");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    (file, path)
}

/// Reads a program or a library, and looks up offsets of code in it.
pub fn program(bytes: &[u8], offsets: &[u64]) {
    let (file, path) = memory_file(bytes);
    let first = unwind::first_code_offset(&file);
    let tables = Tables::read(&path);
    let symbols = Symbols::default();
    for offset in offsets.iter().copied().chain(first) {
        let _ = tables
            .rule(offset)
            .as_ref()
            .and_then(unwind::return_address);
        let text = format!("1000-9000 r-xp {offset:08x} 00:01 7 {}\n", path.display());
        let Some(maps) = parse_maps(text.as_bytes()) else {
            continue;
        };
        let mut processes = Processes::default();
        processes.add_mappings(1, &maps);
        look_up(&processes, &symbols, 1, 0x1000, false);
        look_up(&processes, &symbols, 1, 0x1001, true);
    }
}

/// Unwinds a stack by a program's tables. The first [`ASK`] bytes are the message as the probes
/// send it, then come the [`STACK`] bytes of the stack, then the program.
pub fn unwinding(bytes: &[u8]) {
    let Some((header, rest)) = bytes.split_at_checked(ASK) else {
        return;
    };
    let Some((stack, program)) = rest.split_at_checked(STACK) else {
        return;
    };
    let (file, path) = memory_file(program);
    let metadata = file.metadata().expect("a memory file");
    let mut source = Source(header);
    let mut ask: types::stack_ask = source.value();
    // Process ids in the input would refer to processes of this machine, which are not part of the
    // test.
    (ask.tgid, ask.parent) = (0, 0);
    let code = types::mapped_file {
        start: CODE,
        end: CODE + (program.len() as u64).max(1),
        inode: metadata.ino(),
        device: libc::major(metadata.dev()) << 20 | libc::minor(metadata.dev()),
        ..types::mapped_file::default()
    };
    ask.at_ip = code;
    if ask.program.inode != 0 {
        ask.program = code;
    }
    ask.ip = CODE + ask.ip % (code.end - CODE);

    let mut processes = Processes::default();
    let mut stacks = Stacks::default();
    let message = |ask: &types::stack_ask, rest: &[u8]| [tables::bytes_of(ask), rest].concat();
    let path = std::ffi::CString::new(path.into_os_string().into_encoded_bytes());
    let opened = types::stack_ask { name: 0, ..ask };
    let path = path.expect("a path without zeros");
    stacks.take(&message(&opened, path.as_bytes_with_nul()), &mut processes);
    for name in 1..4 {
        let named = types::stack_ask { name, ..ask };
        let answer = stacks.take(&message(&named, stack), &mut processes);
        if let Some(answer) = answer {
            let way = answer.key.way & !tables::WAY_INTERRUPTED;
            assert!(answer.shape.name == name && way < 4);
        }
        let (frames, _) = stacks.frames(name).expect("it has just been kept");
        assert!(!frames.is_empty() && frames.len() <= 64);
        // The same call one page further up, as if the program had more arguments.
        ask.sp = ask.sp.wrapping_add(4096);
    }
    stacks.take(bytes, &mut processes);
}

/// Bytes of a message of the probes before those of the stack.
pub const ASK: usize = 512;
/// Bytes of the stack.
pub const STACK: usize = 512;
const CODE: u64 = 0x40_0000;
