//! The unwinding tables of a file: `.eh_frame`, which nearly every program has because exception
//! handling needs it, and `.debug_frame`, which Go writes.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, EhFrame, EhFrameHdr, EndianSlice, LittleEndian,
    ParsedEhFrameHdr, UnwindContext, UnwindOffset, UnwindSection,
};
use object::{Object, ObjectSection, ObjectSegment};

use super::rule::{Rule, Slice};
use crate::module::Module;

/// Larger sections are not read: the largest existing programs have tables of 20 MB.
const MAX_SECTION: u64 = 64 << 20;

/// Loaded segments, code or not: where the file's bytes are in memory.
struct Segment {
    file: u64,
    size: u64,
    address: u64,
}

struct Function {
    start: u64,
    /// Offset of its entry in the section.
    entry: usize,
}

/// Finds the entry of a function.
enum Index {
    /// The linker's own, `.eh_frame_hdr`.
    Header(Vec<u8>),
    /// Sorted by start address.
    Functions(Vec<Function>),
}

struct Section {
    is_debug: bool,
    data: Vec<u8>,
    bases: BaseAddresses,
    index: Index,
}

/// A file's unwinding tables, ready for look-ups.
pub(crate) struct Tables {
    segments: Vec<Segment>,
    sections: Vec<Section>,
}

/// The most bytes of tables that are kept in memory.
const MAX_BYTES: usize = 128 << 20;

/// The tables of a session's files.
#[derive(Default)]
pub(crate) struct Cache {
    tables: HashMap<u32, Tables>,
    bytes: usize,
}

impl Cache {
    pub fn of(&mut self, module: &Module) -> &Tables {
        if !self.tables.contains_key(&module.id) {
            let tables = Tables::read(&module.open_path());
            if self.bytes + tables.size() > MAX_BYTES {
                self.tables.clear();
                self.bytes = 0;
            }
            self.bytes += tables.size();
            self.tables.insert(module.id, tables);
        }
        &self.tables[&module.id]
    }
}

impl Tables {
    /// A file that cannot be read has no tables.
    pub fn read(path: &Path) -> Tables {
        Self::try_read(path).unwrap_or(Tables {
            segments: Vec::new(),
            sections: Vec::new(),
        })
    }

    fn try_read(path: &Path) -> Option<Tables> {
        let cache = object::ReadCache::new(File::open(path).ok()?);
        let elf = object::File::parse(&cache).ok()?;
        if elf.architecture() != object::Architecture::X86_64 {
            return None;
        }
        let segments = elf
            .segments()
            .map(|segment| Segment {
                file: segment.file_range().0,
                size: segment.file_range().1,
                address: segment.address(),
            })
            .collect();
        let address = |name: &str| elf.section_by_name(name).map_or(0, |s| s.address());
        let bases = BaseAddresses::default()
            .set_eh_frame(address(".eh_frame"))
            .set_eh_frame_hdr(address(".eh_frame_hdr"))
            .set_text(address(".text"))
            .set_got(address(".got"));
        let read = |name: &str| {
            let section = elf.section_by_name(name)?;
            let compressed = section.compressed_data().ok()?;
            if compressed.uncompressed_size > MAX_SECTION {
                return None;
            }
            Some(compressed.decompress().ok()?.into_owned())
        };
        let for_exceptions = read(".eh_frame")
            .map(|data| Section::for_exceptions(data, read(".eh_frame_hdr"), bases.clone()));
        let for_debuggers =
            read(".debug_frame").map(|data| Section::for_debuggers(data, bases.clone()));
        let sections = for_exceptions.into_iter().chain(for_debuggers).collect();
        Some(Tables { segments, sections })
    }

    /// The memory used by the tables, in bytes.
    pub fn size(&self) -> usize {
        let of = |section: &Section| {
            section.data.len()
                + match &section.index {
                    Index::Header(header) => header.len(),
                    Index::Functions(functions) => std::mem::size_of_val(functions.as_slice()),
                }
        };
        self.sections.iter().map(of).sum()
    }

    /// The rule at an offset of the file; `None` if the tables have none.
    pub fn rule(&self, file_offset: u64) -> Option<Rule> {
        let address = self.address(file_offset)?;
        self.sections
            .iter()
            .find_map(|section| section.rule(address))
    }

    /// The distance of an offset of the file from the start of the code that its entry covers: a
    /// function, or one part of a function that is in several places. `None` if the tables have no
    /// entry.
    pub fn distance(&self, file_offset: u64) -> Option<u64> {
        let address = self.address(file_offset)?;
        self.sections
            .iter()
            .find_map(|section| section.distance(address))
    }

    /// The address of an offset of the file, as the file's own symbols have it.
    pub fn address(&self, file_offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|s| {
            file_offset
                .checked_sub(s.file)
                .is_some_and(|at| at < s.size)
        })?;
        segment.address.checked_add(file_offset - segment.file)
    }
}

