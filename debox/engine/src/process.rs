//! Monitored processes: their mappings, recorded while they are alive, so that addresses can still be named
//! after they are gone.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use procfs::process::{MMPermissions, MMapPath, MemoryMaps};
use procfs::FromBufRead;

use crate::callers::is_library;
use crate::module::Module;
use crate::plain_file::{self, Links};
use crate::stacks::tables::Cache;
use crate::tables::{self, types};
use crate::unwind::{self, Wrapper};

#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    pub module: Option<Rc<Module>>,
    /// `[vdso]` and the like.
    pub name: Rc<str>,
    /// Device and inode; zeros without a file.
    identity: (u64, u64),
}

impl Mapping {
    pub fn covers(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The offset of an address in its file. If the kernel reports an offset beyond any file, the result is
    /// in no file either.
    pub fn file_offset(&self, address: u64) -> u64 {
        address.wrapping_sub(self.start).wrapping_add(self.offset)
    }

    /// Whether a file is mapped, even if it could not be opened.
    pub fn is_of_file(&self) -> bool {
        self.identity.1 != 0
    }

    /// Whether the process may have made the code in it at run time.
    pub fn is_made(&self) -> bool {
        self.module.is_none() && !self.is_of_file()
    }

    /// Whether this is the mapping that a probe saw.
    pub fn is_of(&self, seen: &types::mapped_file) -> bool {
        self.identity == identity_of(seen)
    }
}

fn identity_of(seen: &types::mapped_file) -> (u64, u64) {
    if seen.inode == 0 {
        return (0, 0);
    }
    // The kernel's dev_t has 20 bits of minor number.
    let device = u64::from(seen.device >> 20) << 32 | u64::from(seen.device & 0xf_ffff);
    (device, seen.inode)
}

/// An address of a process, located in its mappings.
pub(crate) struct Located {
    pub module: Option<Rc<Module>>,
    pub name: Rc<str>,
    pub file_offset: u64,
}

#[derive(Default)]
struct Mappings {
    executable: Vec<Mapping>,
}

impl Mappings {
    fn find(&self, ip: u64) -> Option<Located> {
        let mapping = self.executable.iter().find(|mapping| mapping.covers(ip))?;
        Some(Located {
            module: mapping.module.clone(),
            name: mapping.name.clone(),
            file_offset: mapping.file_offset(ip),
        })
    }
}

const PAGE_SIZE: u64 = 4096;

/// Limits on what is kept, so that a session's memory is bounded.
const MAX_PROCESSES: usize = 20_000;
const MAX_MODULES: usize = 1_000;

#[derive(Default)]
pub(crate) struct Processes {
    /// By process. An exec replaces its mappings, and both generations may be needed.
    mappings: HashMap<u32, Vec<Mappings>>,
    modules: HashMap<(u64, u64), Option<Rc<Module>>>,
    modules_opened: u32,
    /// By module and offset in its file.
    wrappers: HashMap<(u32, u64), Wrapper>,
    /// By module; see [`unwind::first_code_offset`].
    first_code: HashMap<u32, Option<u64>>,
    pub tables: Cache,
}

impl Processes {
    /// Reads the process's mappings if the call site is not known yet; returns the unwinding rule there.
    /// For a process that is already gone, uses what the probe saw.
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

    /// The unwinding rule after a call: at a system call instruction, or in a library that only passes
    /// calls on. Elsewhere is the program's own code, which has no such rule.
    pub fn wrapper(&mut self, tgid: u32, ip: u64) -> Option<Wrapper> {
        let located = self.find(tgid, ip)?;
        let module = located.module?;
        let key = (module.id, located.file_offset);
        let tables = &mut self.tables;
        Some(*self.wrappers.entry(key).or_insert_with(|| {
            let is_handed_on = is_library(&module.short_name());
            if !is_handed_on && !is_behind_syscall(module.file(), located.file_offset) {
                return Wrapper::default();
            }
            let rule = tables.of(&module).rule(located.file_offset);
            rule.as_ref()
                .and_then(unwind::return_address)
                .unwrap_or_default()
        }))
    }

