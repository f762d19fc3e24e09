//! Turns the probes' tables into the tree in the report.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use libbpf_rs::{MapCore, MapFlags};

use crate::calls;
use crate::report;
use crate::report::{TraceCall, TraceDenied, TraceEvent, TraceFunction, TraceLack, TraceLost};
use crate::tables::read_value;

use super::kernel_functions::KernelFunctions;
use super::skeleton::types;
use super::{events, sampled, Method, Trace};

/// The most functions that a report names per reason.
const DENIED_NAMED: usize = 20;

/// The outermost frames of every stack: the kernel's entry path, which is the same for all calls.
const OUTERMOST: [&str; 6] = [
    "entry_SYSCALL_64_after_hwframe",
    "entry_SYSCALL_64",
    "do_syscall_64",
    "x64_sys_call",
    "ret_from_fork_asm",
    "ret_from_fork",
];

impl Trace {
    /// The tree. To be called after the stop.
    pub fn report(&self) -> Result<report::Trace> {
        let is_sampled = self.method == Method::Sampled;
        let lost = self.lost()?;
        let denied = self.denied.iter().map(|(why, functions)| TraceDenied {
            why: why.clone(),
            count: functions.len() as u64,
            functions: functions.iter().take(DENIED_NAMED).cloned().collect(),
        });
        let lacks = self.instead_of.iter().filter_map(|offer| {
            Some(TraceLack {
                method: offer.method.name().to_string(),
                why: offer.lack.clone()?,
            })
        });
        Ok(report::Trace {
            method: self.method.name().to_string(),
            instead_of: lacks.collect(),
            functions_attached: self.functions_attached as u64,
            depth_max: (!is_sampled).then_some(self.options.depth),
            period_ns: is_sampled.then_some(sampled::PERIOD_NS),
            denied: denied.collect(),
            lost: TraceLost {
                depth: lost.depth,
                nodes: lost.nodes,
                threads: lost.threads,
                unreturned: lost.unreturned,
                unmatched: lost.unmatched,
                missed: self.missed,
                entries: lost.entries,
                stacks: lost.stacks,
                events: lost.events,
            },
            in_interrupts: lost.interrupts,
            tree: if is_sampled {
                self.sampled_tree()?
            } else {
                self.exact_tree()
            },
        })
    }

    fn name(&self, address: u64) -> String {
        name_of(self.kernel.as_ref(), address)
    }

    fn exact_tree(&self) -> Vec<TraceCall> {
        let nodes: HashMap<u64, types::trace_node> = entries(&self.skel.maps.trace_nodes);
        let mut tree = grow(&nodes, &|address| self.name(address));
        tree.sort_by_key(|call| std::cmp::Reverse(call.total_ns));
        tree
    }

    fn sampled_tree(&self) -> Result<Vec<TraceCall>> {
        let maps = &self.skel.maps;
        let mut stacks: HashMap<u64, Vec<String>> = HashMap::new();
        let found: HashMap<u64, types::trace_stack> = entries(&maps.trace_stacks);
        for (name, stack) in &found {
            let frames = stack.frames.iter().take_while(|frame| **frame != 0);
            stacks.insert(*name, frames.map(|frame| self.name(*frame)).collect());
        }
        let samples: Vec<(types::trace_sample_key, u64)> = entries(&maps.trace_samples);
        let passed: Vec<(types::trace_passed_key, u64)> = entries(&maps.trace_passed);
        let names = events::names();
        let mut by_call: BTreeMap<u32, TraceCall> = BTreeMap::new();
        let named = |call: u32| TraceCall {
            syscall: calls::name(call),
            samples: Some(0),
            ..TraceCall::default()
        };
        for (key, count) in samples {
            let call = by_call.entry(key.call).or_insert_with(|| named(key.call));
            call.samples = call.samples.map(|sum| sum + count);
            let frames = stacks
                .get(&key.stack)
                .map(Vec::as_slice)
                .unwrap_or_default();
            add_sample(&mut call.functions, frames, count);
        }
        for (key, count) in passed {
            let call = by_call.entry(key.call).or_insert_with(|| named(key.call));
            call.events.push(TraceEvent {
                event: names.get(key.event as usize).cloned().unwrap_or_default(),
                count,
            });
        }
        let mut tree: Vec<TraceCall> = by_call.into_values().collect();
        for call in &mut tree {
            most_first(&mut call.functions);
            call.events
                .sort_by_key(|event| std::cmp::Reverse(event.count));
        }
        tree.sort_by_key(|call| std::cmp::Reverse(call.samples));
        Ok(tree)
    }

    fn lost(&self) -> Result<types::trace_lost> {
        let map = &self.skel.maps.trace_lost_counts;
        let mut sum = types::trace_lost::default();
        for cpu in map
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)?
            .unwrap_or_default()
        {
            let Some(counts) = read_value::<types::trace_lost>(&cpu) else {
                continue;
            };
            sum.depth += counts.depth;
            sum.nodes += counts.nodes;
            sum.threads += counts.threads;
            sum.unreturned += counts.unreturned;
            sum.unmatched += counts.unmatched;
            sum.interrupts += counts.interrupts;
            sum.entries += counts.entries;
            sum.stacks += counts.stacks;
            sum.events += counts.events;
        }
        Ok(sum)
    }
}

/// A function's name without what the compiler appended, or its address.
fn name_of(kernel: Option<&KernelFunctions>, address: u64) -> String {
    match kernel.and_then(|kernel| kernel.at(address)) {
        Some(function) => function.name.clone(),
        None => format!("{address:#x}"),
    }
}

