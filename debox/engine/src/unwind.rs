//! Finds where a system call wrapper keeps its return address, from the unwinding tables of its
//! file.
//!
//! One frame is enough for the immediate call site. Unlike guessing from the stack, this is exact:
//! glibc's wrappers have frames of different sizes around the `syscall` instruction.

use std::fs::File;

use object::elf::{FileHeader64, DT_NEEDED, DT_SONAME, PF_X, PT_INTERP, PT_LOAD};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::LittleEndian;

use crate::process::Wrapper;
use crate::stacks::rule::{FrameBase, Rule, Saved, RBP, RETURN_ADDRESS, RSP};
use crate::tables;

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

/// Whether a program needs no shared libraries.
pub(crate) fn needs_no_libraries(file: &File) -> Option<bool> {
    let cache = object::ReadCache::new(file);
    let header = FileHeader64::<LittleEndian>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, &cache).ok()? {
        if segment.p_type(endian) == PT_INTERP {
            return Some(false);
        }
        // A position-independent static program has this segment, too, to relocate itself.
        let dynamic = segment.dynamic(endian, &cache).ok()?.unwrap_or(&[]);
        let mut tags = dynamic.iter().map(|entry| entry.d_tag(endian));
        if tags.any(|tag| tag == DT_NEEDED || tag == DT_SONAME) {
            return Some(false);
        }
    }
    Some(true)
}
