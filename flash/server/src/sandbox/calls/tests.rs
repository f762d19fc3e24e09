// SPDX-License-Identifier: MIT OR Apache-2.0
use std::os::unix::process::ExitStatusExt;

use super::*;

/// Names the call that the program makes which another test starts.
const CALL: &str = "FLASH_TEST_CALL";

type Call = (c_long, [c_long; 4]);

const LOOP_ROLE: Role = Role::Loop { inbox: 1000 };

/// The errors of calls in a thread with the filter of a role alone: Landlock refuses some of them as well.
fn errors(role: Role, calls: &[Call]) -> Vec<Option<i32>> {
    let one = |(call, [a, b, c, d]): &Call| {
        // SAFETY: no pointer among the arguments is valid, and no argument names anything of this process.
        let result = unsafe { libc::syscall(*call, *a, *b, *c, *d, 0, 0) };
        (result < 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            restrict(role, &Paths::default()).expect("this kernel has seccomp");
            calls.iter().map(one).collect()
        });
        thread.join().expect("no panic")
    })
}

#[track_caller]
fn all_are_refused(role: Role, calls: &[Call]) {
    for (call, error) in calls.iter().zip(errors(role, calls)) {
        assert_eq!(error, Some(libc::EPERM), "{role:?}: {call:?}");
    }
}

fn flags(flags: i32) -> c_long {
    flags.into()
}

/// Without the filter each of these fails with another error, or succeeds.
#[test]
fn no_role_reaches_beyond_its_process_and_its_files() {
    let executable = flags(libc::PROT_READ | libc::PROT_EXEC);
    let calls = [
        (
            libc::SYS_socket,
            [flags(libc::AF_INET), flags(libc::SOCK_STREAM), 0, 0],
        ),
        (libc::SYS_connect, [-1, 0, 0, 0]),
        (libc::SYS_bind, [-1, 0, 0, 0]),
        (libc::SYS_kill, [1, 0, 0, 0]),
        (libc::SYS_tgkill, [1, 1, 0, 0]),
        (libc::SYS_prctl, [flags(libc::PR_GET_DUMPABLE), 0, 0, 0]),
        (libc::SYS_fcntl, [-1, flags(libc::F_SETFL), 0, 0]),
        (libc::SYS_fcntl, [-1, flags(libc::F_DUPFD), 0, 0]),
        (libc::SYS_mprotect, [0, 4096, executable, 0]),
        (
            libc::SYS_mmap,
            [
                0,
                4096,
                executable,
                flags(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
            ],
        ),
        (libc::SYS_unlinkat, [-1, 0, 0, 0]),
        (libc::SYS_renameat2, [-1, 0, -1, 0]),
        (libc::SYS_mkdirat, [-1, 0, 0, 0]),
        (libc::SYS_linkat, [-1, 0, -1, 0]),
        (libc::SYS_symlinkat, [0, -1, 0, 0]),
        (libc::SYS_fchmodat, [-1, 0, 0, 0]),
        (libc::SYS_fchownat, [-1, 0, 0, 0]),
        (libc::SYS_ftruncate, [-1, 0, 0, 0]),
        (libc::SYS_fsync, [-1, 0, 0, 0]),
        (libc::SYS_setuid, [0, 0, 0, 0]),
        (libc::SYS_setrlimit, [-1, 0, 0, 0]),
        (libc::SYS_memfd_create, [0, 0, 0, 0]),
        (libc::SYS_ioctl, [-1, 0, 0, 0]),
    ];
    for role in [
        LOOP_ROLE,
        Role::Helper,
        Role::Password,
        Role::Log,
        Role::Messages,
    ] {
        all_are_refused(role, &calls);
    }
}

#[test]
fn each_role_has_no_call_of_another() {
    // A thread that shares no signal handlers does not exist, so nothing is started even if the call is allowed.
    let thread = (libc::SYS_clone, [flags(libc::CLONE_THREAD), 0, 0, 0]);
    let reads = [-1, 0, flags(libc::O_RDONLY), 0];
    all_are_refused(
        LOOP_ROLE,
        &[
            thread,
            (libc::SYS_openat, reads),
            (libc::SYS_read, [-1, 0, 0, 0]),
            (libc::SYS_pread64, [-1, 0, 0, 0]),
            (libc::SYS_getdents64, [-1, 0, 0, 0]),
            (libc::SYS_ppoll, [0, 0, -1, 0]),
        ],
    );
    all_are_refused(
        Role::Helper,
        &[
            (libc::SYS_openat, [-1, 0, flags(libc::O_WRONLY), 0]),
            (libc::SYS_openat, [-1, 0, flags(libc::O_RDWR), 0]),
            (libc::SYS_openat, [-1, 0, flags(libc::O_CREAT), 0]),
            (libc::SYS_openat, [-1, 0, flags(libc::O_TRUNC), 0]),
            (libc::SYS_accept4, [-1, 0, 0, 0]),
            (libc::SYS_sendmsg, [-1, 0, 0, 0]),
            (libc::SYS_recvfrom, [-1, 0, 0, 0]),
        ],
    );
    all_are_refused(
        Role::Log,
        &[
            thread,
            (libc::SYS_openat2, [-1, 0, 0, 0]),
            (libc::SYS_pread64, [-1, 0, 0, 0]),
            (libc::SYS_accept4, [-1, 0, 0, 0]),
            (libc::SYS_sendmsg, [-1, 0, 0, 0]),
            (libc::SYS_recvfrom, [-1, 0, 0, 0]),
        ],
    );
    for role in [Role::Password, Role::Messages] {
        all_are_refused(
            role,
            &[
                (libc::SYS_openat, reads),
                (libc::SYS_openat2, [-1, 0, 0, 0]),
                (libc::SYS_pread64, [-1, 0, 0, 0]),
                (libc::SYS_accept4, [-1, 0, 0, 0]),
                (libc::SYS_sendmsg, [-1, 0, 0, 0]),
                (libc::SYS_recvfrom, [-1, 0, 0, 0]),
            ],
        );
    }
    // What each needs reaches the kernel, where the descriptor is wrong.
    for (role, call) in [
        (LOOP_ROLE, libc::SYS_accept4),
        (Role::Helper, libc::SYS_pread64),
        (Role::Log, libc::SYS_openat),
    ] {
        let error = errors(role, &[(call, [-1, 0, 0, 0])]);
        assert_ne!(error, [Some(libc::EPERM)], "{role:?}");
    }
}

#[test]
fn hostile_calls_end_the_process_of_any_role() {
    let this = std::env::current_exe().expect("a path");
    for call in HOSTILE {
        let output = std::process::Command::new(&this)
            .args([
                "--exact",
                "--ignored",
                "sandbox::calls::tests::makes_a_call",
            ])
            .env(CALL, call.to_string())
            .output()
            .expect("it can be executed");
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGSYS),
            "{call}: {output:?}"
        );
    }
    // Those that would matter most; the list may grow, but not lose them.
    for call in [
        libc::SYS_bpf,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_io_uring_setup,
        libc::SYS_mount,
        libc::SYS_process_vm_writev,
        libc::SYS_ptrace,
        libc::SYS_setns,
        libc::SYS_unshare,
        libc::SYS_userfaultfd,
    ] {
        assert!(HOSTILE.contains(&call), "{call}");
    }
}

#[test]
#[ignore = "it ends the process; another test runs it"]
fn makes_a_call() {
    let call = std::env::var(CALL).expect("a call");
    errors(Role::Main, &[(call.parse().expect("a number"), [-1; 4])]);
}
