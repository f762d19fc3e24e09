//! Checks whether kernel sites can be named.

use std::fs::File;
use std::io::{BufRead, BufReader};

use super::finding::Finding;
use crate::kernel;
use crate::symbols::Symbols;

/// A function that every kernel has, to try the names on.
const FUNCTION: &str = "schedule";

pub(super) fn examine() -> [Finding; 2] {
    let (functions, lines) = ("kernel function names", "kernel file and line");
    let address = match address_of(FUNCTION) {
        Ok(Some(address)) => address,
        Ok(None) | Err(_) if !kernel::has_bpf_privilege() => {
            let found = "hidden from this user; root was not tried";
            return [functions, lines].map(|need| Finding::unchecked(need, found));
        }
        Ok(None) => {
            return hidden(
                functions,
                lines,
                "the addresses in /proc/kallsyms are hidden",
            )
        }
        Err(error) => return hidden(functions, lines, &format!("/proc/kallsyms: {error}")),
    };
    let frame = Symbols::default().kernel(address);
    if frame.function != FUNCTION {
        let found = format!("{FUNCTION} is found as {}", frame.function);
        return hidden(functions, lines, &found);
    }
    [
        Finding::met(functions, "/proc/kallsyms"),
        line_finding(lines, frame.place),
    ]
}

fn hidden(functions: &str, lines: &str, found: &str) -> [Finding; 2] {
    [
        Finding::limits(functions, found)
            .cost("sites are shown as addresses, and sleeps have no labels")
            .remedy("sysctl kernel.kptr_restrict=1, and the capability CAP_SYSLOG (root has it)"),
        Finding::unchecked(lines, "not known without the functions' addresses"),
    ]
}

fn line_finding(need: &str, line: Option<String>) -> Finding {
    if let Some(line) = line {
        return Finding::met(need, format!("{FUNCTION} is at {line}"));
    }
    let release = kernel::release();
    let place = format!("/usr/lib/debug/boot/vmlinux-{release}");
    let remedy = if release.ends_with("-amd64") {
        format!("apt install linux-image-{release}-dbg (Debian), which has {place}")
    } else {
        format!("put the vmlinux of this kernel's build at {place}")
    };
    Finding::limits(need, "no debug information of this kernel")
        .cost("sites are shown as function and offset, without file and line")
        .remedy(remedy)
}

/// The function's address; `None` if it is not listed, or the kernel shows it as zero.
fn address_of(function: &str) -> std::io::Result<Option<u64>> {
    for line in BufReader::new(File::open("/proc/kallsyms")?).lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let (Some(address), Some(_kind), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if name == function {
            let address = u64::from_str_radix(address, 16).unwrap_or(0);
            return Ok((address != 0).then_some(address));
        }
    }
    Ok(None)
}
