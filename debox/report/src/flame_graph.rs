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
    /// The time that is in no child, by thread name. Together with the children's it is `blocked_ns`.
    pub own: Vec<Own>,
}

/// Time slept at one stack by the threads of one name.
#[derive(Debug, Clone, Serialize)]
pub struct Own {
    /// The threads' name, as an index into the names.
    pub thread: usize,
    /// Whether the findings leave it out: the threads waited for work.
    pub is_rest: bool,
    pub blocked_ns: u64,
    /// The time in each slice of the recording, from this slice on. Empty for stacks with little time.
    pub from: usize,
    pub ns: Vec<u64>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Flame {
    pub names: Vec<String>,
    pub roots: Vec<Frame>,
    /// Time of frames that were too small to keep; it is included in the frames above them.
    pub pruned_frames: u64,
    /// Sleeps whose stacks did not fit into memory; they are under `(other)`.
    pub folded_sleeps: u64,
    /// When the first slice begins, in nanoseconds since 1970, and how long each is.
    pub slices_begin_ns: i64,
    pub slice_ns: u64,
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
            let owners = frame.own.iter_mut().map(|own| &mut own.thread);
            for name in [&mut frame.name].into_iter().chain(owners) {
                let next = used.len();
                *name = *used.entry(*name).or_insert(next);
            }
        });
        let mut names = vec![String::new(); used.len()];
        for (old, new) in used {
            names[new] = std::mem::take(&mut self.names[old]);
        }
        self.names = names;
        self.roots = roots;
    }
}
