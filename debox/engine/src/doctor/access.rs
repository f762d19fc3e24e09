//! Checks whether this process may load probes at all.

use std::fs;
use std::io;

use libbpf_rs::libbpf_sys;

use super::finding::{Finding, NEEDS_ROOT};
use crate::kernel::{self, objects::owned};

pub(super) fn processor() -> Finding {
    let need = "processor";
    let found = std::env::consts::ARCH;
    if cfg!(target_arch = "x86_64") {
        return Finding::met(need, found.replace('_', "-"));
    }
    Finding::prevents(need, found)
        .cost("call numbers are read from x86-64 registers; other machines are not done yet")
}

/// The initial namespaces, whose numbers are fixed in the kernel.
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

fn is_in(namespace: &str, initial: &str) -> bool {
    fs::read_link(format!("/proc/self/ns/{namespace}"))
        .map_or(true, |link| link.as_os_str() == initial) // without /proc, leave it to the other checks
}

pub(super) fn privilege(is_brokered: bool) -> Finding {
    let need = "privilege";
    let cost = "no probe can be loaded, so nothing can be measured";
    // SAFETY: has no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    let is_first = is_in("user", INITIAL_USER_NAMESPACE);
    if !is_first && !is_brokered {
        return Finding::prevents(need, of_namespace(user))
            .cost(cost)
            .remedy("run debox outside the container, as root: it sees the programs inside");
    }
    if !kernel::has_bpf_privilege() {
        let found = match user {
            _ if !is_first => of_namespace(user),
            0 => "root, without the capabilities CAP_BPF and CAP_PERFMON".to_string(),
            _ => format!("user {user}, without CAP_BPF and CAP_PERFMON"),
        };
        let remedy =
            "run debox with sudo (or with CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_SYSLOG)";
        if is_brokered {
            return Finding::limits(need, found)
                .cost(
                    "the broker's probes do the work: the user's own processes only, without the call tree (--trace), \
                     samples, and the program's own times (record --user-level)",
                )
                .remedy(remedy);
        }
        return Finding::prevents(need, found).cost(cost).remedy(remedy);
    }
    Finding::met(
        need,
        if user == 0 {
            "root"
        } else {
            "CAP_BPF and CAP_PERFMON"
        },
    )
}

fn of_namespace(user: u32) -> String {
    format!("user {user} of a user namespace, whose capabilities do not apply to BPF")
}

/// Whether other users' memory maps may be read, to name places in their code.
pub(super) fn programs_of_others() -> Finding {
    const CAP_SYS_PTRACE: u64 = 19;
    let need = "programs of other users";
    if has_capability(CAP_SYS_PTRACE) {
        return Finding::met(need, "can be looked into");
    }
    if !kernel::has_bpf_privilege() {
        return Finding::unchecked(need, NEEDS_ROOT);
    }
    Finding::limits(need, "cannot be looked into, without CAP_SYS_PTRACE")
        .cost("places in their code are shown as addresses")
        .remedy("run debox with sudo, or with CAP_SYS_PTRACE too")
}

fn has_capability(number: u64) -> bool {
    let status = procfs::process::Process::myself().and_then(|me| me.status());
    status.is_ok_and(|status| status.capeff & (1 << number) != 0)
}

/// Creates the smallest possible table.
pub(super) fn try_bpf() -> io::Result<()> {
    // SAFETY: the name is a C string, and no options are given.
    let fd = unsafe {
        libbpf_sys::bpf_map_create(
            libbpf_sys::BPF_MAP_TYPE_ARRAY,
            c"debox_doctor".as_ptr(),
            4,
            4,
            1,
            std::ptr::null(),
        )
    };
    owned(fd).map(drop)
}

pub(super) fn bpf_call(tried: &io::Result<()>) -> Finding {
    let need = "bpf() system call";
    let Err(error) = tried else {
        return Finding::met(need, "works");
    };
    let cost = "no probe can be loaded, so nothing can be measured";
    if error.raw_os_error() != Some(libc::EPERM) {
        return Finding::prevents(need, error.to_string())
            .cost(cost)
            .remedy("a kernel built with CONFIG_BPF_SYSCALL=y is needed, as Debian's are");
    }
    if !kernel::has_bpf_privilege() {
        return Finding::unchecked(need, "refused to this user; root was not tried");
    }
    let remedy = if has_seccomp_filter() {
        "a seccomp filter is in force here, as in containers: run debox outside of it"
    } else {
        "run debox outside the container, as root: it sees the programs inside"
    };
    Finding::prevents(need, "refused despite the privilege")
        .cost(cost)
        .remedy(remedy)
}

fn has_seccomp_filter() -> bool {
    const FILTER: u32 = 2; // SECCOMP_MODE_FILTER
    let status = procfs::process::Process::myself().and_then(|me| me.status());
    status.is_ok_and(|status| status.seccomp == Some(FILTER))
}

/// Checks that this process is in the initial PID namespace: the probes know processes by their ids
/// there.
pub(super) fn process_numbers(is_brokered: bool) -> Finding {
    let need = "process numbers";
    if is_in("pid", INITIAL_PID_NAMESPACE) {
        return Finding::met(need, "the machine's own");
    }
    if is_brokered {
        return Finding::met(need, "those of a PID namespace, which the broker knows");
    }
    Finding::prevents(need, "those of a PID namespace")
        .cost("the probes know processes by the machine's own numbers and would not find any")
        .remedy("run debox outside the container: it sees the programs inside")
}

pub(super) fn lockdown() -> Finding {
    let need = "kernel lockdown";
    let text = match fs::read_to_string("/sys/kernel/security/lockdown") {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Finding::met(
                need,
                "none shown (not built in, or securityfs is not mounted)",
            );
        }
        Err(error) => return Finding::unchecked(need, error.to_string()),
    };
    // The current level is in brackets: `none [integrity] confidentiality`.
    let level = text.split(['[', ']']).nth(1).unwrap_or("none");
    if level == "confidentiality" {
        return Finding::prevents(need, level)
            .cost("probes may not read kernel memory, so they cannot distinguish calls")
            .remedy("boot without lockdown=confidentiality");
    }
    Finding::met(need, level)
}
