//! Monitored processes: what is mapped where, kept while they live, so that addresses can still be
//! named after they are gone.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::rc::Rc;

use procfs::process::{MMapPath, MMPermissions, Process};

use crate::unwind;

/// Where a wrapper around a system call keeps its return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        let mapping = self.executable.iter().find(|m| (m.start..m.end).contains(&ip))?;
        Some(Located {
            module: mapping.module.clone(),
            name: mapping.name.clone(),
            file_offset: ip - mapping.start + mapping.offset,
        })
    }
}

/// Limits on what is kept, so that a session's memory is bounded.
const MAX_PROCESSES: usize = 20_000;
const MAX_MODULES: usize = 1_000;

#[derive(Default)]
pub(crate) struct Processes {
    /// By process: an exec replaces its mappings, and both generations may be asked for.
    mappings: HashMap<u32, Vec<Mappings>>,
    modules: HashMap<(u64, u64), Option<Rc<Module>>>,
    wrappers: HashMap<(u64, u64, u64), Wrapper>,
}

impl Processes {
    /// Reads the process's mappings if `ip` is not known yet; returns the unwinding rule there.
    pub fn learn(&mut self, tgid: u32, ip: u64) -> Option<Wrapper> {
        if self.find(tgid, ip).is_none() && self.mappings.len() < MAX_PROCESSES {
            self.read_mappings(tgid);
        }
        let located = self.find(tgid, ip)?;
        let module = located.module?;
        let key = (Rc::as_ptr(&module) as u64, located.file_offset, 0);
        let wrapper = self.wrappers.entry(key).or_insert_with(|| {
            unwind::return_address(&module.open_path(), located.file_offset)
                .unwrap_or(Wrapper { offset: 0, rule: 0 })
        });
        Some(*wrapper)
    }

    pub fn find(&self, tgid: u32, ip: u64) -> Option<Located> {
        self.mappings.get(&tgid)?.iter().rev().find_map(|generation| generation.find(ip))
    }

    fn read_mappings(&mut self, tgid: u32) {
        let Ok(process) = Process::new(tgid as i32) else { return };
        let Ok(maps) = process.maps() else { return };
        let mut executable = Vec::new();
        for map in maps.iter().filter(|map| map.perms.contains(MMPermissions::EXECUTE)) {
            let (path, name) = match &map.pathname {
                MMapPath::Path(path) => (Some(path.clone()), path.display().to_string()),
                MMapPath::Vdso => (None, "[vdso]".to_string()),
                other => (None, format!("{other:?}").to_lowercase()),
            };
            let module = path.and_then(|path| {
                let id = ((map.dev.0 as u64) << 32 | map.dev.1 as u32 as u64, map.inode);
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
            self.mappings.entry(tgid).or_default().push(Mappings { executable });
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
