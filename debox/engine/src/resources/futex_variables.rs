//! Names for words of a program's memory: the variable that a futex is in.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};
use procfs::process::{MMapPath, Process};

use crate::symbols::demangle;

/// Limits, so that a session's memory is bounded.
const MAX_WORDS: usize = 50_000;
const MAX_FILES: usize = 1_000;

/// The shortest time between two readings of a program's maps for words that are in no file.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// A variable of a program or library, at its address in the file.
struct Variable {
    address: u64,
    size: u64,
    name: String,
}

/// The variables of one file, by address, and the span of memory that it takes.
struct Variables {
    first: u64,
    end: u64,
    sorted: Vec<Variable>,
}

impl Variables {
    fn read(path: &Path) -> Option<Variables> {
        let cache = object::ReadCache::new(File::open(path).ok()?);
        let elf = object::File::parse(&cache).ok()?;
        let first = elf.segments().map(|s| s.address()).min()? & !0xfff;
        let end = elf.segments().map(|s| s.address() + s.size()).max()?;
        let mut sorted: Vec<Variable> = elf
            .symbols()
            .chain(elf.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.size() > 0)
            .filter_map(|symbol| {
                Some(Variable {
                    address: symbol.address(),
                    size: symbol.size(),
                    name: demangle(Cow::Borrowed(symbol.name().ok()?)).into_owned(),
                })
            })
            .collect();
        sorted.sort_by_key(|variable| variable.address);
        Some(Variables { first, end, sorted })
    }

    /// `name`, or `name+0xOFF` inside it.
    fn find(&self, address: u64) -> Option<String> {
        let after = self.sorted.partition_point(|v| v.address <= address);
        let found = self.sorted[..after].last()?;
        let offset = address - found.address;
        (offset < found.size).then(|| match offset {
            0 => found.name.clone(),
            _ => format!("{}+{offset:#x}", found.name),
        })
    }
}

/// A file mapped into a process.
struct Loaded {
    start: u64,
    end: u64,
    file: (u64, u64),
    name: String,
}

#[derive(Default)]
struct Layout {
    loaded: Vec<Loaded>,
    read: Option<Instant>,
}

#[derive(Default)]
pub(super) struct FutexVariables {
    names: HashMap<(u32, u64), String>,
    layouts: HashMap<u32, Layout>,
    files: HashMap<(u64, u64), Option<Variables>>,
}

impl FutexVariables {
    /// Looks the word up while the process is alive.
    pub fn learn(&mut self, tgid: u32, address: u64) {
        if self.names.contains_key(&(tgid, address)) || self.names.len() >= MAX_WORDS {
            return;
        }
        let found = self.find(tgid, address).or_else(|| {
            let fresh = self.layouts.get(&tgid).and_then(|layout| layout.read);
            if fresh.is_some_and(|at| at.elapsed() < READ_AGAIN) {
                return None;
            }
            self.read_layout(tgid);
            self.find(tgid, address)
        });
        if let Some(name) = found {
            self.names.insert((tgid, address), name);
        }
    }

    /// The variable that the word is in, or its address.
    pub fn name(&self, tgid: u32, address: u64) -> String {
        match self.names.get(&(tgid, address)) {
            Some(name) => name.clone(),
            None => format!("{address:#x} of process {tgid}"),
        }
    }

    fn find(&self, tgid: u32, address: u64) -> Option<String> {
        let layout = self.layouts.get(&tgid)?;
        let loaded = layout
            .loaded
            .iter()
            .find(|loaded| (loaded.start..loaded.end).contains(&address))?;
        let variables = self.files.get(&loaded.file)?.as_ref()?;
        let name = variables.find(address - loaded.start + variables.first)?;
        Some(format!("{name} ({})", loaded.name))
    }

    fn read_layout(&mut self, tgid: u32) {
        let layout = self.layouts.entry(tgid).or_default();
        layout.read = Some(Instant::now());
        let Ok(maps) = Process::new(tgid as i32).and_then(|process| process.maps()) else {
            return;
        };
        layout.loaded.clear();
        for map in &maps {
            let MMapPath::Path(path) = &map.pathname else {
                continue;
            };
            if map.offset != 0 {
                continue; // the first mapping of a file determines where all of it is
            }
            // Through the process's own root, so that files inside containers are found; a file is
            // used only if it is the one that was mapped.
            let inside = format!("/proc/{tgid}/root{}", path.display());
            let Ok(metadata) = std::fs::metadata(&inside) else {
                continue;
            };
            if metadata.ino() != map.inode {
                continue;
            }
            let file = (metadata.dev(), metadata.ino());
            if !self.files.contains_key(&file) && self.files.len() >= MAX_FILES {
                continue;
            }
            let variables = self
                .files
                .entry(file)
                .or_insert_with(|| Variables::read(Path::new(&inside)));
            let Some(variables) = variables else { continue };
            layout.loaded.push(Loaded {
                start: map.address.0,
                end: map.address.0 + (variables.end - variables.first),
                file,
                name: path.file_name().map_or_else(
                    || path.display().to_string(),
                    |name| name.to_string_lossy().into_owned(),
                ),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static WORD: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(3);

    #[test]
    fn a_static_of_this_program_has_its_name() {
        let mut words = FutexVariables::default();
        let address = WORD.as_ptr() as u64;
        let own = std::process::id();
        words.learn(own, address);
        let name = words.name(own, address);
        // The name in the source, not the mangled one.
        assert!(
            name.starts_with("debox::resources::futex_variables::tests::WORD"),
            "{name}"
        );
    }

    #[test]
    fn what_is_in_no_file_keeps_its_address() {
        let on_heap = Box::new(1u32);
        let address = std::ptr::from_ref(on_heap.as_ref()) as u64;
        let mut words = FutexVariables::default();
        words.learn(std::process::id(), address);
        let name = words.name(std::process::id(), address);
        assert!(name.starts_with("0x"), "{name}");
    }
}
