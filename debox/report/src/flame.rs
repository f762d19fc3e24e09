//! The off-CPU flame graph. Each path is the program's stack, the call, the label and the kernel's
//! stack; its width is the time slept there.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use debox_model::frame::{self, texts_of};
use rustc_hash::FxHashMap;

use crate::flame_graph::{Flame, Frame, Kind, Own};
use crate::names::{Name, Names, NONE, TOO_MANY};
use crate::stacks::{Slices, StackSums, Stacks};
use crate::timeline::Timeline;

/// Frames in the page, at most.
const NODES_MAX: usize = 5000;
/// Frames of a stack, at most; further ones are removed from its middle.
const DEPTH_MAX: usize = 96;
const FRAME_LENGTH_MAX: usize = 160;
/// Thread names of one stack, at most, and of all stacks about.
const THREADS_MAX: usize = 8;
const OWN_MAX: usize = 10_000;
/// Slices in the page, at most: stacks with less time have none.
const SLICES_MAX: usize = 30_000;

/// Whose time it is, and whether it is spent waiting for work.
type Whose = (Name, bool);

#[derive(Default)]
struct Node {
    blocked: u64,
    sleeps: u64,
    children: BTreeMap<(Kind, usize), Node>,
    own: BTreeMap<Whose, (u64, Slices)>,
}

impl Node {
    fn add_own(&mut self, whose: Whose, blocked: u64, slices: &Slices) {
        let own = self.own.entry(whose);
        let (sum, over_time) = own.or_insert_with(|| (0, Timeline::new(slices.origin())));
        *sum = sum.saturating_add(blocked);
        over_time.merge(slices);
    }

