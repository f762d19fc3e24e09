// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a truth program knows: one flat JSON object of integers, its last line of output.

use std::collections::BTreeMap;

/// Integers by name, as the program printed them.
#[derive(Debug, Clone, Default)]
pub struct Facts(BTreeMap<String, u64>);

impl Facts {
    /// Reads the facts from a program's output; `None` when it printed none.
    pub fn from_output(output: &str) -> Option<Self> {
        let line = output.lines().rev().find(|line| line.starts_with('{'))?;
        serde_json::from_str(line).ok().map(Self)
    }

    /// The named fact.
    #[track_caller]
    pub fn get(&self, name: &str) -> u64 {
        match self.0.get(name) {
            Some(value) => *value,
            None => panic!("the program says nothing of `{name}`; it said {:?}", self.0),
        }
    }
}
