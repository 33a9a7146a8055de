//! Layers made of layers: residual sums, gates, branches, and what combines several inputs.

use super::order::Order;
use super::{Builder, Tensor};
use crate::config::experiment::Combine;
use crate::config::{LayerKind, LayerNode};
use crate::graph::op::{Binary, BinaryKind, Concat};
use crate::graph::{Shape, ValueId};

impl Builder<'_> {
    pub(super) fn container(&mut self, node: &LayerNode, x: Tensor) -> Tensor {
        let x = self.operands(node, x).first().copied().unwrap_or(x);
        match &node.kind {
            LayerKind::Residual { body, projection, if_same_shape } => {
                self.residual(node, x, body, projection.as_deref(), *if_same_shape)
            }
            LayerKind::Gate(body) => self.gate(node, x, body),
            LayerKind::Branches { branches, combine } => {
                let ends: Vec<Tensor> = branches.iter().map(|b| self.node(b, x)).collect();
                self.graph.set_origin(&node.path);
                let made = match combine {
                    Combine::Add => self.combine(node, BinaryKind::Add, &ends),
                    Combine::Multiply => self.combine(node, BinaryKind::Mul, &ends),
                    Combine::Concat => self.concat(node, 1, &ends),
                };
                self.made(node, "branches", &ends, made)
            }
            LayerKind::Layer(_) | LayerKind::Group(_) => unreachable!("only containers come here"),
        }
    }

    fn gate(&mut self, node: &LayerNode, x: Tensor, body: &[LayerNode]) -> Tensor {
        let x = self.in_pytorch_order(x);
        let g = self.sequence(body, x);
        let g = self.in_pytorch_order(g);
        self.graph.set_origin(&node.path);
        let (input, gate) = (self.shape(x).clone(), self.shape(g).clone());
        let fits = gate.rank() == input.rank() && gate.dims().iter().zip(input.dims()).all(|(g, x)| g == x || *g == 1);
        if !fits {
            let message = format!(
                "the gate's output {} cannot be stretched to its input {}",
                gate.to_pytorch(),
                input.to_pytorch()
            );
            let help = "make the layers of the gate put out the shape of its input, or 1 where it is to be stretched";
            self.refuse(node, &message, "multiplies its input by what its layers put out", &[x, g], help);
            return x;
        }
        let y = self.plain(Binary { kind: BinaryKind::Mul }, &[x.value, g.value]);
        self.made(node, "gate", &[x, g], (y, Order::Usual))
    }

    fn residual(
        &mut self,
        node: &LayerNode,
        x: Tensor,
        body: &[LayerNode],
        projection: Option<&LayerNode>,
        if_same_shape: bool,
    ) -> Tensor {
        let x = self.whole(x);
        let y = self.sequence(body, x);
        let y = self.whole(y);
        let shortcut = match projection {
            // As in torchvision's ResNet, a projection stands in only where shapes differ.
            Some(group) if self.dims(x) != self.dims(y) => {
                let s = self.node(group, x);
                self.whole(s)
            }
            _ => x,
        };
        let (shortcut, y) = match self.aligned(&[shortcut, y])[..] {
            [shortcut, y] => (shortcut, y),
            _ => (shortcut, y),
        };
        if self.shape(shortcut) != self.shape(y) {
            if !if_same_shape {
                let (a, b) = (self.dims(shortcut), self.dims(y));
                let (what, help) = match projection {
                    Some(_) => ("projection", "make the projection put out the shape of the body"),
                    None => (
                        "input",
                        "add a `projection`, or `shortcut = \"if_same_shape\"` to leave the sum out where shapes differ",
                    ),
                };
                // Of a layer of a transformer, which is written out as residuals.
                if let Some(&place) = node.fields.get("d_model") {
                    let message = format!("`d_model` is not the size of the last dimension of {a}");
                    let label = format!("must be {}", self.shape(shortcut).last());
                    self.refuse_at(node, place, &message, &label, &[shortcut], "");
                    return x;
                }
                let message = format!("the residual cannot add its {what} {a} and its body's output {b}");
                self.refuse(node, &message, "adds both", &[shortcut, y], help);
            }
            return y;
        }
        self.graph.set_origin(&node.path);
        // The body comes first: its memory can take the sum.
        let sum = self.plain(Binary { kind: BinaryKind::Add }, &[y.value, shortcut.value]);
        self.made(node, "residual", &[y, shortcut], (sum, y.order))
    }

    /// The operands added or multiplied one after the other, with broadcast.
    pub(super) fn combine(&mut self, node: &LayerNode, kind: BinaryKind, operands: &[Tensor]) -> (ValueId, Order) {
        let operands = self.aligned(operands);
        let order = operands[0].order;
        let mut y = operands[0].value;
        for t in &operands[1..] {
            let meant = self.graph.shape(y).clone();
            let op = Binary { kind };
            y = self.apply(
                node,
                op,
                &[y, t.value],
                &operands,
                meant,
                "their shapes must be equal, or 1 where they differ",
            );
        }
        (y, order)
    }

    /// The operands joined along PyTorch's dimension `dim`.
    pub(super) fn concat(&mut self, node: &LayerNode, dim: i64, operands: &[Tensor]) -> (ValueId, Order) {
        let operands = self.aligned(operands);
        let order = operands[0].order;
        let shape = self.shape(operands[0]).clone();
        let rank = shape.rank() as i64;
        let at = if dim < 0 { dim + rank } else { dim };
        if at < 1 || at >= rank {
            let span = node.fields.get("dim").copied().unwrap_or(node.span);
            let message = format!("`concat` cannot join {} along dimension {dim}", self.dims(operands[0]));
            let help = "dimension 0 is the batch, 1 the channels; -1 is the last";
            self.refuse_at(node, span, &message, "no such dimension of a sample", &operands[..1], help);
            return (self.guess(shape), order);
        }
        let axis = self.axis(operands[0], at as usize);
        let values: Vec<ValueId> = operands.iter().map(|t| t.value).collect();
        let mut meant = shape.dims().to_vec();
        meant[axis] = operands.iter().filter_map(|t| self.shape(*t).dims().get(axis)).sum();
        let help = "their shapes must be equal in all dimensions but that one";
        (self.apply(node, Concat { axis }, &values, &operands, Shape(meant), help), order)
    }
}
