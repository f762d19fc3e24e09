// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system calls of each role. All others fail with EPERM; those that only an attacker makes end the process.
//!
//! A call that a new function of a thread needs has to be added here. The tests of the whole server, which run with the
//! sandbox, show when one is missing.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    apply_filter, BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::force::Part;
use super::roles::{Paths, Reach, Role};

/// Linux 6.5; the C library does not have it yet.
const CACHESTAT: c_long = 451;

/// Memory, time, locks, and the end: what the standard library needs in any thread.
const COMMON: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

const LOOP: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_openat2,
    libc::SYS_recvfrom,
    libc::SYS_sendfile,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_statx,
    CACHESTAT,
];

const PATHS: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    // Who a client is.
    libc::SYS_getsockopt,
    libc::SYS_openat2,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_statx,
];

const HELPER: &[c_long] = &[
    // Starts further helpers.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fadvise64,
    libc::SYS_fstat,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_openat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_statx,
];

const PASSWORD: &[c_long] = &[
    // Starts further threads.
    libc::SYS_clone,
    libc::SYS_clone3,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_read,
];

const LOG: &[c_long] = &[libc::SYS_openat, libc::SYS_read, libc::SYS_statx];

/// No version of a library makes these.
const HOSTILE: &[c_long] = &[
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_finit_module,
    libc::SYS_fsopen,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_truncate,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Limits the calling thread, and those that it starts.
pub fn restrict(role: Role, paths: &Paths) -> Result<Part, seccompiler::Error> {
    let hostile = HOSTILE.iter().map(|call| (*call, Vec::new())).collect();
    let kills = program(hostile, SeccompAction::Allow, SeccompAction::KillProcess)?;
    // The main thread has no client's bytes, and what it does when the configuration changes is not known here.
    let limits = match role {
        Role::Main => None,
        role => {
            let fails = SeccompAction::Errno(libc::EPERM as u32);
            Some(program(allowed(role, paths)?, fails, SeccompAction::Allow)?)
        }
    };
    // What the main thread has, all others have from it.
    if role == Role::Main || !paths.is_inherited {
        apply_filter(&kills)?;
    }
    if let Some(limits) = limits {
        apply_filter(&limits)?;
    }
    Ok(Part::On("on".to_string()))
}

fn program(
    rules: Rules,
    otherwise: SeccompAction,
    on_match: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, otherwise, on_match, architecture)?.try_into()
}

fn allowed(role: Role, paths: &Paths) -> Result<Rules, BackendError> {
    let own = match role {
        Role::Loop { .. } => LOOP,
        Role::Paths { .. } => PATHS,
        Role::Helper | Role::PathHelper => HELPER,
        Role::Password => PASSWORD,
        Role::Log => LOG,
        Role::Messages => &[libc::SYS_read],
        Role::Main => &[],
    };
    let calls = COMMON.iter().chain(own);
    let mut rules: Rules = calls.map(|call| (*call, Vec::new())).collect();
    // Memory is never made executable.
    let executable = libc::PROT_EXEC as u64;
    let data = || Ok(vec![rule(2, SeccompCmpOp::MaskedEq(executable), 0)?]);
    rules.insert(libc::SYS_mmap, data()?);
    rules.insert(libc::SYS_mprotect, data()?);
    // Signals go to this process only.
    let own_process = || Ok(vec![rule(0, SeccompCmpOp::Eq, std::process::id().into())?]);
    rules.insert(libc::SYS_kill, own_process()?);
    rules.insert(libc::SYS_tgkill, own_process()?);
    let names_thread = rule(0, SeccompCmpOp::Eq, libc::PR_SET_NAME as u64)?;
    rules.insert(libc::SYS_prctl, vec![names_thread]);
    // Builds with assertions look whether a descriptor is open before they close it, and what lists a directory looks how
    // it is open.
    let mut allowed = vec![libc::F_GETFD, libc::F_GETFL];
    if matches!(role, Role::Paths { .. } | Role::PathHelper) {
        // Descriptors for other processes have the flags that these want.
        allowed.push(libc::F_SETFL);
    }
    let looks = allowed
        .into_iter()
        .map(|what| rule(1, SeccompCmpOp::Eq, what as u64));
    rules.insert(libc::SYS_fcntl, looks.collect::<Result<_, _>>()?);
    match role {
        Role::Loop { inbox } | Role::Paths { inbox } => {
            if matches!(role, Role::Loop { .. }) {
                let own = paths.of_loops.iter();
                rules.extend(own.map(|call| (*call, Vec::new())));
            }
            let own_inbox = rule(0, SeccompCmpOp::Eq, inbox as u64)?;
            rules.insert(libc::SYS_read, vec![own_inbox]);
            let nowait = libc::RWF_NOWAIT as u64;
            let never_waits = rule(5, SeccompCmpOp::MaskedEq(nowait), nowait)?;
            rules.insert(libc::SYS_preadv2, vec![never_waits]);
            connections(&mut rules, &paths.upstreams)?;
        }
        Role::Helper | Role::PathHelper => {
            let changes = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
            let reads = rule(2, SeccompCmpOp::MaskedEq(changes), 0)?;
            rules.insert(libc::SYS_openat, vec![reads]);
        }
        Role::Password | Role::Log | Role::Messages | Role::Main => {}
    }
    Ok(rules)
}

