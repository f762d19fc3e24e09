// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of the kernel that an operation's calls enter, with their own times.

use std::collections::BTreeSet;

use debox_model::report::{Report, Trace, TraceFunction};
use serde::{Deserialize, Serialize};

/// Functions with less than this part of their call's time are left out with all that they call.
const SMALL: f64 = 0.01;
const DEPTH_MAX: usize = 24;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// As `debox run --trace` names it; `sampled` if functions cannot be probed: times are then counts of samples.
    pub method: String,
    /// By the program's clock while functions were traced.
    pub traced_ns: f64,
    pub calls: Vec<TreeNode>,
    pub tlb_flushes: Option<f64>,
}

/// Times are of one operation, and do not include sleep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TreeNode {
    pub function: String,
    /// Null for samples.
    pub entered: Option<f64>,
    pub ns: f64,
    pub self_ns: f64,
    pub children: Vec<TreeNode>,
}

/// `calls`: those that belong to the operation. `None`: the report has no trace.
pub fn tree(
    report: &Report,
    operations: u64,
    traced_ns: f64,
    calls: &BTreeSet<&str>,
) -> Option<Tree> {
    let trace = report.trace.as_ref()?;
    let by = operations.max(1) as f64;
    let of_operation = trace
        .tree
        .iter()
        .filter(|call| calls.contains(&*call.syscall));
    let mut rows: Vec<TreeNode> = of_operation
        .clone()
        .map(|call| {
            let children = nodes(&call.functions, trace, by, 1);
            let below: f64 = children.iter().map(|node| node.ns).sum();
            let ns = match (call.samples, call.total_ns) {
                (Some(samples), _) => samples as f64 * period(trace) / by,
                (None, Some(_)) | (None, None) => below,
            };
            let mut row = TreeNode {
                function: call.syscall.clone(),
                entered: None,
                ns,
                self_ns: (ns - below).max(0.0),
                children,
            };
            prune(&mut row, ns);
            row
        })
        .filter(|row| row.ns > 0.0)
        .collect();
    rows.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    let events = of_operation.flat_map(|call| &call.events);
    let flushes = events.filter(|event| event.event == "tlb_flush");
    let flushes: u64 = flushes.map(|event| event.count).sum();
    Some(Tree {
        method: trace.method.clone(),
        traced_ns,
        calls: rows,
        tlb_flushes: trace.period_ns.is_some().then_some(flushes as f64 / by),
    })
}

fn period(trace: &Trace) -> f64 {
    trace.period_ns.unwrap_or(0) as f64
}

fn nodes(functions: &[TraceFunction], trace: &Trace, by: f64, depth: usize) -> Vec<TreeNode> {
    if depth > DEPTH_MAX {
        return Vec::new();
    }
    let node = |one: &TraceFunction| {
        let mut children = nodes(&one.children, trace, by, depth + 1);
        children.sort_by(|a, b| b.ns.total_cmp(&a.ns));
        let below: f64 = children.iter().map(|node| node.ns).sum();
        let ns = match one.samples {
            Some(samples) => samples as f64 * period(trace) / by,
            None => {
                let slept = one.blocked_ns.unwrap_or(0);
                one.total_ns.unwrap_or(0).saturating_sub(slept) as f64 / by
            }
        };
        TreeNode {
            function: one.function.clone(),
            entered: one.entered.map(|entered| entered as f64 / by),
            ns,
            self_ns: (ns - below).max(0.0),
            children,
        }
    };
    functions.iter().map(node).collect()
}

fn prune(node: &mut TreeNode, whole_ns: f64) {
    node.children.retain(|child| child.ns >= SMALL * whole_ns);
    for child in &mut node.children {
        prune(child, whole_ns);
    }
}

#[cfg(test)]
mod tests {
    use debox_model::report::{TraceCall, TraceEvent};

    use super::*;

    fn function(name: &str, samples: u64, children: Vec<TraceFunction>) -> TraceFunction {
        TraceFunction {
            function: name.to_string(),
            samples: Some(samples),
            children,
            ..TraceFunction::default()
        }
    }

    #[test]
    fn samples_become_times_of_an_operation() {
        let inner = function("copy_page_range", 60, Vec::new());
        let rare = function("seldom", 0, Vec::new());
        let call = |syscall: &str, functions| TraceCall {
            syscall: syscall.to_string(),
            samples: Some(100),
            functions,
            events: vec![TraceEvent {
                event: "tlb_flush".to_string(),
                count: 30,
            }],
            ..TraceCall::default()
        };
        let report = Report {
            trace: Some(Trace {
                method: "sampled".to_string(),
                period_ns: Some(100_000),
                tree: vec![
                    call("openat", Vec::new()),
                    call(
                        "clone",
                        vec![function("copy_process", 90, vec![inner, rare])],
                    ),
                ],
                ..Trace::default()
            }),
            ..Report::default()
        };
        let found = tree(&report, 10, 5.0, &BTreeSet::from(["clone"])).expect("a trace");
        assert_eq!(found.calls.len(), 1);
        let clone = &found.calls[0];
        assert_eq!((clone.ns, clone.self_ns), (1_000_000.0, 100_000.0));
        let process = &clone.children[0];
        assert_eq!((process.ns, process.self_ns), (900_000.0, 300_000.0));
        assert_eq!(process.children.len(), 1, "what has no sample is left out");
        assert_eq!(found.tlb_flushes, Some(3.0));
    }
}
