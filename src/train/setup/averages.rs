//! The graphs of stochastic weight averaging: the mean itself, and batch norm's statistics with it.

use crate::graph::op::{NewFull, Op};
use crate::graph::{DType, Graph, Input, Role, Shape, ShapeError, VarId, VarKind, Variable, Variables};
use crate::model::Forward;
use crate::passes::update::{AVERAGE_PREFIX, add_averages, average_of};
use crate::passes::update_spec::UpdateSpec;

/// Takes the weights of now into the mean.
///
/// # Errors
/// None, unless there is a bug.
pub fn average_graph(vars: &mut Variables, spec: &UpdateSpec, averaged: &[VarId]) -> Result<Graph, ShapeError> {
    let mut graph = Graph::new();
    // The losses of the epoch are known, and finite.
    let share = graph.input(Input::Averaging, DType::F32, Shape::from([4]));
    let loss = graph.add1(NewFull { shape: Shape::from([1]), value: 0.0 }, &[share])?;
    let spec = UpdateSpec { averaged: averaged.to_vec(), ..spec.clone() };
    add_averages(&mut graph, vars, &spec, loss)?;
    Ok(graph)
}

/// The part of a training graph that batch norm's statistics come from, with the averaged weights, and statistics of their own in
/// which all batches count the same. `None` if there are none.
pub fn statistics_graph(forward: &Forward, vars: &mut Variables) -> Option<Graph> {
    let mut graph = forward.graph.clone();
    let mut needed = vec![false; graph.values.len()];
    let mut kept = Vec::new();
    for mut node in std::mem::take(&mut graph.nodes).into_iter().rev() {
        let tracks = match &mut node.op {
            Op::BatchNorm(norm) if norm.track => {
                norm.momentum = None;
                for value in &node.inputs {
                    if let Role::State(id) = graph.value(*value).role
                        && vars[id].kind == VarKind::Buffer
                    {
                        add_average(vars, id);
                    }
                }
                true
            }
            _ => false,
        };
        if tracks || node.outputs.iter().any(|value| needed[value.index()]) {
            node.inputs.iter().for_each(|value| needed[value.index()] = true);
            kept.push(node);
        }
    }
    kept.reverse();
    graph.nodes = kept;
    // No loss and no prediction is asked for.
    for value in graph.values.iter_mut().filter(|value| value.role == Role::Output) {
        value.role = Role::Temporary;
    }
    take_averages(&mut graph, vars);
    (!graph.nodes.is_empty()).then_some(graph)
}

/// A variable for the average of another one.
fn add_average(vars: &mut Variables, of: VarId) {
    let Variable { name, dtype, shape, storage, origin, init, .. } = vars[of].clone();
    let name = format!("{AVERAGE_PREFIX}{name}");
    vars.get_or_add(Variable { storage, origin, init, ..Variable::zeros(name, dtype, shape, VarKind::Optimizer) });
}

/// Makes a graph take averages in the place of what they are averages of, where there are some.
pub fn take_averages(graph: &mut Graph, vars: &Variables) {
    for value in &mut graph.values {
        if let Role::Parameter(id) | Role::State(id) = &mut value.role
            && let Some(average) = average_of(vars, *id)
        {
            *id = average;
        }
    }
}
