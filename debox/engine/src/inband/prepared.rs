//! The machine's files that explanations need, read when the process enables DeBox.
//!
//! Later it may be too late: the process may have changed its root directory, or dropped the privilege that
//! is needed to see the addresses in `/proc/kallsyms`. Reading also takes long, which would delay a
//! request.

use std::sync::OnceLock;

use anyhow::Result;

use crate::labels::Labels;
use crate::symbols::{KernelNames, Symbols};

/// Read once and never freed, since a signal handler may be reading it.
static NAMES: OnceLock<KernelNames> = OnceLock::new();

/// The kernel's names.
pub(super) fn names() -> Option<&'static KernelNames> {
    NAMES.get()
}

/// Reads the kernel's names, unless they have been read.
pub(super) fn read_names() -> Result<&'static KernelNames> {
    if let Some(known) = NAMES.get() {
        return Ok(known);
    }
    let names = KernelNames::read()?;
    Ok(NAMES.get_or_init(|| names))
}

/// Loads everything that explanations need into memory. If the names cannot be read, explanations try again
/// and show addresses.
pub(super) fn prepare(symbols: &mut Option<Symbols>) {
    Labels::builtin();
    if symbols.is_none() {
        *symbols = read_names().ok().map(Symbols::with_names);
    }
}
