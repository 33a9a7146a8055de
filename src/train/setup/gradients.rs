//! A program that makes gradients and changes nothing, to look at them. A training step has no memory for all of them at once: it gives up each as
//! soon as its parameter is updated.

use crate::graph::op::Op;
use crate::graph::{Graph, Role, ValueId, VarId};
use crate::model::Forward;
use crate::passes::Trained;
use crate::passes::update_spec::UpdateSpec;
use std::collections::HashMap;

/// Where a program leaves the gradient of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GradientOf {
    /// The parameter.
    pub parameter: VarId,
    /// Its gradient, of the same shape inside.
    pub value: ValueId,
    /// It is frozen at first, and trained later.
    pub thawed: bool,
}

/// The forward pass of training without all that it changes: sums of figures, and running statistics, of which batch norm in training reads none.
pub fn without_effects(forward: &Forward) -> Graph {
    let mut graph = forward.graph.clone();
    // A copy of a variable that is not made is read where it would come from.
    let kept = graph.nodes.iter().filter(|node| matches!(node.op, Op::KeepState(_)));
    let pairs = kept.flat_map(|node| node.inputs.as_chunks().0);
    let of_variables = pairs.filter(|[from, _]| matches!(graph.value(*from).role, Role::State(_)));
    let copies: HashMap<ValueId, ValueId> = of_variables.map(|[from, to]| (*to, *from)).collect();
    for input in graph.nodes.iter_mut().flat_map(|node| &mut node.inputs) {
        *input = copies.get(input).copied().unwrap_or(*input);
    }
    graph.nodes.retain_mut(|node| {
        if let Op::BatchNorm(norm) = &mut node.op
            && norm.track
        {
            // Mean, variance and the number of batches come last.
            node.inputs.truncate(node.inputs.len() - 3);
            norm.track = false;
        }
        node.op.rules().mutates(node.inputs.len()).is_empty()
    });
    // No loss and no prediction is asked for.
    for value in graph.values.iter_mut().filter(|value| value.role == Role::Output) {
        value.role = Role::Temporary;
    }
    graph
}

/// The update whose gradients are looked at: all parameters, and the loss of one batch.
pub fn of_a_batch(spec: &UpdateSpec) -> UpdateSpec {
    UpdateSpec { micro_batch: None, ..spec.clone() }
}

/// What a trained graph puts out.
pub fn outputs(trained: &Trained, spec: &UpdateSpec) -> Vec<GradientOf> {
    let thawed = |id: VarId| spec.thawed.iter().any(|(other, _)| *other == id);
    let of = |(parameter, value): &(VarId, ValueId)| GradientOf {
        parameter: *parameter,
        value: *value,
        thawed: thawed(*parameter),
    };
    trained.outputs.iter().map(of).collect()
}
