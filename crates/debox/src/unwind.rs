//! Where a system call wrapper keeps its return address, from the unwinding tables of its file.
//!
//! One frame is enough for the immediate call site, and it is exact where guessing from the stack
//! is not: glibc's wrappers have frames of different sizes around the `syscall` instruction.

use std::fs::File;
use std::path::Path;

use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, EndianSlice, LittleEndian, Register, RegisterRule,
    UnwindContext, UnwindSection, X86_64,
};
use object::{Object, ObjectSection, ObjectSegment};

use crate::process::Wrapper;
use crate::tables;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The rule that finds the return address of the function around `file_offset`, or `None` if the
/// file has no unwinding information there.
pub(crate) fn return_address(path: &Path, file_offset: u64) -> Option<Wrapper> {
    let file = File::open(path).ok()?;
    let cache = object::ReadCache::new(file);
    let elf = object::File::parse(&cache).ok()?;
    let segment = elf.segments().find(|segment| {
        let (start, size) = segment.file_range();
        (start..start.saturating_add(size)).contains(&file_offset)
    })?;
    let address = (file_offset - segment.file_range().0).wrapping_add(segment.address());
    let section = |name: &str| elf.section_by_name(name);
    let bases = BaseAddresses::default()
        .set_eh_frame(section(".eh_frame").map_or(0, |s| s.address()))
        .set_text(section(".text").map_or(0, |s| s.address()))
        .set_got(section(".got").map_or(0, |s| s.address()));

    if let Some(data) = section(".eh_frame").and_then(|s| s.uncompressed_data().ok()) {
        let frames = EhFrame::from(slice(&data));
        if let Some(wrapper) = rule_at(&frames, &bases, address) {
            return Some(wrapper);
        }
    }
    let data = section(".debug_frame").and_then(|s| s.uncompressed_data().ok())?;
    let mut frames = DebugFrame::from(slice(&data));
    frames.set_address_size(8);
    rule_at(&frames, &bases, address)
}

/// The file offset where the first executable segment's code begins, as the kernel's `start_code`
/// names it in memory.
pub(crate) fn first_code_offset(path: &Path) -> Option<u64> {
    use object::SegmentFlags;
    let file = File::open(path).ok()?;
    let cache = object::ReadCache::new(file);
    let elf = object::File::parse(&cache).ok()?;
    let executable = |flags: SegmentFlags| match flags {
        SegmentFlags::Elf { p_flags, .. } => p_flags.0 & object::elf::PF_X.0 != 0,
        _ => false,
    };
    let code = elf.segments().filter(|segment| executable(segment.flags()));
    code.map(|segment| segment.file_range().0).min()
}

fn slice(data: &[u8]) -> Slice<'_> {
    EndianSlice::new(data, LittleEndian)
}

fn rule_at<'a, S>(frames: &S, bases: &BaseAddresses, address: u64) -> Option<Wrapper>
where
    S: UnwindSection<Slice<'a>>,
{
    let mut context = UnwindContext::new();
    let row = frames
        .unwind_info_for_address(bases, &mut context, address, S::cie_from_offset)
        .ok()?;
    let CfaRule::RegisterAndOffset {
        register,
        offset: cfa,
    } = *row.cfa()
    else {
        return None;
    };
    let Some(RegisterRule::Offset(at)) = row.register(X86_64::RA) else {
        return None;
    };
    let rule = match register {
        Register(7) => tables::WRAPPER_FROM_SP, // rsp
        Register(6) => tables::WRAPPER_FROM_BP, // rbp
        _ => return None,
    };
    Some(Wrapper {
        offset: i32::try_from(cfa.checked_add(at)?).ok()?,
        rule,
    })
}