    fn add_seen(&mut self, seen: &types::call_site_seen) {
        let executable = self.seen_mappings(seen.tgid, &seen.at_ip, &seen.program);
        if !executable.is_empty() {
            self.mappings
                .entry(seen.tgid)
                .or_default()
                .push(Mappings { executable });
        }
    }

    /// The mappings that a probe saw in a process that is no longer there.
    fn seen_mappings(
        &mut self,
        tgid: u32,
        at_ip: &types::mapped_file,
        program: &types::mapped_file,
    ) -> Vec<Mapping> {
        let mappings = [
            self.seen_mapping(tgid, at_ip),
            self.seen_program(tgid, program),
        ];
        mappings.into_iter().flatten().collect()
    }

    /// A mapping as a probe saw it.
    pub fn seen_mapping(&mut self, tgid: u32, mapped: &types::mapped_file) -> Option<Mapping> {
        if mapped.end == 0 {
            return None;
        }
        let name = tables::comm(&mapped.name);
        Some(Mapping {
            start: mapped.start,
            end: mapped.end,
            offset: mapped.page_offset.wrapping_mul(PAGE_SIZE),
            module: self.seen_module(tgid, &name, mapped),
            name: name.into(),
            identity: identity_of(mapped),
        })
    }

    /// The program's own code, for which the kernel only provides the addresses in memory.
    pub fn seen_program(&mut self, tgid: u32, program: &types::mapped_file) -> Option<Mapping> {
        let mut mapping = self.seen_mapping(tgid, program)?;
        let module = mapping.module.as_ref()?;
        let first = self.first_code.entry(module.id);
        mapping.offset = (*first.or_insert_with(|| unwind::first_code_offset(module.file())))?;
        Some(mapping)
    }

    /// The file of a mapping: found through the process if it is still there, otherwise in the directories
    /// of programs and libraries.
    fn seen_module(
        &mut self,
        tgid: u32,
        name: &str,
        mapped: &types::mapped_file,
    ) -> Option<Rc<Module>> {
        let id = identity_of(mapped);
        if id == (0, 0) {
            return None;
        }
        if let Some(Some(known)) = self.modules.get(&id) {
            return Some(Rc::clone(known));
        }
        if self.modules.len() >= MAX_MODULES {
            return None;
        }
        let found = open_mapped(tgid, mapped).or_else(|| find_by_identity(name, id));
        self.keep_module(id, found)
    }

    /// Opens a file that a process has mapped by the path that a probe saw, in case the process is gone
    /// when the file is needed. `inside`: processes that may have the path's root.
    pub fn open_path(&mut self, inside: [u32; 2], mapped: &types::mapped_file, path: &Path) {
        let id = identity_of(mapped);
        let is_known = matches!(self.modules.get(&id), Some(Some(_)));
        if id == (0, 0) || is_known || self.modules.len() >= MAX_MODULES {
            return;
        }
        let roots = inside.map(|tgid| PathBuf::from(format!("/proc/{tgid}/root")));
        let own = PathBuf::from("/");
        let found = roots.iter().chain([&own]).find_map(|root| {
            let below = path.strip_prefix("/").ok()?;
            open_if_same(&root.join(below), id)
        });
        if let Some(file) = found {
            self.keep_module(id, Some((path.to_path_buf(), file)));
        }
    }

    fn keep_module(
        &mut self,
        id: (u64, u64),
        found: Option<(PathBuf, File)>,
    ) -> Option<Rc<Module>> {
        let module = found.map(|(path, file)| {
            self.modules_opened += 1;
            Rc::new(Module::new(path, self.modules_opened, file))
        });
        self.modules.insert(id, module.clone());
        module
    }

    pub fn find(&self, tgid: u32, ip: u64) -> Option<Located> {
        self.mappings
            .get(&tgid)?
            .iter()
            .rev()
            .find_map(|generation| generation.find(ip))
    }

    fn read_mappings(&mut self, tgid: u32) {
        let executable = self.executable_mappings(tgid);
        if !executable.is_empty() {
            self.mappings
                .entry(tgid)
                .or_default()
                .push(Mappings { executable });
        }
    }

