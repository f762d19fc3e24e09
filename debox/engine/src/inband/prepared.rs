//! What explanations need of the machine's files, read when the process enables DeBox.
//!
//! Later it may be too late: the process may have changed its root directory, or have dropped the privilege
//! that the addresses in `/proc/kallsyms` are shown to. And it takes long, in the midst of a request.

use std::sync::OnceLock;

use anyhow::Result;

use crate::labels::Labels;
use crate::symbols::{KernelNames, Symbols};

/// Read once, and never given back: a signal handler may be looking.
static NAMES: OnceLock<KernelNames> = OnceLock::new();

/// The kernel's names.
pub(super) fn names() -> Option<&'static KernelNames> {
    NAMES.get()
}

/// Reads the kernel's names, unless that has been done.
pub(super) fn read_names() -> Result<&'static KernelNames> {
    if let Some(known) = NAMES.get() {
        return Ok(known);
    }
    let names = KernelNames::read()?;
    Ok(NAMES.get_or_init(|| names))
}

/// Has explanations find all that they need in memory. Where the names cannot be read, explanations try it
/// again, and show addresses.
pub(super) fn prepare(symbols: &mut Option<Symbols>) {
    Labels::builtin();
    if symbols.is_none() {
        *symbols = read_names().ok().map(Symbols::with_names);
    }
}
