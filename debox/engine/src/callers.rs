//! Finds the frame of a user stack that is the program's own: not the C library's, not a language runtime's.

use std::ffi::{CStr, CString};

use crate::frame::{Frame, Kind};

/// Libraries between programs and system calls, by the beginnings of their file names.
const LIBRARIES: &[&str] = &[
    "libc.so",
    "libc-2.",
    "libc.musl",
    "libpthread",
    "ld-linux",
    "ld-musl",
    "libdebox_preload.so", // the user tap's shim
    "libstdc++",
    "libc++",
    "[vdso]",
];

/// Standard libraries that are linked into the program, by the beginnings of their functions' names. For Go, the
/// packages through which calls are made, and those that compute for their caller.
const PACKAGES: &[&str] = &[
    "syscall.",
    "internal/",
    "runtime.",
    "runtime/",
    "os.",
    "io.",
    "bufio.",
    "sort.",
    "slices.",
    "maps.",
    "cmp.",
    "strings.",
    "bytes.",
    "strconv.",
    "unicode/",
    "math.",
    "math/",
    "hash.",
    "hash/",
    "container/",
    "std::",
    "core::",
    "alloc::",
];

/// The classes of HotSpot in which threads sleep, in `libjvm.so`.
const WAITS_OF_HOTSPOT: &[&str] = &[
    "os::PlatformEvent::",
    "os::PlatformMonitor::",
    "Parker::",
    "Monitor::",
    "Mutex::",
    "ObjectMonitor::",
    "ObjectSynchronizer::",
];

/// Functions of glibc that make system calls but are neither exported nor named as the C standard requires, by the
/// beginnings of their names.
const INSIDE_LIBC: &[&str] = &[
    "new_do_write",
    "sysmalloc",
    "systrim",
    "ptmalloc_init",
    "tcache_",
    "malloc_consolidate",
    "munmap_chunk",
    "mremap_chunk",
    "grow_heap",
    "shrink_heap",
    "new_heap",
    "heap_trim",
    "start_thread",
    "create_thread",
    "allocate_stack",
    "printf_positional",
];

/// Whether a function only passes calls on. `module`: the file name of its library or program. `is_static`: the C
/// library is linked into it.
pub(crate) fn is_plumbing(module: &str, is_static: bool, function: &str) -> bool {
    let name = function.trim_start_matches(['<', '&']);
    let begins = |names: &[&str]| names.iter().any(|begin| name.starts_with(begin));
    is_library(module)
        || module.starts_with("libjvm.so") && begins(WAITS_OF_HOTSPOT)
        || begins(PACKAGES)
        || (is_static && is_of_libc(name))
}

/// Whether a file's functions only pass calls on.
pub(crate) fn is_library(module: &str) -> bool {
    LIBRARIES.iter().any(|library| module.starts_with(library))
}

/// Whether a C function of a static program is the C library's. The C standard (7.1.3) reserves names that begin
/// with an underscore for the implementation; the library's other exports are looked up in the C library of this
/// process.
fn is_of_libc(function: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = &function[..function.find(|c| !is_part(c)).unwrap_or(function.len())];
    if function[name.len()..].starts_with("::") {
        return false; // C++ or Rust
    }
    name.starts_with('_')
        || INSIDE_LIBC.iter().any(|inside| name.starts_with(inside))
        || is_exported_by_libc(name)
}

fn is_exported_by_libc(name: &str) -> bool {
    let Ok(name) = CString::new(name) else {
        return false;
    };
    // SAFETY: both only look up names and addresses; on success, dladdr fills in its whole argument, with strings
    // that stay as long as the library is loaded.
    let file = unsafe {
        let address = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let mut found: libc::Dl_info = std::mem::zeroed();
        if address.is_null() || libc::dladdr(address, &mut found) == 0 || found.dli_fname.is_null()
        {
            return false;
        }
        CStr::from_ptr(found.dli_fname).to_string_lossy()
    };
    let file = file.rsplit('/').next().unwrap_or_default();
    LIBRARIES.iter().any(|library| file.starts_with(library))
}

/// The beginnings of names of code that is made at run time and is not the program's: handlers and stubs of V8 and
/// HotSpot.
const STUBS: &[&str] = &[
    "Builtin:",
    "BytecodeHandler:",
    "Handler:",
    "RegExp:",
    "Stub:",
    "Interpreter",
    "StubRoutines",
    "call_stub",
    "vtable ",
    "itable ",
];

/// Parts of the names of functions of a language's own library that is written in that language: Node's modules,
/// and CPython's frozen ones.
const LIBRARIES_OF_SCRIPTS: &[&str] = &[" node:", ":<frozen "];

/// Whether a frame is a function of a script, or of another program that is compiled at run time.
pub(crate) fn is_of_script(frame: &Frame) -> bool {
    let name = &frame.function;
    let is_of_library = |library: &&str| name.contains(library);
    frame.kind == Kind::Made
        && !STUBS.iter().any(|stub| name.starts_with(stub))
        && !LIBRARIES_OF_SCRIPTS.iter().any(is_of_library)
}

