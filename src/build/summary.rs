//! The layer table.

use super::Builder;
use crate::config::Span;
use crate::graph::{Role, Shape, VarKind};

/// A line of the layer table.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerRow {
    /// The layer's path.
    pub path: String,
    /// Its type.
    pub kind: String,
    /// Shape of what it puts out, as PyTorch shows it.
    pub output: Shape,
    /// Number of parameters.
    pub params: usize,
    /// Floating-point operations of its forward pass, for the whole batch.
    pub flops: u64,
    /// Where it stands in the text.
    pub span: Span,
}

impl Builder<'_> {
    /// Fills in parameters and FLOPs, once all nodes are there.
    pub(super) fn finish_rows(&mut self) {
        for row in &mut self.rows {
            let Some(origin) = self.graph.origins.iter().position(|o| *o == row.path) else { continue };
            let mut seen = Vec::new();
            for node in self.graph.nodes.iter().filter(|n| n.origin as usize == origin) {
                let infos =
                    |list: &[crate::graph::ValueId]| list.iter().map(|v| self.graph.value(*v)).collect::<Vec<_>>();
                let flops = node.op.rules().flops(&infos(&node.inputs), &infos(&node.outputs));
                row.flops = row.flops.saturating_add(flops);
                for v in &node.inputs {
                    let Role::Parameter(id) = self.graph.value(*v).role else { continue };
                    if !seen.contains(&id) && self.vars[id].kind == VarKind::Parameter {
                        seen.push(id);
                        row.params += self.vars[id].shape.len();
                    }
                }
            }
        }
    }
}
