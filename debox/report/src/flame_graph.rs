// SPDX-License-Identifier: MIT OR Apache-2.0
//! The off-CPU flame graph as data.

use std::collections::BTreeMap;

use serde::Serialize;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Program,
    Call,
    Label,
    Kernel,
}

#[derive(Debug, Clone, Serialize)]
pub struct Frame {
    /// Index into the names.
    pub name: usize,
    pub kind: Kind,
    pub blocked_ns: u64,
    pub sleeps: u64,
    pub children: Vec<Frame>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Flame {
    pub names: Vec<String>,
    pub roots: Vec<Frame>,
    /// Time of frames that were too small to keep; it is included in the frames above them.
    pub pruned_frames: u64,
    /// Sleeps whose stacks did not fit into memory; they are under `(other)`.
    pub folded_sleeps: u64,
}

impl Flame {
    pub fn drop_unused_names(&mut self) {
        fn visit(frames: &mut [Frame], visit_one: &mut impl FnMut(&mut Frame)) {
            for frame in frames {
                visit_one(frame);
                visit(&mut frame.children, visit_one);
            }
        }
        let mut used: BTreeMap<usize, usize> = BTreeMap::new();
        let mut roots = std::mem::take(&mut self.roots);
        visit(&mut roots, &mut |frame| {
            let next = used.len();
            frame.name = *used.entry(frame.name).or_insert(next);
        });
        let mut names = vec![String::new(); used.len()];
        for (old, new) in used {
            names[new] = std::mem::take(&mut self.names[old]);
        }
        self.names = names;
        self.roots = roots;
    }
}
