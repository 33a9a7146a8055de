//! Layers made of layers: residual sums, gates, branches, and what combines several inputs.

use super::{Builder, Tensor};
use crate::config::experiment::Combine;
use crate::config::{Diagnostic, LayerKind, LayerNode};
use crate::graph::op::{Binary, BinaryKind, Concat};
use crate::graph::{Shape, ValueId};

impl Builder<'_> {
    pub(super) fn container(&mut self, node: &LayerNode, x: Tensor) -> Tensor {
        let x = self.operands(node, x).first().copied().unwrap_or(x);
        match &node.kind {
            LayerKind::Residual { body, projection, if_same_shape } => {
                self.residual(node, x, body, projection.as_deref(), *if_same_shape)
            }
            LayerKind::Gate(body) => {
                let x = self.in_pytorch_order(x);
                let g = self.sequence(body, x);
                let g = self.in_pytorch_order(g);
                self.graph.set_origin(&node.path);
                let y = self.combine(node, BinaryKind::Mul, &[x, g]);
                if self.graph.shape(y) != self.shape(x) {
                    let (gate, input) = (self.shape(g).to_pytorch(), self.shape(x).to_pytorch());
                    let message = format!("the gate's output {gate} is larger than its input {input}");
                    self.mismatch(node, message, "multiplies its input by what its layers put out", Some(g), None);
                    return x;
                }
                self.made(node, "gate", y, None)
            }
            LayerKind::Branches { branches, combine } => {
                let x = self.in_pytorch_order(x);
                let ends: Vec<Tensor> = branches
                    .iter()
                    .map(|b| {
                        let y = self.node(b, x);
                        self.in_pytorch_order(y)
                    })
                    .collect();
                self.graph.set_origin(&node.path);
                let y = match combine {
                    Combine::Add => self.combine(node, BinaryKind::Add, &ends),
                    Combine::Multiply => self.combine(node, BinaryKind::Mul, &ends),
                    Combine::Concat => self.concat(node, 1, &ends),
                };
                self.made(node, "branches", y, None)
            }
            LayerKind::Layer(_) | LayerKind::Group(_) => unreachable!("only containers come here"),
        }
    }

    fn residual(
        &mut self,
        node: &LayerNode,
        x: Tensor,
        body: &[LayerNode],
        projection: Option<&LayerNode>,
        if_same_shape: bool,
    ) -> Tensor {
        let x = self.in_pytorch_order(x);
        let y = self.sequence(body, x);
        let y = self.in_pytorch_order(y);
        let same = self.shape(x) == self.shape(y);
        let shortcut = match projection {
            // As in torchvision's ResNet, a projection stands in only where shapes differ.
            Some(group) if !same => {
                let s = self.node(group, x);
                self.in_pytorch_order(s)
            }
            _ => x,
        };
        if self.shape(shortcut) != self.shape(y) {
            if !if_same_shape {
                let (a, b) = (self.shape(shortcut).to_pytorch(), self.shape(y).to_pytorch());
                let mut error = Diagnostic::error(format!("the residual sum cannot add {a} and {b}"));
                error = error.at(node.span, "adds its input to its body's output");
                for (t, what) in [(shortcut, "the shortcut"), (y, "the body")] {
                    if let Some(row) = t.made_by {
                        let shape = self.shape(t).to_pytorch();
                        error = error.context(self.rows[row].span, format!("{what} ends here with {shape}"));
                    }
                }
                error = error.help(if projection.is_some() {
                    "make the projection put out the shape of the body"
                } else {
                    "add a `projection`, or `shortcut = \"if_same_shape\"` to leave the sum out"
                });
                if !self.errors.contains(&error) {
                    self.errors.push(error);
                }
            }
            return y;
        }
        self.graph.set_origin(&node.path);
        // The body comes first: its memory can take the sum.
        let sum = self.plain(Binary { kind: BinaryKind::Add, act: None }, &[y.value, shortcut.value]);
        self.made(node, "residual", sum, None)
    }

    /// The operands added or multiplied one after the other, with broadcast.
    pub(super) fn combine(&mut self, node: &LayerNode, kind: BinaryKind, operands: &[Tensor]) -> ValueId {
        let mut y = operands[0].value;
        for t in &operands[1..] {
            let meant = self.graph.shape(y).clone();
            y = self.apply(node, Binary { kind, act: None }, &[y, t.value], &[operands[0], *t], meant);
        }
        y
    }

    /// The operands joined along PyTorch's dimension `dim`.
    pub(super) fn concat(&mut self, node: &LayerNode, dim: i64, operands: &[Tensor]) -> ValueId {
        let shape = self.shape(operands[0]).clone();
        let rank = shape.rank() as i64;
        let at = if dim < 0 { dim + rank } else { dim };
        if at < 1 || at >= rank {
            let message = format!("`concat` along dimension {dim} of the shape {}", shape.to_pytorch());
            self.mismatch(node, message, "dimension 1 is an image's channels", Some(operands[0]), None);
            return operands[0].value;
        }
        // [N, C, H, W] outside is [N, H, W, C] inside.
        let axis = if rank == 4 { [0, 3, 1, 2][at as usize] } else { at as usize };
        let values: Vec<ValueId> = operands.iter().map(|t| t.value).collect();
        let mut meant = shape.dims().to_vec();
        meant[axis] = operands.iter().filter_map(|t| self.shape(*t).dims().get(axis)).sum();
        self.apply(node, Concat { axis }, &values, operands, Shape(meant))
    }
}
