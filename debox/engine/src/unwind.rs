//! Finds where a system call wrapper keeps its return address, from the unwinding tables of its
//! file.
//!
//! One frame is enough for the immediate call site. Unlike guessing from the stack, this is exact:
//! glibc's wrappers have frames of different sizes around the `syscall` instruction.

use std::fs::File;

use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::LittleEndian;

use crate::stacks::rule::{FrameBase, Rule, Saved, RBP, RETURN_ADDRESS, RSP};
use crate::tables;

/// Where a wrapper around a system call keeps its return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Wrapper {
    pub offset: i32,
    /// 1: from the stack pointer, 2: from the frame pointer, 0: not known.
    pub rule: u32,
}

/// The place of the return address by this rule; `None` if it is not a register plus a distance.
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

/// The file offset at which the first executable segment's code begins; `start_code` is the
/// kernel's address of the same place.
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
