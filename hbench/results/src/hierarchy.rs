// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicts benchmarks from others, by the declared hierarchy (`hierarchy.toml`).

use std::collections::BTreeMap;

use kit_stats::{middle, CONFIDENCE};
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

/// One benchmark, predicted and measured; times are of one operation. Intervals are of 95 %, and null if the benchmark or a
/// part has one sample.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explained {
    pub benchmark: String,
    pub measured_ns: f64,
    pub measured_interval_ns: Option<(f64, f64)>,
    pub predicted_ns: f64,
    pub predicted_interval_ns: Option<(f64, f64)>,
    /// What was measured and not predicted.
    pub residual_ns: f64,
    pub residual_interval_ns: Option<(f64, f64)>,
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
    // In each draw of the bootstrap. All benchmarks draw the same rounds, so what disturbed a round moves both sides.
    let mut predicted_draws = vec![0.0; measured.draws.len()];
    for part in &node.parts {
        let figure = figures.get(part.benchmark.as_str())?;
        let of_bytes = |bytes: u64| Some(bytes as f64 / figure.bytes? as f64);
        let (operations, what) = match part.per {
            Per::Byte => {
                let bytes = measured.bytes?;
                (of_bytes(bytes)?, kit_units::bytes(bytes))
            }
            Per::Page => (of_bytes(page_bytes)?, "a page".to_string()),
            Per::Operation => (1.0, figure.operation.clone()),
        };
        let operations = operations * part.times;
        // Without draws of a part there are none of the sum.
        predicted_draws.truncate(figure.draws.len());
        for (sum, draw) in predicted_draws.iter_mut().zip(&figure.draws) {
            *sum += operations * draw;
        }
        let how = match part.times {
            1.0 => what,
            times => format!("{times} x {what}"),
        };
        parts.push(ExplainedPart {
            benchmark: part.benchmark.clone(),
            ns: figure.operation_ns * operations,
            how: kit_console::printable(&how).into_owned(),
        });
    }
    let predicted_ns = parts.iter().map(|part| part.ns).sum::<f64>();
    let interval = |draws: &[f64]| (!draws.is_empty()).then(|| middle(draws, CONFIDENCE));
    let both = measured.draws.iter().zip(&predicted_draws);
    let residual_draws: Vec<f64> = both
        .map(|(measured, predicted)| measured - predicted)
        .collect();
    Some(Explained {
        benchmark: node.benchmark.clone(),
        measured_ns: measured.operation_ns,
        measured_interval_ns: measured.interval_ns,
        predicted_ns,
        predicted_interval_ns: interval(&predicted_draws),
        residual_ns: measured.operation_ns - predicted_ns,
        residual_interval_ns: interval(&residual_draws),
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

    /// The interval of a sum of independent parts, by what the bootstrap has to agree with: the root of the sum of squares.
    #[test]
    fn intervals_are_those_of_the_sum() {
        // Not in step with each other: one repeats after 3 rounds, the other after 5.
        let values = |middle: f64, amplitude: f64, period: usize| -> Vec<f64> {
            let phase = |round: usize| (round % period) as f64 / (period - 1) as f64 - 0.5;
            (0..60)
                .map(|round| middle + amplitude * phase(round))
                .collect()
        };
        let (read, write) = (values(40.0, 8.0, 3), values(60.0, 6.0, 5));
        let steady = [90.0; 60];
        let result = recorded(&[
            ("memory.copy/16K", &steady),
            ("memory.read/16K", &read),
            ("memory.write/16K", &write),
        ]);
        let figures = figures(&result);
        let half = |interval: Option<(f64, f64)>| {
            let (low, high) = interval.expect("several samples");
            (high - low) / 2.0
        };
        let node = explain(&figures, 4096).nodes.remove(0);
        let own = |at: usize| half(figures[at].interval_ns);
        let wanted = own(1).hypot(own(2));
        for found in [node.predicted_interval_ns, node.residual_interval_ns] {
            let found = half(found);
            assert!((found / wanted - 1.0).abs() < 0.15, "{found}, {wanted}");
        }
        assert_eq!(half(node.measured_interval_ns), 0.0);
        let (low, high) = node.residual_interval_ns.expect("several samples");
        assert!(low < node.residual_ns && node.residual_ns < high);
    }

    /// What slows a whole round slows both sides: the residual is more certain than the measured time.
    #[test]
    fn what_disturbs_a_round_does_not_widen_the_residual() {
        let slowed: Vec<f64> = (0..12).map(|round| 100.0 + f64::from(round % 4)).collect();
        let call: Vec<f64> = slowed.iter().map(|ns| ns / 2.0).collect();
        let result = recorded(&[("map.anonymous/4K", &slowed), ("call.null", &call)]);
        let node = explain(&figures(&result), 4096).nodes.remove(0);
        let (low, high) = node.residual_interval_ns.expect("several samples");
        assert!(low.abs() < 1e-9 && high.abs() < 1e-9, "{node:?}");
        let (low, high) = node.measured_interval_ns.expect("several samples");
        assert!(high - low > 1.0, "{node:?}");
    }

    #[test]
    fn a_part_with_one_sample_leaves_the_residual_without_an_interval() {
        let result = recorded(&[("file.fstat", &[9.0, 8.0, 9.0]), ("call.null", &[4.0])]);
        let node = explain(&figures(&result), 4096).nodes.remove(0);
        assert!(node.measured_interval_ns.is_some());
        assert_eq!(
            (node.predicted_interval_ns, node.residual_interval_ns),
            (None, None)
        );
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
