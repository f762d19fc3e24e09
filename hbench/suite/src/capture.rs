// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes the machine, its kernel, and what limits this process.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hbench_results::environment::Environment;

use crate::sys;

mod groups;

/// `cpu`: the CPU that is measured. `directory`: for temporary files.
pub fn environment(cpu: Option<u32>, directory: &Path) -> Environment {
    let cpu = cpu.unwrap_or(0);
    let of_cpu = |name: &str| text(format!("/sys/devices/system/cpu/cpu{cpu}/{name}"));
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let (kernel, kernel_build, architecture) = names();
    let limits = groups::limits();
    Environment {
        kernel,
        kernel_build,
        architecture,
        cpu_model: field(&info, "model name").or_else(|| field(&info, "CPU part")),
        microcode: field(&info, "microcode"),
        cache_bytes: caches(cpu),
        cpus_online: text("/sys/devices/system/cpu/online".to_string())
            .map_or(1, |list| cpu_list(&list).len() as u32),
        cpus_allowed: allowed_cpus(),
        memory_bytes: memory(),
        page_bytes: page_bytes(),
        transparent_huge_pages: text("/sys/kernel/mm/transparent_hugepage/enabled".to_string())
            .map(|modes| chosen(&modes)),
        clock_source: text(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource".to_string(),
        ),
        frequency_driver: of_cpu("cpufreq/scaling_driver"),
        frequency_governor: of_cpu("cpufreq/scaling_governor"),
        boost: boost(),
        virtualization: virtualization(&info),
        container: container(),
        mitigations: mitigations(),
        quota_cpus: limits.quota_cpus,
        quota_period_ns: limits.quota_period_ns,
        memory_limit_bytes: limits.memory_bytes,
        seccomp: field(&status(), "Seccomp").and_then(|mode| mode.parse().ok()),
        // SAFETY: no memory is passed.
        user_id: unsafe { libc::geteuid() },
        file_system: file_system(directory),
        security_modules: text("/sys/kernel/security/lsm".to_string()),
    }
}

fn text(path: String) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_string())
}

/// The value behind `name` and a colon.
fn field(lines: &str, name: &str) -> Option<String> {
    lines.lines().find_map(|line| {
        let (own, value) = line.split_once(':')?;
        (own.trim() == name).then(|| value.trim().to_string())
    })
}

fn status() -> String {
    fs::read_to_string("/proc/self/status").unwrap_or_default()
}

/// Release, build and architecture of the kernel.
fn names() -> (String, String, String) {
    // SAFETY: all fields may be zero, and the kernel ends its texts with zeros.
    unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        libc::uname(&mut names);
        let owned = |of: &[libc::c_char]| {
            std::ffi::CStr::from_ptr(of.as_ptr())
                .to_string_lossy()
                .into_owned()
        };
        (
            owned(&names.release),
            owned(&names.version),
            owned(&names.machine),
        )
    }
}

fn page_bytes() -> u64 {
    // SAFETY: no memory is passed.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Sizes of the caches that have data, innermost first.
fn caches(cpu: u32) -> Vec<u64> {
    let mut found = Vec::new();
    for index in 0..8 {
        let of = |name: &str| {
            text(format!(
                "/sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{name}"
            ))
        };
        let (Some(kind), Some(size)) = (of("type"), of("size")) else {
            continue;
        };
        if kind != "Instruction" {
            found.extend(kit_units::parse_size(&size).ok());
        }
    }
    found
}

/// As in `0-2,7`.
fn cpu_list(list: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            cpus.extend(first..=last.min(first.saturating_add(8192)));
        }
    }
    cpus
}

/// The CPUs that this process may use.
pub fn allowed_cpus() -> Vec<u32> {
    let listed = field(&status(), "Cpus_allowed_list");
    // gVisor does not list them.
    listed.map_or_else(sys::affinity, |list| cpu_list(&list))
}