    /// Takes over the own time of a frame that is left out, and of all frames below it.
    fn take_own(&mut self, gone: Node) {
        for (whose, (blocked, slices)) in gone.own {
            self.add_own(whose, blocked, &slices);
        }
        for child in gone.children.into_values() {
            self.take_own(child);
        }
    }
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
fn function(text: &str, kind: Kind) -> String {
    let frame = frame::Frame::from(text);
    match kind == Kind::Program && frame.nameless_in().is_some() {
        true => text.to_string(),
        false => frame.without_offset().to_string(),
    }
}

/// `rests`: whether the findings leave out the waits of a thread that may be for work.
pub fn flame(stacks: &Stacks, names: &Names, rests: &dyn Fn((u32, u32)) -> bool) -> Flame {
    let mut table = Table::default();
    let mut root = Node::default();
    let mut paths: FxHashMap<(Name, Kind), Vec<usize>> = FxHashMap::default();
    let mut all = Slices::new(stacks.origin);
    // A fixed order makes the page of a history reproducible.
    let mut keys: Vec<_> = stacks.sums.iter().collect();
    keys.sort_unstable_by_key(|(key, _)| **key);
    for (key, sums) in keys {
        let StackSums {
            blocked,
            sleeps,
            slices,
        } = sums;
        all.merge(slices);
        let mut frames = |name: Name, kind: Kind, table: &mut Table| -> Vec<usize> {
            if name == NONE {
                return Vec::new();
            }
            let path = paths.entry((name, kind)).or_insert_with(|| {
                let text = names.get(name);
                let frames: Vec<&str> = texts_of(&text).collect();
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
        let whose = (key.comm, key.may_rest.is_some_and(rests));
        node.add_own(whose, *blocked, slices);
    }
    let mut sizes = Vec::new();
    collect_sizes(&root, &mut sizes);
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let least = match sizes.get(NODES_MAX) {
        Some(size) => size + 1,
        None => 0,
    };
    let stacks_shown = with_own_time(&root, least).max(1);
    let mut shaper = Shaper {
        least,
        threads: (OWN_MAX / stacks_shown).clamp(2, THREADS_MAX),
        pruned: 0,
        names,
        table,
        slices: all.like(),
    };
    let mut roots = shaper.frames(&mut root);
    bound_slices(&mut roots);
    let mut flame = Flame {
        names: shaper.table.names,
        roots,
        pruned_frames: shaper.pruned,
        folded_sleeps: stacks.folded,
        slices_begin_ns: stacks.origin,
        slice_ns: all.bin_ns(),
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

/// How many frames with at least that much time have time of their own.
fn with_own_time(node: &Node, least: u64) -> usize {
    let shown = node
        .children
        .values()
        .filter(|child| child.blocked >= least);
    shown.fold(0, |sum, child| {
        sum + usize::from(!child.own.is_empty()) + with_own_time(child, least)
    })
}

/// Makes frames of nodes.
struct Shaper<'a> {
    /// Frames with less time are left out.
    least: u64,
    /// Thread names of one stack, at most.
    threads: usize,
    pruned: u64,
    names: &'a Names,
    table: Table,
    /// Empty, with slices of the final width.
    slices: Slices,
}

impl Shaper<'_> {
    /// The frames below a node, which gets the time of those that are left out.
    fn frames(&mut self, node: &mut Node) -> Vec<Frame> {
        let mut found = Vec::new();
        for ((kind, name), mut child) in std::mem::take(&mut node.children) {
            if child.blocked < self.least {
                self.pruned += 1;
                node.take_own(child);
                continue;
            }
            found.push(Frame {
                name,
                kind,
                blocked_ns: child.blocked,
                sleeps: child.sleeps,
                children: self.frames(&mut child),
                own: self.own(child.own),
            });
        }
        found.sort_by_key(|frame| Reverse(frame.blocked_ns));
        found
    }

    /// The longest times by thread name; the others are one row.
    fn own(&mut self, own: BTreeMap<Whose, (u64, Slices)>) -> Vec<Own> {
        let mut rows: Vec<(Whose, (u64, Slices))> = own.into_iter().collect();
        rows.sort_by_key(|(_, (blocked, _))| Reverse(*blocked));
        let mut others = Node::default();
        for ((_, is_rest), (blocked, slices)) in rows.drain(self.threads.min(rows.len())..) {
            others.add_own((TOO_MANY, is_rest), blocked, &slices);
        }
        let rows = rows.into_iter().chain(others.own);
        rows.map(|((comm, is_rest), (blocked, slices))| {
            let mut line = self.slices.clone();
            line.merge(&slices);
            let ns: Vec<u64> = line.bins().iter().map(|[ns]| *ns).collect();
            let from = ns.iter().position(|ns| *ns > 0).unwrap_or(0);
            Own {
                thread: self.table.of(&self.names.get(comm)),
                is_rest,
                blocked_ns: blocked,
                from,
                ns: ns[from..].to_vec(),
            }
        })
        .collect()
    }
}

/// Keeps the slices of the stacks with most time.
fn bound_slices(roots: &mut [Frame]) {
    fn visit(frames: &mut [Frame], visit_one: &mut impl FnMut(&mut Own)) {
        for frame in frames {
            frame.own.iter_mut().for_each(&mut *visit_one);
            visit(&mut frame.children, visit_one);
        }
    }
    let mut sizes = Vec::new();
    visit(roots, &mut |own| sizes.push((own.blocked_ns, own.ns.len())));
    sizes.sort_unstable_by_key(|(blocked, _)| Reverse(*blocked));
    let mut room = SLICES_MAX;
    let full = sizes
        .into_iter()
        .find(|(_, slices)| match room.checked_sub(*slices) {
            Some(left) => {
                room = left;
                false
            }
            None => true,
        });
    if let Some((most, _)) = full {
        visit(roots, &mut |own| {
            if own.blocked_ns <= most {
                own.ns.clear();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::StackKey;

    const MS: u64 = 1_000_000;

    fn own_time(frames: &[Frame], found: &mut Vec<(usize, bool, u64, u64)>) -> u64 {
        let of = |frame: &Frame, found: &mut Vec<_>| {
            let own = frame.own.iter().fold(0, |sum, own| sum + own.blocked_ns);
            let rows = frame.own.iter();
            found.extend(rows.map(|own| {
                let slices = own.ns.iter().sum::<u64>();
                (own.thread, own.is_rest, own.blocked_ns, slices)
            }));
            assert_eq!(frame.blocked_ns, own + own_time(&frame.children, found));
            frame.blocked_ns
        };
        frames.iter().map(|frame| of(frame, found)).sum()
    }

    /// The time of a stack by thread name and slice adds up to its time.
    #[test]
    fn time_is_divided_by_thread_and_slice() {
        let names = Names::default();
        let mut stacks = Stacks::new(0);
        let key = |stack: &str, comm: &str, rests: Option<u32>| StackKey {
            stack: names.of(stack),
            call: names.of("futex"),
            label: names.of("futex"),
            kernel: names.of("futex_wait"),
            comm: names.of(comm),
            may_rest: rests.map(|tid| (1, tid)),
        };
        for at in 0..1000 {
            stacks.add(key("main;serve", "server", None), (at * MS) as i64, MS / 2);
        }
        stacks.add(key("main;work", "worker", Some(7)), 0, 900 * MS);
        stacks.add(key("main;work", "worker", Some(8)), 0, 500 * MS);
        let flame = flame(&stacks, &names, &|(_, tid)| tid == 7);
        let mut own = Vec::new();
        assert_eq!(own_time(&flame.roots, &mut own), 1900 * MS);
        assert!(own.iter().all(|(.., blocked, slices)| blocked == slices));
        let name = |index: usize| flame.names[index].as_str();
        let mut rows: Vec<_> = own
            .iter()
            .map(|(thread, is_rest, blocked, _)| (name(*thread), *is_rest, blocked / MS))
            .collect();
        rows.sort_unstable();
        let expected = [
            ("server", false, 500),
            ("worker", false, 500),
            ("worker", true, 900),
        ];
        assert_eq!(rows, expected);
        let slices = 1000 * MS / flame.slice_ns;
        assert!((32..=64).contains(&slices), "{slices}");
    }

    /// A page stays small, whatever was recorded; no time is lost.
    #[test]
    fn many_stacks_threads_and_slices_are_bounded() {
        let names = Names::default();
        let mut stacks = Stacks::new(0);
        for at in 0..20_000u64 {
            let key = StackKey {
                stack: names.of(&format!("main;f{}", at % 2_000)),
                call: names.of("read"),
                label: names.of("page read"),
                kernel: names.of(&format!("k{}", at % 7)),
                comm: names.of(&format!("worker-{}", at % 37)),
                may_rest: None,
            };
            stacks.add(key, 0, 5_000 + at);
            stacks.add(key, 1_000 * MS as i64, 5_000);
        }
        let flame = flame(&stacks, &names, &|_| false);
        let mut own = Vec::new();
        let shown = own_time(&flame.roots, &mut own);
        assert_eq!(
            shown,
            stacks.sums.values().map(|sums| sums.blocked).sum::<u64>()
        );
        fn count(frames: &[Frame]) -> (usize, usize, usize) {
            frames
                .iter()
                .fold((0, 0, 0), |(nodes, owns, slices), frame| {
                    assert!(frame.own.len() <= THREADS_MAX + 2);
                    let below = count(&frame.children);
                    let own = frame.own.iter().map(|own| own.ns.len()).sum::<usize>();
                    (
                        nodes + below.0 + 1,
                        owns + below.1 + frame.own.len(),
                        slices + below.2 + own,
                    )
                })
        }
        let (nodes, owns, slices) = count(&flame.roots);
        assert!(
            nodes <= NODES_MAX && slices <= SLICES_MAX,
            "{nodes} {slices}"
        );
        assert!(owns <= nodes * (THREADS_MAX + 2) && slices > 0);
    }
}