impl Section {
    fn for_exceptions(data: Vec<u8>, header: Option<Vec<u8>>, bases: BaseAddresses) -> Section {
        let header = header.filter(|header| table_of(header, &bases).is_some());
        let index = match header {
            Some(header) => Index::Header(header),
            None => Index::Functions(list_functions(&eh_frame(&data), &bases)),
        };
        Section {
            is_debug: false,
            data,
            bases,
            index,
        }
    }

    fn for_debuggers(data: Vec<u8>, bases: BaseAddresses) -> Section {
        let index = Index::Functions(list_functions(&debug_frame(&data), &bases));
        Section {
            is_debug: true,
            data,
            bases,
            index,
        }
    }

    fn rule(&self, address: u64) -> Option<Rule> {
        let entry = self.entry(address)?;
        if self.is_debug {
            rule_in(&debug_frame(&self.data), &self.bases, entry, address)
        } else {
            rule_in(&eh_frame(&self.data), &self.bases, entry, address)
        }
    }

    fn distance(&self, address: u64) -> Option<u64> {
        let entry = self.entry(address)?;
        if self.is_debug {
            distance_in(&debug_frame(&self.data), &self.bases, entry, address)
        } else {
            distance_in(&eh_frame(&self.data), &self.bases, entry, address)
        }
    }

    /// The last function that begins at or before the address; it may end before it.
    fn entry(&self, address: u64) -> Option<usize> {
        match &self.index {
            Index::Header(header) => {
                let header = table_of(header, &self.bases)?;
                let table = header.table()?;
                let at = table.lookup(address, &self.bases).ok()?;
                Some(table.pointer_to_offset(at).ok()?.0)
            }
            Index::Functions(functions) => {
                let after = functions.partition_point(|f| f.start <= address);
                Some(functions[..after].last()?.entry)
            }
        }
    }
}

/// The linker's index, if it has one that can be searched.
fn table_of<'a>(header: &'a [u8], bases: &BaseAddresses) -> Option<ParsedEhFrameHdr<Slice<'a>>> {
    let header = EhFrameHdr::new(header, LittleEndian).parse(bases, 8).ok()?;
    header.table().is_some().then_some(header)
}

fn eh_frame(data: &[u8]) -> EhFrame<Slice<'_>> {
    let mut section = EhFrame::from(EndianSlice::new(data, LittleEndian));
    section.set_address_size(8);
    section
}

fn debug_frame(data: &[u8]) -> DebugFrame<Slice<'_>> {
    let mut section = DebugFrame::from(EndianSlice::new(data, LittleEndian));
    section.set_address_size(8);
    section
}

/// All functions in a section, up to the first broken entry.
fn list_functions<'a, S>(section: &S, bases: &BaseAddresses) -> Vec<Function>
where
    S: UnwindSection<Slice<'a>>,
{
    let mut functions = Vec::new();
    let mut entries = section.entries(bases);
    // Nearly all entries have the same common information entry as the one before.
    let mut last: Option<gimli::CommonInformationEntry<Slice<'a>>> = None;
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let parsed = partial.parse(|section, bases, offset| {
            let at: usize = UnwindOffset::into(offset);
            match &last {
                Some(common) if common.offset() == at => Ok(common.clone()),
                _ => {
                    let common = section.cie_from_offset(bases, offset)?;
                    last = Some(common.clone());
                    Ok(common)
                }
            }
        });
        let Ok(entry) = parsed else { continue };
        // The linker leaves entries of discarded functions at address 0.
        if entry.initial_address() == 0 {
            continue;
        }
        functions.push(Function {
            start: entry.initial_address(),
            entry: entry.offset(),
        });
    }
    functions.sort_by_key(|function| function.start);
    functions.shrink_to_fit();
    functions
}

fn distance_in<'a, S>(section: &S, bases: &BaseAddresses, entry: usize, address: u64) -> Option<u64>
where
    S: UnwindSection<Slice<'a>>,
{
    let offset = <S::Offset as From<usize>>::from(entry);
    let entry = section
        .fde_from_offset(bases, offset, S::cie_from_offset)
        .ok()?;
    entry
        .contains(address)
        .then(|| address - entry.initial_address())
}

fn rule_in<'a, S>(section: &S, bases: &BaseAddresses, entry: usize, address: u64) -> Option<Rule>
where
    S: UnwindSection<Slice<'a>>,
{
    let offset = <S::Offset as From<usize>>::from(entry);
    let entry = section
        .fde_from_offset(bases, offset, S::cie_from_offset)
        .ok()?;
    let mut context = UnwindContext::new();
    let row = entry
        .unwind_info_for_address(section, bases, &mut context, address)
        .ok()?;
    let encoding = entry.cie().encoding();
    Rule::of(section, row, encoding, entry.is_signal_trampoline())
}
