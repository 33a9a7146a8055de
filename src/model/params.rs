//! Parameters and buffers of layers, with PyTorch's names and initial distributions.

use super::Builder;
use crate::config::{Diagnostic, LayerNode};
use crate::graph::{DType, Fill, Holder, MAX_ELEMENTS, Shape, Storage, ValueId, VarKind, Variable};

/// A parameter or buffer to be made.
pub(super) struct Param<'a> {
    /// Last component of its name; empty if it has that of the layer.
    pub name: &'a str,
    pub dtype: DType,
    /// Inside shape.
    pub shape: Shape,
    pub storage: Storage,
    pub init: Fill,
    pub kind: VarKind,
}

impl Param<'_> {
    /// A weight of which inside and outside are the same.
    pub fn plain(name: &str, shape: impl Into<Shape>, init: Fill) -> Param<'_> {
        let shape = shape.into();
        Param { name, dtype: DType::F32, storage: Storage::plain(shape.clone()), shape, init, kind: VarKind::Parameter }
    }

    /// A buffer.
    pub fn buffer(name: &str, dtype: DType, shape: impl Into<Shape>, start: f64) -> Param<'_> {
        Param { dtype, kind: VarKind::Buffer, ..Param::plain(name, shape, Fill::Constant(start)) }
    }
}

/// The start of weights and biases of `torch.nn.Linear` and `Conv2d`: uniform within `1 / √fan_in` (that is what
/// `kaiming_uniform_` with `a = √5` comes to).
pub(super) fn uniform_fan_in(fan_in: usize) -> Fill {
    Fill::Uniform { bound: 1.0 / (fan_in.max(1) as f64).sqrt() }
}

impl Builder<'_> {
    /// The value of the parameter or buffer `p` of the layer `node`, made on first use.
    pub(super) fn param(&mut self, node: &LayerNode, p: Param) -> ValueId {
        self.param_by(node, p, Self::start)
    }

    /// The same for a part of an adapter, which no rule of `init` is for.
    pub(super) fn adapter_param(&mut self, node: &LayerNode, p: Param) -> ValueId {
        self.param_by(node, p, |_, _, _, _, usual| usual)
    }

    fn param_by(
        &mut self,
        node: &LayerNode,
        p: Param,
        start: impl FnOnce(&mut Self, &LayerNode, &str, &Shape, Fill) -> Fill,
    ) -> ValueId {
        let Param { name, dtype, shape, storage, init, kind } = p;
        if shape.len() > MAX_ELEMENTS {
            let what = if name.is_empty() { String::new() } else { format!(" `{name}`") };
            let message = format!("the parameter{what} of shape {} is too large", storage.outside);
            let error = Diagnostic::error(message).at(node.span, format!("more than {MAX_ELEMENTS} elements"));
            self.report(error);
            return self.guess(shape);
        }
        let path = &node.path;
        let name = match (path.is_empty(), name.is_empty()) {
            (true, _) => name.to_string(),
            // The layer is the parameter.
            (false, true) => path.clone(),
            (false, false) => format!("{path}.{name}"),
        };
        let trainable = kind == VarKind::Parameter;
        let init = if trainable { start(self, node, &name, &storage.outside, init) } else { init };
        let (origin, holder) = (path.clone(), Holder::All);
        let var = Variable { name, dtype, shape, kind, trainable, storage, init, origin, holder };
        let id = self.vars.get_or_add(var);
        self.graph.variable(self.vars, id)
    }
}
