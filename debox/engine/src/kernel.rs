//! What the running kernel allows.

pub(crate) mod objects;
mod types;

use std::fs;
use std::io::Write;

use anyhow::{bail, Result};

pub(crate) use types::{has_hypervisor, type_facts};

/// `uname -r`.
pub fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap_or_default()
        .trim()
        .to_string()
}

/// Time the hypervisor has taken from all CPUs since boot, if the kernel reports it.
pub fn steal_ns() -> Option<u64> {
    steal_in(&fs::read_to_string("/proc/stat").ok()?)
}

/// Parses `/proc/stat`. Not done with procfs: that reads the length of a tick from the program's auxiliary
/// vector, whose content ends the program under valgrind.
fn steal_in(stat: &str) -> Option<u64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // After user, nice, system, idle, iowait, irq and softirq.
    let ticks: u64 = all.split_ascii_whitespace().nth(7)?.parse().ok()?;
    // It counts in USER_HZ, which is 100 on every architecture that Linux runs DeBox on.
    ticks.checked_mul(10_000_000)
}

/// Whether the kernel exports its types (BTF).
pub(crate) fn has_types() -> bool {
    std::path::Path::new(TYPES).exists()
}

/// The file with the kernel's types.
pub(crate) const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Whether this process may load probes, and its process ids are those that the probes see.
pub(crate) fn may_load_probes() -> bool {
    has_bpf_privilege() && in_first_pid_namespace()
}

/// What to do if this process may not load probes and no broker was found.
pub(crate) fn remedy() -> String {
    let by_itself = if has_bpf_privilege() {
        "run it on the host"
    } else {
        "run it with sudo"
    };
    match crate::broker::socket_path() {
        Some(path) if in_first_pid_namespace() => format!(
            "{by_itself}, or start a broker once for all users with `sudo debox broker` (asked for at {})",
            path.display()
        ),
        Some(path) => format!(
            "{by_itself}, or run a broker there (`debox broker`) and let this container have its socket at {}",
            path.display()
        ),
        None => format!(
            "{by_itself} ({} is empty, so no broker is used)",
            crate::broker::VARIABLE
        ),
    }
}

fn in_first_pid_namespace() -> bool {
    // PROC_PID_INIT_INO of include/linux/proc_ns.h
    const FIRST: &str = "pid:[4026531836]";
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == FIRST)
}

fn in_first_user_namespace() -> bool {
    // PROC_USER_INIT_INO of include/linux/proc_ns.h
    const FIRST: &str = "user:[4026531837]";
    std::fs::read_link("/proc/self/ns/user").is_ok_and(|name| name.as_os_str() == FIRST)
}

/// Whether this process may load probes: it has the capabilities, and they are effective. Root in a user
/// namespace has them all, but they do not apply to BPF. Opens no descriptor: there may be none left.
pub fn has_bpf_privilege() -> bool {
    const CAP_SYS_ADMIN: u64 = 21;
    const CAP_PERFMON: u64 = 38;
    const CAP_BPF: u64 = 39;
    let effective = effective_capabilities();
    let has = |capability: u64| effective & (1 << capability) != 0;
    (has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON))) && in_first_user_namespace()
}

/// The calling thread's capabilities, one bit each.
fn effective_capabilities() -> u64 {
    /// `struct __user_cap_header_struct`, and two of `struct __user_cap_data_struct`.
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Default, Clone, Copy)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut data = [Data::default(); 2];
    // SAFETY: there is room for two of the data structs, as the header says.
    let failed = unsafe { libc::syscall(libc::SYS_capget, &header, data.as_mut_ptr()) };
    match failed {
        0 => u64::from(data[1].effective) << 32 | u64::from(data[0].effective),
        _ => 0,
    }
}

/// What this process lacks, as the continuation of "loading probes".
pub fn what_it_takes() -> &'static str {
    if has_bpf_privilege() && !in_first_pid_namespace() {
        "needs the host's PID namespace: in another one (a container), as here, process ids differ from those that the probes see"
    } else if effective_capabilities() != 0 && !in_first_user_namespace() {
        "needs root (or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE) outside of user namespaces: in one, as \
         here, capabilities do not apply to BPF"
    } else {
        "needs root (or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE)"
    }
}