    /// A process's executable mappings now; empty if it is gone.
    pub fn executable_mappings(&mut self, tgid: u32) -> Vec<Mapping> {
        let text = std::fs::read(format!("/proc/{tgid}/maps"));
        let maps = text.ok().and_then(|text| parse_maps(&text));
        maps.map_or(Vec::new(), |maps| self.executable_of(tgid, &maps))
    }

    /// The mapping at an address now, in the form in which a probe would have seen it.
    pub fn mapped_at(&mut self, tgid: u32, address: u64) -> Option<types::mapped_file> {
        let mappings = self.executable_mappings(tgid);
        let mapping = mappings.iter().find(|mapping| mapping.covers(address))?;
        let (device, inode) = mapping.identity;
        let mut seen = types::mapped_file {
            start: mapping.start,
            end: mapping.end,
            page_offset: mapping.offset / PAGE_SIZE,
            inode,
            // The kernel's dev_t, as in `identity_of`.
            device: ((device >> 32) as u32) << 20 | (device as u32 & 0xf_ffff),
            ..types::mapped_file::default()
        };
        let name = mapping.name.rsplit('/').next().unwrap_or_default();
        let room = seen.name.len() - 1;
        for (to, byte) in seen.name[..room].iter_mut().zip(name.bytes()) {
            *to = byte as i8;
        }
        Some(seen)
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub fn add_mappings(&mut self, tgid: u32, maps: &MemoryMaps) {
        let executable = self.executable_of(tgid, maps);
        self.mappings
            .entry(tgid)
            .or_default()
            .push(Mappings { executable });
    }

    /// The executable ones among a process's mappings.
    pub fn executable_of(&mut self, tgid: u32, maps: &MemoryMaps) -> Vec<Mapping> {
        let mut executable = Vec::new();
        for map in maps
            .iter()
            .filter(|map| map.perms.contains(MMPermissions::EXECUTE))
        {
            let identity = (
                (map.dev.0 as u64) << 32 | map.dev.1 as u32 as u64,
                map.inode,
            );
            let (module, name) = match &map.pathname {
                MMapPath::Path(path) => (
                    self.module(tgid, identity, path.clone()),
                    path.display().to_string(),
                ),
                MMapPath::Vdso => (self.vdso(map.address.0), "[vdso]".to_string()),
                MMapPath::Anonymous => (None, "[anonymous]".to_string()),
                other => (None, format!("{other:?}").to_lowercase()),
            };
            executable.push(Mapping {
                start: map.address.0,
                end: map.address.1,
                offset: map.offset,
                module,
                name: name.into(),
                identity,
            });
        }
        executable
    }

    /// The kernel maps the same code into every 64-bit process, this one included.
    fn vdso(&mut self, address: u64) -> Option<Rc<Module>> {
        if u32::try_from(address).is_ok() {
            return None; // the vDSO of a 32-bit process
        }
        let id = (u64::MAX, 0); // the id of no file
        if let Some(known) = self.modules.get(&id) {
            return known.clone();
        }
        let found = copy_of_vdso().map(|file| (PathBuf::from("[vdso]"), file));
        self.keep_module(id, found)
    }

    /// Opens through the process's own root, so that files inside containers are found.
    fn module(&mut self, tgid: u32, id: (u64, u64), path: PathBuf) -> Option<Rc<Module>> {
        if let Some(known) = self.modules.get(&id) {
            return known.clone();
        }
        if self.modules.len() >= MAX_MODULES {
            return None;
        }
        let roots = [format!("/proc/{tgid}/root"), "/".to_string()];
        let file = roots.iter().find_map(|root| {
            let root = plain_file::directory(root.as_ref())?;
            plain_file::open_below(&root, &path, Links::No)
        });
        self.keep_module(id, file.map(|file| (path, file)))
    }
}

/// Parses the text of `/proc/PID/maps`, in which processes choose the names. procfs takes a name that
/// begins with `/SYSV` for a shared memory segment: it panics if multi-byte characters follow, and rejects
/// the whole text if anything but digits follows. A second slash avoids this and leads to the same file.
pub(crate) fn parse_maps(text: &[u8]) -> Option<MemoryMaps> {
    let text = String::from_utf8_lossy(text).replace(" /SYSV", " //SYSV");
    MemoryMaps::from_buf_read(text.as_bytes()).ok()
}

/// Opens a file only if it has this identity: another one may be at its path by now.
fn open_if_same(path: &Path, identity: (u64, u64)) -> Option<File> {
    let found = plain_file::find(path)?;
    let is_same = identity_of_file(&found.metadata().ok()?) == identity;
    is_same.then(|| plain_file::open_found(&found)).flatten()
}

/// The vDSO that the kernel maps into this process, as a file.
pub(crate) fn copy_of_vdso() -> Option<File> {
    use std::io::Write;
    use std::os::fd::FromRawFd;

    let maps = parse_maps(&std::fs::read("/proc/self/maps").ok()?)?;
    let vdso = maps.iter().find(|map| map.pathname == MMapPath::Vdso)?;
    let (start, end) = vdso.address;
    // SAFETY: the kernel keeps these bytes mapped and readable for the life of the process.
    let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, (end - start) as usize) };
    // SAFETY: the name is a C string; the descriptor is new and owned by the file only.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"vdso".as_ptr(), libc::MFD_CLOEXEC);
        (fd >= 0).then(|| File::from_raw_fd(fd))?
    };
    file.write_all(bytes).ok()?;
    Some(file)
}

