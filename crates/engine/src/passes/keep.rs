//! The running statistics, too, stay as they were if the loss of an update is not finite, and so does what recurrent layers carry on. The forward pass changes
//! them before the loss is known, so they are copied first, and restored if need be.

use crate::graph::op::{KeepState, RestoreState};
use crate::graph::{DType, Graph, Role, ShapeError, ValueId, VarId, VarKind, Variable, Variables};

/// Name of the flag that the copies have been made.
pub const MARK_VARIABLE: &str = "kept";

/// Buffers that a graph changes, with the variables that they are copied to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    pairs: Vec<(VarId, VarId)>,
    mark: Option<VarId>,
}

/// Makes `graph` begin with a copy of all buffers that it changes. If `once`, only the first run since the flag was cleared
/// makes one.
///
/// # Errors
/// None, unless there is a bug.
pub fn keep(graph: &mut Graph, vars: &mut Variables, once: bool) -> Result<Kept, ShapeError> {
    let mut changed: Vec<VarId> = Vec::new();
    for node in &graph.nodes {
        for m in node.op.rules().mutates(node.inputs.len()) {
            if let Role::State(id) = graph.value(node.inputs[m]).role
                && matches!(vars[id].kind, VarKind::Buffer | VarKind::Carried)
            {
                changed.push(id);
            }
        }
    }
    changed.sort_unstable();
    changed.dedup();
    if changed.is_empty() {
        return Ok(Kept::default());
    }
    let pairs: Vec<(VarId, VarId)> = changed.into_iter().map(|id| (id, copy_of(vars, id))).collect();
    let mark = once.then(|| vars.get_or_add(Variable::zeros(MARK_VARIABLE, DType::F32, [1], VarKind::Kept)));
    let kept = Kept { pairs, mark };
    graph.set_origin("");
    graph.in_backward = true;
    let mut operands: Vec<ValueId> = mark.map(|m| graph.variable(vars, m)).into_iter().collect();
    operands.extend(kept.values(graph, vars));
    graph.add(KeepState { once }, &operands)?;
    graph.nodes.rotate_right(1);
    Ok(kept)
}

fn copy_of(vars: &mut Variables, of: VarId) -> VarId {
    let Variable { name, dtype, shape, storage, origin, .. } = vars[of].clone();
    let name = format!("{MARK_VARIABLE}.{name}");
    vars.get_or_add(Variable { storage, origin, ..Variable::zeros(name, dtype, shape, VarKind::Kept) })
}

impl Kept {
    fn values(&self, graph: &mut Graph, vars: &Variables) -> Vec<ValueId> {
        self.pairs.iter().flat_map(|(var, copy)| [graph.variable(vars, *var), graph.variable(vars, *copy)]).collect()
    }

    /// Makes `graph` restore the copies unless `loss` is finite.
    ///
    /// # Errors
    /// None, unless there is a bug.
    pub fn restore(&self, graph: &mut Graph, vars: &Variables, loss: ValueId) -> Result<(), ShapeError> {
        if self.pairs.is_empty() {
            return Ok(());
        }
        let operands: Vec<ValueId> = std::iter::once(loss).chain(self.values(graph, vars)).collect();
        graph.set_origin("");
        graph.in_backward = true;
        graph.add(RestoreState {}, &operands).map(|_| ())
    }

    /// The flag, which is cleared with the sums over micro-batches.
    pub fn mark(&self, graph: &mut Graph, vars: &Variables) -> Option<ValueId> {
        self.mark.map(|m| graph.variable(vars, m))
    }
}
