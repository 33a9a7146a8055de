//! Where the time of a step goes, operation by operation.

use super::Times;
use super::table::{self, Line};
use crate::backend::{Span, Work};
use crate::graph::{Graph, Node, NodeId, Op, Rounds, ValueId};
use crate::plan::Plan;
use serde_json::{Value, json};
use std::collections::HashMap;

/// What a node is and has to do, whatever time it takes.
#[derive(Clone)]
pub struct Load {
    /// The layer that it belongs to; empty for the update.
    pub layer: String,
    /// The operation, of a group all of them.
    pub op: String,
    /// It belongs to the backward pass.
    pub backward: bool,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes of what it reads and writes, each operand once; one that is updated, twice. What caches save and kernels
    /// read again is not known.
    pub bytes: u64,
}

impl Load {
    /// Of `node` of `graph`, in one round.
    pub fn of(graph: &Graph, node: &Node) -> Load {
        let rules = node.op.rules();
        let values = |list: &[ValueId]| list.iter().map(|v| graph.value(*v)).collect::<Vec<_>>();
        let (inputs, outputs) = (values(&node.inputs), values(&node.outputs));
        let updated = rules.mutates(inputs.len()).into_iter().map(|m| inputs[m]);
        let bytes = inputs.iter().chain(&outputs).copied().chain(updated).map(|v| v.bytes() as u64).sum();
        Load {
            layer: graph.origin(node).to_string(),
            op: node.op.label(),
            backward: node.backward,
            flops: rules.flops(&inputs, &outputs),
            bytes: if rules.is_alias() { 0 } else { bytes },
        }
    }

    /// In so many rounds.
    fn times(self, rounds: usize) -> Load {
        let rounds = rounds as u64;
        Load { flops: self.flops.saturating_mul(rounds), bytes: self.bytes.saturating_mul(rounds), ..self }
    }
}

/// How often each node of `graph` runs in a step; what only gives memory another shape counts once.
fn rounds(graph: &Graph) -> Vec<usize> {
    let of_node = |node: &Node, parts| if node.op.rules().is_alias() { 1 } else { parts };
    let rounds = graph.rounds().into_iter();
    rounds.flat_map(|Rounds { nodes, parts }| nodes.map(move |at| of_node(&graph.nodes[at], parts))).collect()
}

/// The time of one operation of the step.
struct Row {
    load: Load,
    ms: f64,
    /// For how many parts of the batch it runs, one after the other.
    parts: usize,
}

/// The operations of a step with their times, the slowest first.
pub struct Profile {
    rows: Vec<Row>,
    /// The fastest product of matrices: GFLOP/s, and the number of rows.
    peak: (f64, usize),
}

impl Profile {
    /// The median time of every node in `spans`, of all rounds of a step, beside what a product of matrices reaches.
    pub fn new(plan: &Plan, spans: &[Span], peak: (f64, usize)) -> Profile {
        let mut times: HashMap<_, Vec<f64>> = HashMap::new();
        for span in spans {
            if let Work::Node(node) = span.work {
                times.entry((span.program, node)).or_default().push(span.seconds() * 1e3);
            }
        }
        let rounds: Vec<Vec<usize>> = plan.programs.iter().map(|program| rounds(&program.graph)).collect();
        let of = |(program, node): (usize, NodeId)| rounds[program][node.index()];
        let mut times: Vec<_> =
            times.into_iter().map(|(key, list)| (key, Times::of(list).median * of(key) as f64)).collect();
        // Ties in the order of the program: the list is the same however the table above was laid out.
        times.sort_by(|(ka, a), (kb, b)| b.total_cmp(a).then(ka.cmp(kb)));
        let rows = times.into_iter().filter_map(|((program, node), ms)| {
            let graph = &plan.programs[program].graph;
            let (node, parts) = (&graph.nodes[node.index()], rounds[program][node.index()]);
            // They say where parts begin and end, and do nothing.
            let is_mark = matches!(node.op, Op::BatchPart(_) | Op::BatchJoin(_));
            (!is_mark).then(|| Row { load: Load::of(graph, node).times(parts), ms, parts })
        });
        Profile { rows: rows.collect(), peak }
    }

    /// Adds `nodes` and the peak to `out`.
    pub fn add_json(&self, out: &mut Value) {
        out["matmul_gflops"] = self.peak.0.into();
        out["nodes"] = self.rows.iter().map(|r| r.json(self.peak.0)).collect();
    }