pub(crate) fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// The limit on this process's descriptors, in words.
pub(crate) fn descriptor_limit() -> String {
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    match limit {
        Ok((soft, _)) => {
            format!("this process may have {soft} open at a time (`ulimit -n`, RLIMIT_NOFILE)")
        }
        Err(_) => "the limit of this process (RLIMIT_NOFILE) is reached".to_string(),
    }
}

/// If descriptors ran out, adds that to the error of what failed because of it.
pub fn name_the_limit(error: anyhow::Error) -> anyhow::Error {
    let is_out = error.chain().any(|cause| {
        let is_io = cause.downcast_ref::<std::io::Error>();
        let is_nix = cause.downcast_ref::<nix::errno::Errno>();
        is_io.is_some_and(is_out_of_descriptors)
            || is_nix.is_some_and(|error| *error == nix::errno::Errno::EMFILE)
            // libbpf-rs does not expose the cause.
            || cause.to_string().contains("(os error 24)")
    });
    match is_out {
        true => error.context(format!(
            "no file descriptor is left: {}, and a session takes about 90",
            descriptor_limit()
        )),
        false => error,
    }
}

/// Drops libbpf's own messages unless they are requested: errors are returned as results.
pub(crate) fn silence_libbpf() {
    fn show(_: libbpf_rs::PrintLevel, message: String) {
        let _ = kit_console::print_error(kit_console::Allowed::Text, |out| {
            out.write_all(message.as_bytes())
        });
    }
    if std::env::var_os("DEBOX_VERBOSE").is_some() {
        libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, show)));
    } else {
        libbpf_rs::set_print(None);
    }
}

/// How often the kernel skipped a program because it was already running on that CPU.
pub(crate) fn recursion_misses(program_fd: i32) -> Result<u64> {
    let mut info = libbpf_rs::libbpf_sys::bpf_prog_info::default();
    let mut size = std::mem::size_of_val(&info) as u32;
    // SAFETY: `info` and `size` are valid for writing and `size` is the size of `info`.
    let failed = unsafe {
        libbpf_rs::libbpf_sys::bpf_obj_get_info_by_fd(
            program_fd,
            std::ptr::from_mut(&mut info).cast(),
            &mut size,
        )
    };
    if failed != 0 {
        bail!(
            "cannot ask for a probe's statistics: {}",
            std::io::Error::last_os_error()
        );
    }
    Ok(info.recursion_misses)
}

/// The kernel's count of the memory of tables that this process has open.
pub fn memory_of_own_tables() -> u64 {
    let entries = fs::read_dir("/proc/self/fdinfo")
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            // Programs have the line, too, but only tables are large.
            text.contains("map_id:").then_some(())?;
            text.lines()
                .find_map(|line| line.strip_prefix("memlock:")?.trim().parse::<u64>().ok())
        })
        .sum()
}

/// Fails, with a reason, if the process cannot be monitored.
pub fn require_process(pid: u32) -> Result<()> {
    const PF_KTHREAD: u32 = 0x0020_0000;
    let stat = procfs::process::Process::new(pid as i32).and_then(|process| process.stat());
    match stat {
        Err(_) => bail!("there is no process {pid}"),
        Ok(stat) if stat.flags & PF_KTHREAD != 0 => bail!(
            "process {pid} ({}) is a kernel thread: it makes no system calls",
            stat.comm
        ),
        Ok(stat) if has_ended(&stat) => bail!("process {pid} ({}) has ended", stat.comm),
        Ok(_) => Ok(()),
    }
}

/// Whether no thread is left. The first one may have ended while others go on.
pub(crate) fn has_ended(stat: &procfs::process::Stat) -> bool {
    stat.state == 'X' || stat.state == 'Z' && stat.num_threads <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_hypervisor_took_is_the_eighth_number() {
        let stat = "cpu  1 2 3 4 5 6 7 89 10 11\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(steal_in(stat), Some(890_000_000));
        assert_eq!(steal_in("cpu  1 2 3\n"), None);
        assert_eq!(steal_in(""), None);
        assert_eq!(
            steal_ns().is_some(),
            std::path::Path::new("/proc/stat").exists()
        );
    }
}
