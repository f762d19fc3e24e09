// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stacks that the probes captured, by their names.

use std::collections::HashMap;

use crate::tables::types;

/// Stacks whose functions are not looked up yet.
#[derive(Default)]
pub(crate) struct StackTable {
    /// Innermost frame first.
    pub kernel: HashMap<u64, Vec<u64>>,
    /// Arguments of the call that slept, for kernel stacks whose label depends on them.
    pub args: HashMap<u64, [u64; 3]>,
    /// User stacks as far as the probes could follow them.
    pub user: HashMap<u64, types::user_stack>,
    /// Whether whole user stacks were requested: a stack that is only in `user` then lacks frames.
    pub wants_whole: bool,
}

impl StackTable {
    /// An empty table. `wants_whole`: see the field.
    pub fn new(wants_whole: bool) -> StackTable {
        StackTable {
            wants_whole,
            ..StackTable::default()
        }
    }

    /// Adds a kernel stack as the probes keep it.
    pub fn add_kernel(&mut self, name: u64, stack: &types::kernel_stack) {
        self.kernel.insert(name, frames_of(stack));
        if stack.has_args != 0 {
            self.args.insert(name, stack.args);
        }
    }

    pub fn extend(&mut self, other: StackTable) {
        self.kernel.extend(other.kernel);
        self.args.extend(other.args);
        self.user.extend(other.user);
    }
}

/// The addresses of a kernel stack, innermost first.
pub(crate) fn frames_of(stack: &types::kernel_stack) -> Vec<u64> {
    let frames = stack.frames.iter().copied();
    frames.take_while(|frame| *frame != 0).collect()
}