/// What a loop needs to connect to upstreams. seccomp does not see to which: Landlock has the ports.
fn connections(rules: &mut Rules, upstreams: &Reach) -> Result<(), BackendError> {
    let mut families = Vec::new();
    if !upstreams.ports.is_empty() {
        families.extend([libc::AF_INET, libc::AF_INET6]);
    }
    if upstreams.has_unix {
        families.push(libc::AF_UNIX);
    }
    if families.is_empty() && !upstreams.has_scripts && !upstreams.has_applications {
        return Ok(());
    }
    let linger = both((1, libc::SOL_SOCKET as u64), (2, libc::SO_LINGER as u64))?;
    let mut set = vec![linger];
    let tcp = libc::IPPROTO_TCP as u64;
    let mut get = Vec::new();
    if upstreams.has_applications {
        // Takes new processes, looks whether a client has got something, and cuts its connection, which another process
        // has, too.
        rules.insert(libc::SYS_recvmsg, Vec::new());
        rules.insert(libc::SYS_connect, Vec::new());
        get.push(both((1, tcp), (2, libc::TCP_INFO as u64))?);
        set.push(both(
            (1, libc::SOL_SOCKET as u64),
            (2, libc::SO_SNDBUF as u64),
        )?);
    }
    if upstreams.has_applications || upstreams.has_scripts {
        // Pairs of sockets for processes.
        let local = rule(0, SeccompCmpOp::Eq, libc::AF_UNIX as u64)?;
        rules.insert(libc::SYS_socketpair, vec![local]);
    }
    if upstreams.has_scripts {
        // Pipes that do not wait, and what is passed to the process that starts scripts.
        rules.insert(libc::SYS_pipe2, Vec::new());
        rules.insert(libc::SYS_readv, Vec::new());
    }
    if families.is_empty() {
        rules.insert(libc::SYS_setsockopt, set);
        if !get.is_empty() {
            rules.insert(libc::SYS_getsockopt, get);
        }
        return Ok(());
    }
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
    let of_family = |family: libc::c_int| both((0, family as u64), (1, kind));
    let sockets: Result<Vec<_>, _> = families.into_iter().map(of_family).collect();
    rules.insert(libc::SYS_socket, sockets?);
    rules.insert(libc::SYS_connect, Vec::new());
    let error = both((1, libc::SOL_SOCKET as u64), (2, libc::SO_ERROR as u64))?;
    get.push(error);
    rules.insert(libc::SYS_getsockopt, get);
    set.push(both((1, tcp), (2, libc::TCP_NODELAY as u64))?);
    rules.insert(libc::SYS_setsockopt, set);
    Ok(())
}

/// Two arguments with these values.
fn both(first: (u8, u64), second: (u8, u64)) -> Result<SeccompRule, BackendError> {
    let is = |(argument, value): (u8, u64)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
    };
    SeccompRule::new(vec![is(first)?, is(second)?])
}

/// Compares an argument, of which all have 32 bits here.
fn rule(argument: u8, comparison: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, comparison, value)?;
    SeccompRule::new(vec![condition])
}

#[cfg(test)]
mod tests;
