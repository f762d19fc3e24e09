//! The sampling clock of each CPU, which interrupts at a fixed period whatever runs there. It is a kernel timer, so
//! it works without hardware counters.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

/// Opens the clocks of all online CPUs. A CPU that goes offline meanwhile has none.
pub(crate) fn open_all(period_ns: u64) -> io::Result<Vec<OwnedFd>> {
    let clocks = online()?.into_iter().map(|cpu| open(cpu, period_ns));
    let is_there = |clock: &io::Result<OwnedFd>| !matches!(clock, Err(error) if error.raw_os_error() == Some(libc::ENODEV));
    clocks.filter(is_there).collect()
}

/// The CPUs that are online.
pub(crate) fn online() -> io::Result<BTreeSet<i32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no list of CPUs"))
}

/// `0-3,5`
fn parse(text: &str) -> Option<BTreeSet<i32>> {
    let mut cpus = BTreeSet::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<i32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

fn open(cpu: i32, period_ns: u64) -> io::Result<OwnedFd> {
    let mut event = libbpf_sys::perf_event_attr {
        type_: libbpf_sys::PERF_TYPE_SOFTWARE,
        config: libbpf_sys::PERF_COUNT_SW_CPU_CLOCK.into(),
        ..Default::default()
    };
    event.size = size_of_val(&event) as u32;
    event.__bindgen_anon_1.sample_period = period_ns;
    event.set_exclude_idle(1);
    // SAFETY: the description outlives the call, which only reads it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &event,
            -1,
            cpu,
            -1,
            libbpf_sys::PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call made the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lists_of_cpus_have_ranges() {
        let cpus = |text| parse(text).map(|cpus| cpus.into_iter().collect::<Vec<i32>>());
        assert_eq!(cpus("0-3,5\n"), Some(vec![0, 1, 2, 3, 5]));
        assert_eq!(cpus("0"), Some(vec![0]));
        assert_eq!(cpus(""), None);
    }
}
