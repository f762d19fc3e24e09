//! The running kernel's functions: where they are, and which of them can be probed.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{bail, Context, Result};

/// A kernel function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub name: String,
    pub module: Option<String>,
    pub address: u64,
}

/// How far behind a function's address its entry can be patched: an ENDBR instruction and padding.
const ENTRY_SPAN: u64 = 32;

pub(crate) struct KernelFunctions {
    /// By address.
    pub functions: Vec<Function>,
    traceable: HashSet<String>,
    /// Addresses of the patched entries, ascending, if the kernel lists them (since 6.5).
    entries: Vec<u64>,
    blacklist: HashSet<String>,
    /// How many functions share each name.
    namesakes: HashMap<String, u32>,
}

impl KernelFunctions {
    /// Reads the kernel's lists.
    ///
    /// # Errors
    ///
    /// Addresses are hidden, or the list of functions that can be probed is not available (no
    /// ftrace, or a kernel in lockdown).
    pub fn read() -> Result<KernelFunctions> {
        let mut kernel = KernelFunctions::read_symbols()?;
        let list = read_in(c"tracefs", "available_filter_functions").context(
            "cannot read the list of functions that can be probed \
             (/sys/kernel/tracing/available_filter_functions)",
        )?;
        let first = |line: &str| line.split_whitespace().next().map(str::to_string);
        kernel.traceable = list.lines().filter_map(first).collect();
        if let Ok(list) = read_in(c"tracefs", "available_filter_functions_addrs") {
            let address = |line: &str| u64::from_str_radix(&first(line)?, 16).ok();
            kernel.entries = list.lines().filter_map(address).collect();
            kernel.entries.sort_unstable();
        }
        // The list does not exist without debugfs; a function on it is refused at the latest when
        // it is probed.
        if let Ok(list) = read_in(c"debugfs", "kprobes/blacklist") {
            let name = |line: &str| line.split_whitespace().nth(1).map(str::to_string);
            kernel.blacklist = list.lines().filter_map(name).collect();
        }
        Ok(kernel)
    }

    /// Reads only the addresses of functions, not which of them can be probed.
    pub fn read_symbols() -> Result<KernelFunctions> {
        let symbols = std::fs::read_to_string("/proc/kallsyms")
            .context("cannot read /proc/kallsyms, the addresses of the kernel's functions")?;
        let kernel = KernelFunctions::of_symbols(&symbols);
        if kernel
            .functions
            .iter()
            .all(|function| function.address == 0)
        {
            bail!("/proc/kallsyms hides the addresses of the kernel's functions");
        }
        Ok(kernel)
    }

    /// Parses the text of `/proc/kallsyms`.
    pub fn of_symbols(text: &str) -> KernelFunctions {
        KernelFunctions::of(
            text.lines().filter_map(parse_symbol).collect(),
            HashSet::new(),
        )
    }

    pub fn of(mut functions: Vec<Function>, traceable: HashSet<String>) -> KernelFunctions {
        functions.sort_by_key(|function| function.address);
        let mut namesakes = HashMap::new();
        for function in &functions {
            *namesakes.entry(function.name.clone()).or_default() += 1;
        }
        KernelFunctions {
            functions,
            traceable,
            entries: Vec::new(),
            blacklist: HashSet::new(),
            namesakes,
        }
    }

    /// Whether a function can be probed. Of several functions with the same name, only those with a
    /// known entry can be distinguished.
    pub fn is_traceable(&self, function: &Function) -> bool {
        if !self.traceable.contains(&function.name) {
            return false;
        }
        if self.entries.is_empty() {
            return self.is_unique(function);
        }
        let at = self
            .entries
            .partition_point(|entry| *entry < function.address);
        let entry = self.entries.get(at);
        entry.is_some_and(|entry| *entry < function.address + ENTRY_SPAN)
    }

    pub fn is_blacklisted(&self, function: &Function) -> bool {
        self.blacklist.contains(&function.name)
    }

    pub fn is_unique(&self, function: &Function) -> bool {
        self.namesakes.get(&function.name) == Some(&1)
    }

    pub fn address_of(&self, name: &str) -> Option<u64> {
        let function = self.functions.iter().find(|function| function.name == name);
        function.map(|function| function.address)
    }

    /// The function that an address is in.
    pub fn at(&self, address: u64) -> Option<&Function> {
        let after = self
            .functions
            .partition_point(|function| function.address <= address);
        self.functions.get(after.checked_sub(1)?)
    }
}

/// Parses `ffffffff81000000 T name [module]`, if it is a function.
fn parse_symbol(line: &str) -> Option<Function> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    if !matches!(words.next()?, "t" | "T" | "w" | "W") {
        return None;
    }
    let name = words.next()?.to_string();
    let module = words
        .next()
        .map(|module| module.trim_matches(['[', ']']).to_string());
    Some(Function {
        name,
        module,
        address,
    })
}

/// Reads a file of one of the kernel's own file systems, mounted or not: if necessary, through a
/// detached mount that exists only during this function.
fn read_in(kind: &CStr, path: &str) -> std::io::Result<String> {
    let mounted = match kind.to_bytes() {
        b"tracefs" => "/sys/kernel/tracing",
        _ => "/sys/kernel/debug",
    };
    let mut text = String::new();
    if let Ok(mut file) = File::open(format!("{mounted}/{path}")) {
        file.read_to_string(&mut text)?;
        return Ok(text);
    }
    let mount = mount_aside(kind)?;
    let path = format!("/proc/self/fd/{}/{path}", mount.as_raw_fd());
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

fn mount_aside(kind: &CStr) -> std::io::Result<OwnedFd> {
    // include/uapi/linux/mount.h
    const FSOPEN_CLOEXEC: u32 = 1;
    const FSCONFIG_CMD_CREATE: u32 = 6;
    const FSMOUNT_CLOEXEC: u32 = 1;
    let owned = |fd: libc::c_long| {
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the call made the descriptor, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    };
    // SAFETY: the name is a C string.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?;
    let null = std::ptr::null::<u8>();
    // SAFETY: this command takes no key and no value.
    let made = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            null,
            null,
            0,
        )
    };
    if made < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the call takes three integers.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_functions_or_not() {
        let function = parse_symbol("ffffffff81000010 t do_open [ext4]").unwrap();
        assert_eq!(
            (function.name.as_str(), function.module.as_deref()),
            ("do_open", Some("ext4"))
        );
        assert_eq!(function.address, 0xffff_ffff_8100_0010);
        assert!(parse_symbol("ffffffff81000010 D some_data").is_none());
        assert!(parse_symbol("not a line").is_none());
    }

    #[test]
    fn namesakes_are_told_apart_by_their_entries() {
        let at = |address| Function {
            name: "do_open".to_string(),
            module: None,
            address,
        };
        let mut kernel = KernelFunctions::of(
            vec![at(0x1000), at(0x2000)],
            HashSet::from(["do_open".to_string()]),
        );
        assert!(!kernel.is_traceable(&at(0x1000)));
        kernel.entries = vec![0x2004];
        assert!(!kernel.is_traceable(&at(0x1000)));
        assert!(kernel.is_traceable(&at(0x2000)));
        assert_eq!(kernel.at(0x2010).map(|f| f.address), Some(0x2000));
        assert_eq!(kernel.at(0xfff), None);
    }
}
