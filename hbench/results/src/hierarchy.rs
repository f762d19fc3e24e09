// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicts benchmarks from others, by the declared hierarchy (`hierarchy.toml`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::figures::Figure;

const DECLARED: &str = include_str!("../hierarchy.toml");

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// The part's time per byte, for each byte of the node.
    Byte,
    /// The part's time per byte, for each byte of a page.
    Page,
    Operation,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    pub benchmark: String,
    pub per: Per,
    #[serde(default = "once")]
    pub times: f64,
}

fn once() -> f64 {
    1.0
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub benchmark: String,
    pub parts: Vec<Part>,
    pub residual: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    node: Vec<Node>,
}

/// The hierarchy, as it is compiled in.
///
/// # Panics
///
/// Its file is wrong, which a test finds.
pub fn nodes() -> Vec<Node> {
    let declared: Declared = toml::from_str(DECLARED).expect("a test reads it");
    declared.node
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainedPart {
    pub benchmark: String,
    pub ns: f64,
    pub how: String,
}

/// One benchmark, predicted and measured; times are of one operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explained {
    pub benchmark: String,
    pub measured_ns: f64,
    pub predicted_ns: f64,
    /// What was measured and not predicted.
    pub residual_ns: f64,
    /// What the parts leave out.
    pub residual: String,
    pub parts: Vec<ExplainedPart>,
}

/// `hbench.explanation/1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    pub schema: &'static str,
    pub nodes: Vec<Explained>,
}

/// Each node that was measured with all of its parts.
pub fn explain(figures: &[Figure], page_bytes: u64) -> Explanation {
    let by_name: BTreeMap<&str, &Figure> = figures
        .iter()
        .map(|figure| (figure.benchmark.as_str(), figure))
        .collect();
    let nodes = nodes();
    let explained = nodes
        .iter()
        .filter_map(|node| explain_node(node, &by_name, page_bytes));
    Explanation {
        schema: "hbench.explanation/1",
        nodes: explained.collect(),
    }
}

fn explain_node(
    node: &Node,
    figures: &BTreeMap<&str, &Figure>,
    page_bytes: u64,
) -> Option<Explained> {
    let measured = figures.get(node.benchmark.as_str())?;
    let mut parts = Vec::new();
    for part in &node.parts {
        let figure = figures.get(part.benchmark.as_str())?;
        let per_byte = || Some(figure.operation_ns / figure.bytes? as f64);
        let (unit, what) = match part.per {
            Per::Byte => {
                let bytes = measured.bytes?;
                (per_byte()? * bytes as f64, kit_units::bytes(bytes))
            }
            Per::Page => (per_byte()? * page_bytes as f64, "a page".to_string()),
            Per::Operation => (figure.operation_ns, figure.operation.clone()),
        };
        let how = match part.times {
            1.0 => what,
            times => format!("{times} x {what}"),
        };
        parts.push(ExplainedPart {
            benchmark: part.benchmark.clone(),
            ns: unit * part.times,
            how: kit_console::printable(&how).into_owned(),
        });
    }
    let predicted_ns = parts.iter().map(|part| part.ns).sum::<f64>();
    Some(Explained {
        benchmark: node.benchmark.clone(),
        measured_ns: measured.operation_ns,
        predicted_ns,
        residual_ns: measured.operation_ns - predicted_ns,
        residual: node.residual.clone(),
        parts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::figures;
    use crate::file::tests::recorded;

    #[test]
    fn parts_and_residual_add_up() {
        let result = recorded(&[
            ("memory.copy/16K", &[90.0, 90.0]),
            ("memory.read/16K", &[40.0, 40.0]),
            ("memory.write/16K", &[60.0, 60.0]),
            ("process.shell/static", &[1000.0]),
            ("process.exec/static", &[300.0]),
            ("process.exec/dynamic", &[500.0]),
            ("process.fork/small", &[100.0]),
            // Without its parts.
            ("file.reread/64K", &[1.0]),
        ]);
        let found = explain(&figures(&result), 4096);
        let of = |name: &str| found.nodes.iter().find(|node| node.benchmark == name);
        let copy = of("memory.copy/16K").expect("it has its parts");
        assert_eq!((copy.predicted_ns, copy.residual_ns), (100.0, -10.0));
        let shell = of("process.shell/static").expect("it has its parts");
        assert_eq!((shell.predicted_ns, shell.residual_ns), (700.0, 300.0));
        assert!(of("file.reread/64K").is_none());
        for node in &found.nodes {
            let parts: f64 = node.parts.iter().map(|part| part.ns).sum();
            assert!((parts + node.residual_ns - node.measured_ns).abs() < 1e-9);
        }
    }

    #[test]
    fn every_node_says_what_it_leaves_out() {
        for node in nodes() {
            assert!(
                !node.residual.is_empty() && !node.parts.is_empty(),
                "{node:?}"
            );
        }
    }
}