    /// As a table: for a terminal of so many columns, or with every row as long as it is.
    pub fn text(&self, columns: Option<usize>, all: bool) -> String {
        let (peak, n) = self.peak;
        let sum: f64 = self.rows.iter().map(|r| r.ms).sum();
        let head =
            format!("operations apart: {sum:.3} ms; peak: {peak:.0} GFLOP/s (a product of {n} × {n} matrices)\n");
        let one_by_one = |row: &Row| Line { cells: row.cells(peak), ms: row.ms };
        let Some(columns) = columns else {
            return head + &table::wide(self.rows.iter().map(one_by_one));
        };
        let lines = match all {
            true => self.rows.iter().map(one_by_one).collect(),
            false => table::folded(self.groups().iter().map(|(n, row)| (*n, one_by_one(row))).collect(), sum),
        };
        head + &table::narrow(&lines, columns)
    }

    /// Operations that differ in their layers alone are one row, with their number; the slowest first.
    fn groups(&self) -> Vec<(usize, Row)> {
        let mut places = HashMap::new();
        let mut groups: Vec<(usize, Row)> = Vec::new();
        for row in &self.rows {
            let Load { op, backward, flops, bytes, layer } = &row.load;
            let at = *places.entry((op, backward, flops, bytes, row.parts)).or_insert(groups.len());
            match groups.get_mut(at) {
                Some((many, group)) => {
                    *many += 1;
                    group.ms += row.ms;
                    group.load.layer = table::common(&group.load.layer, layer);
                }
                None => groups.push((1, Row { load: row.load.clone(), ..*row })),
            }
        }
        for (many, row) in &mut groups {
            row.load.flops = row.load.flops.saturating_mul(*many as u64);
            row.load.bytes = row.load.bytes.saturating_mul(*many as u64);
        }
        groups.sort_by(|(_, a), (_, b)| b.ms.total_cmp(&a.ms));
        groups
    }
}

impl Row {
    /// GFLOP/s, for what computes.
    fn gflops(&self) -> Option<f64> {
        (self.load.flops > 0 && self.ms > 0.0).then(|| self.load.flops as f64 / self.ms / 1e6)
    }

    /// The operation, and in how many parts it is done, if in several.
    fn op(&self) -> String {
        match self.parts {
            1 => self.load.op.clone(),
            parts => format!("{}, in {parts} parts", self.load.op),
        }
    }

    /// GB/s, for what moves anything.
    fn gbytes_per_s(&self) -> Option<f64> {
        (self.load.bytes > 0 && self.ms > 0.0).then(|| self.load.bytes as f64 / self.ms / 1e6)
    }

    fn json(&self, peak: f64) -> Value {
        json!({
            "layer": self.load.layer,
            "op": self.load.op,
            "parts": self.parts,
            "backward": self.load.backward,
            "ms": self.ms,
            "flops": self.load.flops,
            "gflops": self.gflops().unwrap_or(0.0),
            "peak_share": self.gflops().map(|g| g / peak),
            "bytes": self.load.bytes,
            "gbytes_per_s": self.gbytes_per_s(),
        })
    }

    fn cells(&self, peak: f64) -> [String; 8] {
        let cell = |value: Option<f64>, unit: &str| value.map_or(String::new(), |v| format!("{v:.0}{unit}"));
        [
            format!("{:.3}", self.ms),
            self.op(),
            if self.load.backward { "backward" } else { "" }.to_string(),
            self.load.layer.clone(),
            cell(self.gflops(), ""),
            cell(self.gflops().map(|g| 100.0 * g / peak), " %"),
            if self.load.bytes > 0 { format!("{:.2}", self.load.bytes as f64 / 1e6) } else { String::new() },
            cell(self.gbytes_per_s(), ""),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{Activation, Fused, Linear};
    use crate::graph::{DType, Input, Shape};

    #[test]
    fn operands_are_counted_once() {
        let mut graph = Graph::new();
        let x = graph.input(Input::Field(0), DType::F32, Shape::from([5, 3]));
        let w = graph.input(Input::Field(1), DType::F32, Shape::from([7, 3]));
        graph.add1(Fused::activated(Linear { bias: false }, 2, Some(Activation::Relu)), &[x, w]).unwrap();
        let load = Load::of(&graph, &graph.nodes[0]);
        assert_eq!(
            (load.op.as_str(), load.flops, load.bytes),
            ("linear + relu", 2 * 5 * 3 * 7, 4 * (5 * 3 + 7 * 3 + 5 * 7))
        );
    }
}
