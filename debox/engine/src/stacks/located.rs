// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frames of user stacks, before they are named.

use std::rc::Rc;

use crate::module::Module;

/// A frame as a place in a file, or in memory that no file is mapped to.
#[derive(Debug, Clone)]
pub(crate) struct Located {
    pub module: Option<Rc<Module>>,
    /// The mapping's name, if there is no file.
    pub mapping: Rc<str>,
    /// Offset in the file, or address in memory.
    pub offset: u64,
    pub is_return: bool,
    /// Code that was made at run time.
    pub made: Option<Made>,
}

/// The state of code that was made at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Made {
    /// The program has named it: `mapping` is the function, and `offset` is relative to it.
    Named,
    /// This process has not named it yet.
    Unnamed { tgid: u32 },
}
