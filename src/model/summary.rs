//! The layer table.

use super::{Builder, Tensor};
use crate::config::Span;
use crate::graph::{Node, Role, Shape, ValueId};
use std::collections::HashMap;

/// A line of the layer table.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerRow {
    /// The layer's path.
    pub path: String,
    /// Its type.
    pub kind: String,
    /// Shape of its output, as PyTorch shows it.
    pub output: Shape,
    /// Number of parameters.
    pub params: usize,
    /// Floating-point operations of its forward pass, for the whole batch.
    pub flops: u64,
    /// Where it stands in the text.
    pub span: Span,
    /// Its output, in the graph that it was listed with.
    pub value: ValueId,
    /// What it takes.
    pub from: Vec<Operand>,
}

/// Something that a layer takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    /// What another layer puts out: its place in the list.
    Layer(usize),
    /// What the model is given under this name.
    Input(String),
}

impl Builder<'_> {
    /// What `t` is to a layer that takes it.
    pub(super) fn operand(&self, t: Tensor) -> Operand {
        match t.made_by {
            Some(row) => Operand::Layer(row),
            None => {
                let same = self.prepared.iter().find(|(_, x)| x.value == t.value);
                Operand::Input(same.or(self.prepared.first()).map_or(String::new(), |(name, _)| name.clone()))
            }
        }
    }

    /// Fills in parameters and FLOPs, once all nodes are there.
    pub(super) fn finish_rows(&mut self) {
        let mut of_layer: HashMap<&str, Vec<&Node>> = HashMap::new();
        for node in &self.graph.nodes {
            of_layer.entry(self.graph.origin(node)).or_default().push(node);
        }
        for row in &mut self.rows {
            let mut seen = Vec::new();
            for node in of_layer.get(row.path.as_str()).into_iter().flatten() {
                let infos = |list: &[ValueId]| list.iter().map(|v| self.graph.value(*v)).collect::<Vec<_>>();
                let flops = node.op.rules().flops(&infos(&node.inputs), &infos(&node.outputs));
                row.flops = row.flops.saturating_add(flops);
                for v in &node.inputs {
                    let Role::Parameter(id) = self.graph.value(*v).role else { continue };
                    if !seen.contains(&id) {
                        seen.push(id);
                        row.params += self.vars[id].shape.len();
                    }
                }
            }
        }
    }
}
