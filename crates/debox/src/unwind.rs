//! Where a system call wrapper keeps its return address, from the unwinding tables of its file.
//!
//! One frame is enough for the immediate call site, and it is exact where guessing from the stack
//! is not: glibc's wrappers have frames of different sizes around the `syscall` instruction.

use std::fs::File;

use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::LittleEndian;

use crate::process::Wrapper;
use crate::stacks::rule::{FrameBase, Rule, Saved, RBP, RETURN_ADDRESS, RSP};
use crate::tables;

/// Where the return address is at a place with this rule; `None` if that takes more than a register
/// and a distance.
pub(crate) fn return_address(rule: &Rule) -> Option<Wrapper> {
    let FrameBase::Register(register, base) = rule.base else {
        return None;
    };
    let Some(Saved::At(at)) = rule.saved(RETURN_ADDRESS) else {
        return None;
    };
    let rule = match register {
        RSP => tables::WRAPPER_FROM_SP,
        RBP => tables::WRAPPER_FROM_BP,
        _ => return None,
    };
    Some(Wrapper {
        offset: i32::try_from(base.checked_add(*at)?).ok()?,
        rule,
    })
}

/// The file offset where the first executable segment's code begins, as the kernel's `start_code`
/// names it in memory.
pub(crate) fn first_code_offset(file: &File) -> Option<u64> {
    let cache = object::ReadCache::new(file);
    let header = FileHeader64::<LittleEndian>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &cache).ok()?;
    let code = segments.iter().filter(|segment| {
        segment.p_type(endian) == PT_LOAD && segment.p_flags(endian).0 & PF_X.0 != 0
    });
    code.map(|segment| segment.p_offset(endian)).min()
}
