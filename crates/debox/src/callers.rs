//! Which frame of a user stack is the program's own: not the C library, not a language's runtime.

/// Libraries that stand between programs and system calls, by how their file names begin.
const LIBRARIES: &[&str] = &[
    "libc.so",
    "libc-2.",
    "libc.musl",
    "libpthread",
    "ld-linux",
    "ld-musl",
    "libstdc++",
    "libc++",
    "[vdso]",
];

/// Standard libraries that are linked into the program, by how their functions' names begin.
const PACKAGES: &[&str] = &[
    "syscall.",
    "internal/",
    "runtime.",
    "runtime/",
    "os.",
    "io.",
    "bufio.",
    "std::",
    "core::",
    "alloc::",
];

/// Whether a function only hands calls on. `module`: the file name of its library or program.
pub(crate) fn is_plumbing(module: &str, function: &str) -> bool {
    let name = function.trim_start_matches(['<', '&']);
    LIBRARIES.iter().any(|library| module.starts_with(library))
        || PACKAGES.iter().any(|package| name.starts_with(package))
}

/// Whether nothing calls a function, though the tables do not say so: Go begins its threads there.
pub(crate) fn is_outermost(function: &str) -> bool {
    ["runtime.rt0_go+", "runtime.clone+", "runtime.goexit+"]
        .iter()
        .any(|first| function.starts_with(first))
}

#[cfg(test)]
mod tests {
    use super::is_plumbing;

    #[test]
    fn wrappers_are_not_the_program() {
        for (module, function) in [
            ("libc.so.6", "__GI___libc_read+0xd (read.c:26)"),
            ("ld-musl-x86_64.so.1", "fread+0x10"),
            ("[vdso]", "clock_gettime+0x1"),
            ("server", "syscall.Syscall+0x46 (syscall_linux.go:87)"),
            ("server", "internal/poll.(*FD).Read+0x21d (fd_unix.go:161)"),
            (
                "tool",
                "<&std::fs::File as std::io::Read>::read (inlined) (fs.rs:1334)",
            ),
        ] {
            assert!(is_plumbing(module, function), "{module} {function}");
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
            assert!(!is_plumbing(module, function), "{module} {function}");
        }
    }
}