/// A remark for the missing frames after a function in which Go switches to a thread's own stack: the goroutine's
/// frames are elsewhere in memory, and its tables end here.
pub(crate) fn after_switch(frame: &Frame) -> Option<&'static str> {
    let switches = ["systemstack", "mcall", "morestack", "asmcgocall"];
    let name = frame.function.strip_prefix("runtime.")?;
    let is_whole =
        |rest: &str| (rest.is_empty() && frame.offset.is_some()) || rest.starts_with('.');
    switches
        .iter()
        .any(|switch| name.strip_prefix(switch).is_some_and(is_whole))
        .then_some("(further frames: on the stack of a goroutine, which Go's runtime left here)")
}

/// Whether a function has no caller, although the tables do not say so: Go starts its threads there.
pub(crate) fn is_outermost(frame: &Frame) -> bool {
    let first = ["runtime.rt0_go", "runtime.clone", "runtime.goexit"];
    frame.offset.is_some() && first.contains(&frame.function.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(frame: &str) -> String {
        Frame::from(frame).function
    }

    #[test]
    fn functions_of_scripts_are_the_programs_own_and_their_runtimes_are_not() {
        for own in [
            "JS:^answer /app/server.js:2:23+0x333 (jit)",
            "py::handle:/app/main.py+0xb (jit)",
            "Lapp/Server;::answer+0x10 (jit)",
        ] {
            assert!(is_of_script(&own.into()), "{own}");
        }
        for other in [
            "JS:^openSync node:fs:570:18+0x23a (jit)",
            "py::_find_and_load:<frozen importlib._bootstrap>+0xb (jit)",
            "Builtin:ArrayMap+0x3 (jit)",
            "Interpreter+0x3 (jit)",
            "answer+0x10 (server.c:3)",
        ] {
            assert!(!is_of_script(&other.into()), "{other}");
        }
    }

    #[test]
    fn wrappers_are_not_the_program() {
        for (module, function) in [
            ("libc.so.6", "__GI___libc_read+0xd (read.c:26)"),
            ("ld-musl-x86_64.so.1", "fread+0x10"),
            ("[vdso]", "clock_gettime+0x1"),
            ("libdebox_preload.so", "read+0xaf (calls.def:9)"),
            ("server", "syscall.Syscall+0x46 (syscall_linux.go:87)"),
            ("server", "internal/poll.(*FD).Read+0x21d (fd_unix.go:161)"),
            (
                "server",
                "slices.insertionSortOrdered[...]+0x46 (zsortordered.go:15)",
            ),
            (
                "tool",
                "<&std::fs::File as std::io::Read>::read (inlined) (fs.rs:1334)",
            ),
        ] {
            let name = name(function);
            assert!(is_plumbing(module, false, &name), "{module} {function}");
        }
        for (module, function) in [
            ("server", "main.serve+0x10 (main.go:3)"),
            (
                "tool",
                "<tool::Log as std::io::Write>::write+0x4 (log.rs:9)",
            ),
            ("libcurl.so.4", "curl_easy_perform+0x1"),
            ("program", "read_block+0x52 (store.c:210)"),
        ] {
            let name = name(function);
            assert!(!is_plumbing(module, false, &name), "{module} {function}");
        }
    }

    #[test]
    fn a_static_program_has_wrappers_of_its_own() {
        for function in [
            "read+0xd (program)",
            "__libc_read+0x10 (program)",
            "_IO_new_file_underflow+0x2f (program)",
            "fread+0x75 (iofread.c:38)",
            "new_do_write+0x61 (program)",
            "tcache_init.part.0+0x35 (program)",
            "_start+0x21 (program)",
        ] {
            let name = name(function);
            assert!(is_plumbing("program", true, &name), "{function}");
            let is_known = function.starts_with('_');
            assert!(!is_plumbing("program", false, &name) || !is_known);
        }
        for function in [
            "main+0x21 (program.c:3)",
            "read_block+0x52 (store.c:210)",
            "read::all+0x1 (store.rs:2)",
            "main.read+0x10 (main.go:3)",
            "inlined_helper (inlined) (program.c:7)",
        ] {
            assert!(!is_plumbing("program", true, &name(function)), "{function}");
        }
    }

    #[test]
    fn a_java_thread_waits_for_whoever_asked_the_virtual_machine() {
        for wait in [
            "os::PlatformEvent::park()+0x9c (libjvm.so)",
            "ObjectMonitor::enter(JavaThread*)+0x268 (libjvm.so)",
            "Parker::park(bool, long)+0x1c8 (libjvm.so)",
        ] {
            assert!(is_plumbing("libjvm.so", false, &name(wait)), "{wait}");
            assert!(!is_plumbing("server", false, &name(wait)), "{wait}");
        }
        let other = name("CompileBroker::compiler_thread_loop()+0x4b0 (libjvm.so)");
        assert!(!is_plumbing("libjvm.so", false, &other));
    }

    #[test]
    fn go_leaves_a_goroutine_in_few_places() {
        assert!(after_switch(&"runtime.systemstack+0x4a (asm_amd64.s:562)".into()).is_some());
        assert!(after_switch(&"runtime.mcall+0x55 (asm_amd64.s:496)".into()).is_some());
        assert!(after_switch(&"runtime.systemstack_switch2+0x1 (asm_amd64.s:1)".into()).is_none());
        assert!(after_switch(&"main.mcall+0x1 (main.go:1)".into()).is_none());
    }
}
