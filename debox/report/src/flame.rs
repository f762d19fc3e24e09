//! The off-CPU flame graph. Each path is the program's stack, the call, the label and the kernel's
//! stack; its width is the time slept there.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::aggregate::StackKey;
use crate::flame_graph::{Flame, Frame, Kind};
use crate::names::{Name, Names, NONE};

/// Frames in the page, at most.
const NODES_MAX: usize = 5000;
/// Frames of a stack, at most; further ones are removed from its middle.
const DEPTH_MAX: usize = 96;
const FRAME_LENGTH_MAX: usize = 160;

#[derive(Default)]
struct Node {
    blocked: u64,
    sleeps: u64,
    children: BTreeMap<(Kind, usize), Node>,
}

#[derive(Default)]
struct Table {
    names: Vec<String>,
    index: FxHashMap<String, usize>,
}

impl Table {
    fn of(&mut self, text: &str) -> usize {
        let text: String = text.chars().take(FRAME_LENGTH_MAX).collect();
        if let Some(index) = self.index.get(&text) {
            return *index;
        }
        let index = self.names.len();
        self.names.push(text.clone());
        self.index.insert(text, index);
        index
    }
}

/// Removes the offset, so that a function is one frame regardless of where in it the call is. A
/// program's frame without a source location may have no symbol; then only the offset identifies it.
fn function(frame: &str, kind: Kind) -> String {
    match frame.split_once("+0x") {
        Some((function, offset)) => {
            let place = offset.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
            if place.is_empty() && kind == Kind::Program {
                return frame.to_string();
            }
            format!("{function}{place}")
        }
        None => frame.to_string(),
    }
}

pub fn flame(stacks: &FxHashMap<StackKey, (u64, u64)>, folded_sleeps: u64, names: &Names) -> Flame {
    let mut table = Table::default();
    let mut root = Node::default();
    let mut paths: FxHashMap<(Name, Kind), Vec<usize>> = FxHashMap::default();
    // A fixed order makes the page of a history reproducible.
    let mut keys: Vec<_> = stacks.iter().collect();
    keys.sort_unstable_by_key(|(key, _)| **key);
    for (key, (blocked, sleeps)) in keys {
        let mut frames = |name: Name, kind: Kind, table: &mut Table| -> Vec<usize> {
            if name == NONE {
                return Vec::new();
            }
            let path = paths.entry((name, kind)).or_insert_with(|| {
                let text = names.get(name);
                let frames: Vec<&str> = text.split(';').filter(|f| !f.is_empty()).collect();
                let (begin, end) = match frames.len() {
                    length if length > DEPTH_MAX => {
                        (&frames[..DEPTH_MAX / 2], &frames[length - DEPTH_MAX / 2..])
                    }
                    _ => (&frames[..], &[] as &[&str]),
                };
                let mut path: Vec<usize> = begin
                    .iter()
                    .map(|frame| table.of(&function(frame, kind)))
                    .collect();
                if !end.is_empty() {
                    path.push(table.of("(frames left out)"));
                    path.extend(end.iter().map(|frame| table.of(&function(frame, kind))));
                }
                path
            });
            path.clone()
        };
        let mut path: Vec<(Kind, usize)> = Vec::new();
        let program = frames(key.stack, Kind::Program, &mut table);
        if program.is_empty() {
            path.push((Kind::Program, table.of("(no stack)")));
        }
        path.extend(program.into_iter().map(|frame| (Kind::Program, frame)));
        path.push((Kind::Call, table.of(&names.get(key.call))));
        path.push((Kind::Label, table.of(&names.get(key.label))));
        let kernel = frames(key.kernel, Kind::Kernel, &mut table);
        path.extend(kernel.into_iter().map(|frame| (Kind::Kernel, frame)));
        let mut node = &mut root;
        for frame in path {
            node = node.children.entry(frame).or_default();
            node.blocked = node.blocked.saturating_add(*blocked);
            node.sleeps += sleeps;
        }
    }
    let mut sizes = Vec::new();
    collect_sizes(&root, &mut sizes);
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let least = match sizes.get(NODES_MAX) {
        Some(size) => size + 1,
        None => 0,
    };
    let mut pruned = 0;
    let roots = frames(root, least, &mut pruned);
    let mut flame = Flame {
        names: table.names,
        roots,
        pruned_frames: pruned,
        folded_sleeps,
    };
    flame.drop_unused_names();
    flame
}

fn collect_sizes(node: &Node, sizes: &mut Vec<u64>) {
    for child in node.children.values() {
        sizes.push(child.blocked);
        collect_sizes(child, sizes);
    }
}

fn frames(node: Node, least: u64, pruned: &mut u64) -> Vec<Frame> {
    let mut found = Vec::new();
    for ((kind, name), child) in node.children {
        if child.blocked < least {
            *pruned += 1;
            continue;
        }
        found.push(Frame {
            name,
            kind,
            blocked_ns: child.blocked,
            sleeps: child.sleeps,
            children: frames(child, least, pruned),
        });
    }
    found.sort_by_key(|frame| std::cmp::Reverse(frame.blocked_ns));
    found
}