fn entries<K: Copy, V: Copy, All: FromIterator<(K, V)>>(map: &impl MapCore) -> All {
    let entry = |key: Vec<u8>| {
        let value = map.lookup(&key, MapFlags::ANY).ok()??;
        Some((read_value(&key)?, read_value(&value)?))
    };
    map.keys().filter_map(entry).collect()
}

/// Puts nodes under their parents. A node whose parent did not fit into the table is put at the
/// top.
pub(crate) fn grow(
    nodes: &HashMap<u64, types::trace_node>,
    name: &dyn Fn(u64) -> String,
) -> Vec<TraceCall> {
    let mut below: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut top: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (id, node) in nodes {
        if node.parent != 0 && nodes.contains_key(&node.parent) {
            below.entry(node.parent).or_default().push(*id);
        } else {
            top.entry(node.call).or_default().push(*id);
        }
    }
    top.into_iter()
        .map(|(call, ids)| {
            let functions = branches(nodes, &below, &ids, name);
            let totals = functions.iter().filter_map(|f| f.total_ns);
            TraceCall {
                syscall: calls::name(call),
                total_ns: Some(totals.fold(0, u64::saturating_add)),
                functions,
                ..TraceCall::default()
            }
        })
        .collect()
}

/// The depth is bounded by the probes'.
fn branches(
    nodes: &HashMap<u64, types::trace_node>,
    below: &HashMap<u64, Vec<u64>>,
    ids: &[u64],
    name: &dyn Fn(u64) -> String,
) -> Vec<TraceFunction> {
    let mut ids = ids.to_vec();
    ids.sort_by_key(|id| nodes[id].first_ns);
    ids.iter()
        .map(|id| {
            let node = &nodes[id];
            let children = below.get(id).map(Vec::as_slice).unwrap_or_default();
            TraceFunction {
                function: name(node.function),
                entered: Some(node.entered),
                returned: Some(node.returned),
                total_ns: Some(node.total_ns),
                self_ns: Some(node.total_ns.saturating_sub(node.children_ns)),
                blocked_ns: Some(node.blocked_ns),
                max_ns: Some(node.max_ns),
                samples: None,
                children: branches(nodes, below, children, name),
            }
        })
        .collect()
}

/// Adds a stack, innermost frame first, to the tree.
fn add_sample(tree: &mut Vec<TraceFunction>, frames: &[String], count: u64) {
    let mut level = tree;
    let is_outermost = |frame: &&String| OUTERMOST.contains(&frame.as_str());
    for frame in frames.iter().rev().skip_while(is_outermost) {
        let at = match level.iter().position(|found| found.function == *frame) {
            Some(at) => at,
            None => {
                level.push(TraceFunction {
                    function: frame.clone(),
                    samples: Some(0),
                    ..TraceFunction::default()
                });
                level.len() - 1
            }
        };
        level[at].samples = level[at].samples.map(|sum| sum + count);
        level = &mut level[at].children;
    }
}

fn most_first(tree: &mut [TraceFunction]) {
    tree.sort_by_key(|function| std::cmp::Reverse(function.samples));
    for function in tree {
        most_first(&mut function.children);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(
        parent: u64,
        function: u64,
        total_ns: u64,
        children_ns: u64,
        first_ns: u64,
    ) -> types::trace_node {
        types::trace_node {
            parent,
            function,
            entered: 1,
            returned: 1,
            total_ns,
            children_ns,
            first_ns,
            ..types::trace_node::default()
        }
    }

    #[test]
    fn functions_stand_under_their_callers_in_the_order_of_entry() {
        let nodes = HashMap::from([
            (1, node(0, 0xa, 100, 70, 1)),
            (2, node(1, 0xb, 30, 0, 5)),
            (3, node(1, 0xc, 40, 0, 3)),
            (4, node(99, 0xd, 7, 0, 9)),
        ]);
        let tree = grow(&nodes, &|address| format!("{address:x}"));
        assert_eq!(tree.len(), 1);
        let call = &tree[0];
        assert_eq!((call.syscall.as_str(), call.total_ns), ("read", Some(107)));
        let names: Vec<&str> = call.functions.iter().map(|f| f.function.as_str()).collect();
        assert_eq!(names, ["a", "d"], "d's caller is not known");
        assert_eq!(call.functions[0].self_ns, Some(30));
        let below: Vec<&str> = call.functions[0]
            .children
            .iter()
            .map(|f| f.function.as_str())
            .collect();
        assert_eq!(below, ["c", "b"]);
    }

    #[test]
    fn samples_add_up_from_the_outermost_function() {
        let frames = |names: &[&str]| {
            names
                .iter()
                .map(|name| name.to_string())
                .collect::<Vec<_>>()
        };
        let mut tree = Vec::new();
        add_sample(
            &mut tree,
            &frames(&[
                "leaf",
                "copy",
                "do_syscall_64",
                "entry_SYSCALL_64_after_hwframe",
            ]),
            2,
        );
        add_sample(&mut tree, &frames(&["other", "copy", "do_syscall_64"]), 3);
        most_first(&mut tree);
        assert_eq!(
            (tree.len(), tree[0].function.as_str(), tree[0].samples),
            (1, "copy", Some(5))
        );
        let below: Vec<_> = tree[0]
            .children
            .iter()
            .map(|f| (f.function.as_str(), f.samples))
            .collect();
        assert_eq!(below, [("other", Some(3)), ("leaf", Some(2))]);
    }

    #[test]
    fn events_have_names_in_the_order_of_their_numbers() {
        let names = events::names();
        assert_eq!(
            names.first().map(String::as_str),
            Some("sched_process_fork")
        );
        assert!(names.len() > 40 && names.len() <= 64, "{}", names.len());
    }
}