/// Whether the instruction before an offset makes a system call: `syscall`, `sysenter`, `int 0x80`.
fn is_behind_syscall(file: &File, offset: u64) -> bool {
    let mut bytes = [0; 2];
    let before = offset.checked_sub(2);
    let read = before.is_some_and(|at| file.read_exact_at(&mut bytes, at).is_ok());
    read && matches!(bytes, [0x0f, 0x05] | [0x0f, 0x34] | [0xcd, 0x80])
}

/// The file that a process has mapped at an address.
fn open_mapped(tgid: u32, mapped: &types::mapped_file) -> Option<(PathBuf, File)> {
    let (start, end) = (mapped.start, mapped.end);
    let links = [
        format!("/proc/{tgid}/map_files/{start:x}-{end:x}"),
        format!("/proc/{tgid}/exe"),
    ];
    links.iter().find_map(|link| {
        let path = std::fs::read_link(link).ok()?;
        let file = open_if_same(link.as_ref(), identity_of(mapped))?;
        Some((path, file))
    })
}

/// Device and inode in the form of the kernel's own tables.
fn identity_of_file(metadata: &std::fs::Metadata) -> (u64, u64) {
    let device = metadata.dev();
    let device = u64::from(libc::major(device)) << 32 | u64::from(libc::minor(device));
    (device, metadata.ino())
}

/// Finds a file known only by its name and identity, in the directories of programs and libraries.
fn find_by_identity(name: &str, identity: (u64, u64)) -> Option<(PathBuf, File)> {
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
        if let Some(file) = open_if_same(&path, identity) {
            let path = path.canonicalize().unwrap_or(path);
            return Some((path, file));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that any user can give to a file that is mapped.
    #[test]
    fn no_name_hides_what_is_mapped() {
        for name in [
            "/SYSV\u{e9}\u{e9}\u{e9}\u{e9}",
            "/SYSV",
            "/SYSVnothex!",
            "/a /SYSV\u{20ac}",
        ] {
            let text = format!("1000-2000 r-xp 00000000 fe:00 7    {name}\n");
            let maps = parse_maps(text.as_bytes()).expect(name);
            assert_eq!(maps.0.len(), 1);
        }
        let maps = parse_maps(b"1000-2000 r-xp 00000000 fe:00 7    /\xff\xfe\n");
        assert_eq!(maps.expect("a mapping").0[0].address, (0x1000, 0x2000));
    }

    #[test]
    fn offsets_beyond_all_files_are_no_sums_that_overflow() {
        let mapping = Mapping {
            start: 0x1000,
            end: 0x2000,
            offset: u64::MAX - 0xf,
            module: None,
            name: Rc::from(""),
            identity: (0, 0),
        };
        assert_eq!(mapping.file_offset(0x1001), u64::MAX - 0xe);
        assert_eq!(mapping.file_offset(0x1020), 0x10);
        assert_eq!(mapping.file_offset(0xfff), u64::MAX - 0x10);
    }
}