fn memory() -> Option<u64> {
    let total = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")?;
    let kib: u64 = total.split(' ').next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Of modes such as `always [madvise] never`, the one in brackets.
fn chosen(modes: &str) -> String {
    let inside = modes
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(modes, |(inside, _)| inside).to_string()
}

fn boost() -> Option<String> {
    let general = text("/sys/devices/system/cpu/cpufreq/boost".to_string());
    let intel = text("/sys/devices/system/cpu/intel_pstate/no_turbo".to_string());
    let on = |is_on: bool| if is_on { "on" } else { "off" }.to_string();
    let general = general.map(|value| on(value != "0"));
    general.or_else(|| intel.map(|value| on(value == "0")))
}

fn mitigations() -> BTreeMap<String, String> {
    let entries = fs::read_dir("/sys/devices/system/cpu/vulnerabilities");
    let entries = entries.into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| {
        let said = text(entry.path().to_string_lossy().into_owned())?;
        Some((entry.file_name().to_string_lossy().into_owned(), said))
    };
    entries.filter_map(of).collect()
}

fn virtualization(info: &str) -> Option<String> {
    let version = fs::read_to_string("/proc/version").unwrap_or_default();
    // gVisor shows every program the same version.
    if version.contains("#1 SMP Sun Jan 10 15:06:54 PST 2016") {
        return Some("gVisor".to_string());
    }
    let product = text("/sys/class/dmi/id/product_name".to_string());
    let hypervisor = text("/sys/hypervisor/type".to_string());
    let flags = field(info, "flags").unwrap_or_default();
    match flags.split(' ').any(|flag| flag == "hypervisor") {
        true => Some(
            hypervisor
                .or(product)
                .unwrap_or_else(|| "a hypervisor".to_string()),
        ),
        false => None,
    }
}

fn container() -> Option<String> {
    for (path, name) in [("/run/.containerenv", "podman"), ("/.dockerenv", "docker")] {
        if Path::new(path).exists() {
            return Some(name.to_string());
        }
    }
    let of_first = fs::read("/proc/1/environ").ok()?;
    let mut variables = of_first.split(|byte| *byte == 0);
    let named = variables.find_map(|variable| variable.strip_prefix(b"container="))?;
    Some(String::from_utf8_lossy(named).into_owned())
}

/// The type of the file system that a directory lies on: of the mounts above it, the deepest and last.
fn file_system(directory: &Path) -> Option<String> {
    let directory = fs::canonicalize(directory).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut best: Option<(usize, String)> = None;
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(point), Some(kind)) = (words.next(), words.next()) else {
            continue;
        };
        let point = point.replace("\\040", " ");
        let is_deeper = best
            .as_ref()
            .is_none_or(|(length, _)| point.len() >= *length);
        if directory.starts_with(&point) && is_deeper {
            best = Some((point.len(), kind.to_string()));
        }
    }
    // In a chroot, the list has only the mounts below the root.
    best.map(|(_, kind)| kind)
        .or_else(|| sys::file_system_magic(&directory).map(named_by_magic))
}

/// A file system's name by its number (`linux/magic.h`).
fn named_by_magic(magic: u32) -> String {
    let name = match magic {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        sys::TMPFS => "tmpfs",
        0x794c_7630 => "overlay",
        0xf2f5_2010 => "f2fs",
        0x2fc1_2fc1 => "zfs",
        0x6969 => "nfs",
        0x6573_5546 => "fuse",
        0x7371_7368 => "squashfs",
        other => return format!("a file system of type {other:#x}"),
    };
    name.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_modes_are_read() {
        assert_eq!(cpu_list("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(cpu_list(""), Vec::<u32>::new());
        assert_eq!(cpu_list("x-3,5-4,4294967295-4294967295").len(), 1);
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("odd"), "odd");
        assert_eq!(field("a : b\nc: d e", "c"), Some("d e".to_string()));
    }

    /// Both ways to find a file system agree where it has one name in both.
    #[test]
    fn a_file_system_has_the_same_name_by_its_number() {
        let directory = std::env::temp_dir();
        let by_number = sys::file_system_magic(&directory).map(named_by_magic);
        let by_number = by_number.expect("the directory is there");
        let by_mount = file_system(&directory).expect("it is mounted");
        // Versions of one file system have one number.
        let is_same = by_mount.starts_with(&by_number[..3]);
        assert!(
            is_same || by_number.starts_with("a file system of type"),
            "{by_number}, {by_mount}"
        );
        assert_eq!(sys::file_system_magic(Path::new("/nonexistent")), None);
        assert_eq!(named_by_magic(1), "a file system of type 0x1");
    }

    #[test]
    fn this_machine_is_described() {
        let found = environment(None, &std::env::temp_dir());
        assert!(!found.kernel.is_empty() && !found.architecture.is_empty());
        assert!(!found.cpus_allowed.is_empty(), "{found:?}");
        assert_eq!(sys::affinity(), found.cpus_allowed);
        assert!(found.page_bytes >= 4096);
    }
}
