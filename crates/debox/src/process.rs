//! Monitored processes: what is mapped where, kept while they live, so that addresses can still be
//! named after they are gone.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;

use procfs::process::{MMPermissions, MMapPath, Process};

use crate::tables::{self, types};
use crate::unwind;

/// Where a wrapper around a system call keeps its return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Wrapper {
    pub offset: i32,
    /// 1: from the stack pointer, 2: from the frame pointer, 0: not known.
    pub rule: u32,
}

/// A file that code was mapped from, held open so that it can be read when its path is gone.
pub(crate) struct Module {
    pub path: PathBuf,
    file: File,
}

impl Module {
    /// A path that opens this very file, in whatever mount namespace it was.
    pub fn open_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    module: Option<Rc<Module>>,
    /// `[vdso]` and the like.
    name: String,
}

/// An address of a process, found in what it had mapped.
pub(crate) struct Located {
    pub module: Option<Rc<Module>>,
    pub name: String,
    pub file_offset: u64,
}

#[derive(Default)]
struct Mappings {
    executable: Vec<Mapping>,
}

impl Mappings {
    fn find(&self, ip: u64) -> Option<Located> {
        let mapping = self
            .executable
            .iter()
            .find(|m| (m.start..m.end).contains(&ip))?;
        Some(Located {
            module: mapping.module.clone(),
            name: mapping.name.clone(),
            file_offset: ip - mapping.start + mapping.offset,
        })
    }
}

const PAGE_SIZE: u64 = 4096;

/// Limits on what is kept, so that a session's memory is bounded.
const MAX_PROCESSES: usize = 20_000;
const MAX_MODULES: usize = 1_000;

#[derive(Default)]
pub(crate) struct Processes {
    /// By process: an exec replaces its mappings, and both generations may be asked for.
    mappings: HashMap<u32, Vec<Mappings>>,
    modules: HashMap<(u64, u64), Option<Rc<Module>>>,
    wrappers: HashMap<(usize, u64), Wrapper>,
}

impl Processes {
    /// Reads the process's mappings if the call site is not known yet; returns the unwinding rule
    /// there. A process that is gone already leaves what the probe saw.
    pub fn learn(&mut self, seen: &types::call_site_seen) -> Wrapper {
        let (tgid, ip) = (seen.tgid, seen.ip);
        if self.find(tgid, ip).is_none() && self.mappings.len() < MAX_PROCESSES {
            self.read_mappings(tgid);
            if self.find(tgid, ip).is_none() {
                self.add_seen(seen);
            }
        }
        self.wrapper(tgid, ip).unwrap_or_default()
    }

    /// The unwinding rule at an address of a process.
    pub fn wrapper(&mut self, tgid: u32, ip: u64) -> Option<Wrapper> {
        let located = self.find(tgid, ip)?;
        let module = located.module?;
        let key = (Rc::as_ptr(&module) as usize, located.file_offset);
        Some(*self.wrappers.entry(key).or_insert_with(|| {
            unwind::return_address(&module.open_path(), located.file_offset).unwrap_or_default()
        }))
    }

    fn add_seen(&mut self, seen: &types::call_site_seen) {
        let mut executable = Vec::new();
        for (mapped, is_program) in [(&seen.at_ip, false), (&seen.program, true)] {
            if mapped.end == 0 {
                continue;
            }
            let name = tables::comm(&mapped.name);
            let module = self.module_by_identity(&name, mapped);
            let offset = if is_program {
                let code = module
                    .as_ref()
                    .and_then(|m| unwind::first_code_offset(&m.open_path()));
                let Some(offset) = code else { continue };
                offset
            } else {
                mapped.page_offset * PAGE_SIZE
            };
            executable.push(Mapping {
                start: mapped.start,
                end: mapped.end,
                offset,
                module,
                name,
            });
        }
        if !executable.is_empty() {
            self.mappings
                .entry(seen.tgid)
                .or_default()
                .push(Mappings { executable });
        }
    }

    fn module_by_identity(
        &mut self,
        name: &str,
        mapped: &types::mapped_file,
    ) -> Option<Rc<Module>> {
        if mapped.inode == 0 {
            return None;
        }
        // The kernel's dev_t has 20 bits of minor number.
        let device = u64::from(mapped.device >> 20) << 32 | u64::from(mapped.device & 0xf_ffff);
        let id = (device, mapped.inode);
        let find = || find_by_identity(name, id);
        self.modules.entry(id).or_insert_with(find).clone()
    }

    pub fn find(&self, tgid: u32, ip: u64) -> Option<Located> {
        self.mappings
            .get(&tgid)?
            .iter()
            .rev()
            .find_map(|generation| generation.find(ip))
    }

    fn read_mappings(&mut self, tgid: u32) {
        let Ok(process) = Process::new(tgid as i32) else {
            return;
        };
        let Ok(maps) = process.maps() else { return };
        let mut executable = Vec::new();
        for map in maps
            .iter()
            .filter(|map| map.perms.contains(MMPermissions::EXECUTE))
        {
            let (path, name) = match &map.pathname {
                MMapPath::Path(path) => (Some(path.clone()), path.display().to_string()),
                MMapPath::Vdso => (None, "[vdso]".to_string()),
                other => (None, format!("{other:?}").to_lowercase()),
            };
            let module = path.and_then(|path| {
                let id = (
                    (map.dev.0 as u64) << 32 | map.dev.1 as u32 as u64,
                    map.inode,
                );
                self.module(tgid, id, path)
            });
            executable.push(Mapping {
                start: map.address.0,
                end: map.address.1,
                offset: map.offset,
                module,
                name,
            });
        }
        if !executable.is_empty() {
            self.mappings
                .entry(tgid)
                .or_default()
                .push(Mappings { executable });
        }
    }

    /// Opens through the process's own root, so that files inside containers are found.
    fn module(&mut self, tgid: u32, id: (u64, u64), path: PathBuf) -> Option<Rc<Module>> {
        if let Some(known) = self.modules.get(&id) {
            return known.clone();
        }
        if self.modules.len() >= MAX_MODULES {
            return None;
        }
        let inside = PathBuf::from(format!("/proc/{tgid}/root{}", path.display()));
        let file = File::open(inside).or_else(|_| File::open(&path)).ok();
        let module = file.map(|file| Rc::new(Module { path, file }));
        self.modules.insert(id, module.clone());
        module
    }
}

/// A file known only by its name and identity: looked for where programs and libraries are.
fn find_by_identity(name: &str, (device, inode): (u64, u64)) -> Option<Rc<Module>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let libraries = [
        "/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        ".",
    ];
    let directories = std::env::split_paths(&path).chain(libraries.iter().map(PathBuf::from));
    for directory in directories {
        let path = directory.join(name);
        let Ok(metadata) = path.metadata() else {
            continue;
        };
        let found =
            u64::from(libc::major(metadata.dev())) << 32 | u64::from(libc::minor(metadata.dev()));
        if metadata.ino() == inode && found == device {
            let file = File::open(&path).ok()?;
            let path = path.canonicalize().unwrap_or(path);
            return Some(Rc::new(Module { path, file }));
        }
    }
    None
}
