//! The layers in the order in which the model's own graph is built, and what holds layers.

use super::graph::int;
use super::{Translator, Value, internal};
use crate::config::experiment::Combine;
use crate::config::{Diagnostic, LayerKind, LayerNode};

impl Translator<'_> {
    pub(super) fn sequence(&mut self, layers: &[LayerNode], mut x: Value) -> Result<Value, Diagnostic> {
        for node in layers {
            x = self.node(node, x)?;
        }
        Ok(x)
    }

    /// One layer or container.
    fn node(&mut self, node: &LayerNode, x: Value) -> Result<Value, Diagnostic> {
        let operands = self.operands(node, x)?;
        let first = |operands: Vec<Value>| {
            operands.into_iter().next().ok_or_else(|| internal(format!("`{}` has no input", node.path)))
        };
        let y = match &node.kind {
            LayerKind::Layer(layer) => {
                let shape = self.row(node)?;
                self.graph.scope.clone_from(&node.path);
                let name = self.layer(node, layer, &operands, &shape)?;
                self.made(Value { name, shape })
            }
            LayerKind::Group(list) => {
                let x = first(operands)?;
                self.sequence(list, x)?
            }
            LayerKind::Residual { body, projection, if_same_shape } => {
                let x = first(operands)?;
                self.residual(node, x, body, projection.as_deref(), *if_same_shape)?
            }
            LayerKind::Gate(body) => {
                let x = first(operands)?;
                let gate = self.sequence(body, x.clone())?;
                self.join(node, "Mul", &[x, gate])?
            }
            LayerKind::Branches { branches, combine } => {
                let x = first(operands)?;
                let ends = branches.iter().map(|branch| self.node(branch, x.clone()));
                let ends = ends.collect::<Result<Vec<Value>, _>>()?;
                match combine {
                    Combine::Add => self.join(node, "Add", &ends)?,
                    Combine::Multiply => self.join(node, "Mul", &ends)?,
                    Combine::Concat => {
                        let shape = self.row(node)?;
                        self.graph.scope.clone_from(&node.path);
                        let name = self.concat(&ends, 1);
                        self.made(Value { name, shape })
                    }
                }
            }
        };
        if !node.name.is_empty() {
            self.named.insert(node.path.clone(), y.clone());
        }
        Ok(y)
    }

    /// The operands of a layer: what `from` names, or what the layer before put out.
    fn operands(&self, node: &LayerNode, x: Value) -> Result<Vec<Value>, Diagnostic> {
        let Some(list) = &node.from else { return Ok(vec![x]) };
        let find = |path: &String| self.named.get(path).cloned().ok_or_else(|| internal(format!("no `{path}`")));
        list.iter().map(|(path, _)| find(path)).collect()
    }

    /// The shape of what `node` puts out: its row of the layer table.
    fn row(&mut self, node: &LayerNode) -> Result<Vec<usize>, Diagnostic> {
        match self.rows.next() {
            Some(row) if row.path == node.path && row.kind == node.kind_name() => Ok(row.output.dims().to_vec()),
            row => {
                let found = row.map_or("nothing", |row| row.path.as_str());
                Err(internal(format!("the layer table has {found} in the place of `{}`", node.path)))
            }
        }
    }

    fn made(&mut self, y: Value) -> Value {
        self.shown(&y);
        y
    }

    fn residual(
        &mut self,
        node: &LayerNode,
        x: Value,
        body: &[LayerNode],
        projection: Option<&LayerNode>,
        if_same_shape: bool,
    ) -> Result<Value, Diagnostic> {
        let y = self.sequence(body, x.clone())?;
        let shortcut = match projection {
            Some(group) if x.shape != y.shape => self.node(group, x)?,
            _ => x,
        };
        if if_same_shape && shortcut.shape != y.shape {
            return Ok(y);
        }
        self.join(node, "Add", &[y, shortcut])
    }

    /// The operands added or multiplied one after the other, as the result of a container.
    fn join(&mut self, node: &LayerNode, op_type: &str, operands: &[Value]) -> Result<Value, Diagnostic> {
        let shape = self.row(node)?;
        self.graph.scope.clone_from(&node.path);
        let name = self.combine(op_type, operands);
        Ok(self.made(Value { name, shape }))
    }

    /// The operands added or multiplied one after the other, with broadcast.
    pub(super) fn combine(&mut self, op_type: &str, operands: &[Value]) -> String {
        let mut names = operands.iter().map(|value| value.name.as_str());
        let first = names.next().unwrap_or_default().to_owned();
        names.fold(first, |sum, next| self.graph.op(op_type, &[&sum, next], []))
    }

    /// The operands joined along a dimension.
    pub(super) fn concat(&mut self, operands: &[Value], axis: usize) -> String {
        let names: Vec<&str> = operands.iter().map(|value| value.name.as_str()).collect();
        self.graph.op("Concat", &names, [int("axis", axis as i64)])
    }
}
