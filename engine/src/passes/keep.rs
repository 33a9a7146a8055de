//! An update whose loss is not finite leaves the running statistics as they were, too: what the forward pass changes is
//! copied aside before, and put back if that turns out to be the case.

use crate::graph::op::{KeepState, RestoreState};
use crate::graph::{DType, Graph, Role, ShapeError, ValueId, VarId, VarKind, Variable, Variables};

/// Name of the mark that something is kept.
pub const MARK_VARIABLE: &str = "kept";

/// Buffers that a graph changes, with the variables that they are copied to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    pairs: Vec<(VarId, VarId)>,
    mark: Option<VarId>,
}

/// Lets `graph` begin with a copy of all buffers that it changes; only the first run since the mark was cleared makes one,
/// if `once`.
///
/// # Errors
/// None, unless there is a bug.
pub fn keep(graph: &mut Graph, vars: &mut Variables, once: bool) -> Result<Kept, ShapeError> {
    let mut changed: Vec<VarId> = Vec::new();
    for node in &graph.nodes {
        for m in node.op.rules().mutates(node.inputs.len()) {
            if let Role::State(id) = graph.value(node.inputs[m]).role
                && vars[id].kind == VarKind::Buffer
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

    /// Lets `graph` put back what is kept unless `loss` is finite.
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

    /// The mark, which is to be cleared with the sums over micro-batches.
    pub fn mark(&self, graph: &mut Graph, vars: &Variables) -> Option<ValueId> {
        self.mark.map(|m| graph.variable(vars, m))
    }
}
