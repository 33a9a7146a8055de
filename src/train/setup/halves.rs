//! A model of two sequences as two programs: what does not depend on the second one is computed once, and kept in variables for the other program, which is run for
//! each token of an answer.

use crate::graph::op::KeepState;
use crate::graph::{Graph, Input, Node, Role, ShapeError, ValueId, VarKind, Variable, Variables};

/// What a value depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum On {
    /// On no input.
    Nothing,
    /// On others than the second sequence.
    Others,
    /// On the second sequence.
    Second,
}

/// What each value of a graph depends on, where `second` are the second sequence and what batches say of it.
fn dependence(graph: &Graph, second: &[Input]) -> Vec<On> {
    let of_role = |role: Role| match role {
        Role::Input(input) if second.contains(&input) => On::Second,
        Role::Input(_) | Role::ShardInput(..) => On::Others,
        _ => On::Nothing,
    };
    let mut on: Vec<On> = graph.values.iter().map(|value| of_role(value.role)).collect();
    for node in &graph.nodes {
        let most = node.inputs.iter().map(|value| on[value.index()]).max().unwrap_or(On::Nothing);
        node.outputs.iter().for_each(|value| on[value.index()] = most);
    }
    on
}

/// The values that are made without the second sequence and taken by what depends on it, in the order in which they are made, each with the variable that keeps it.
fn kept(graph: &Graph, on: &[On], vars: &mut Variables) -> Vec<(ValueId, crate::graph::VarId)> {
    let depends = |node: &&Node| node.outputs.iter().any(|made| on[made.index()] == On::Second);
    let taken = |value: &ValueId| graph.nodes.iter().filter(depends).any(|node| node.inputs.contains(value));
    let made = graph.nodes.iter().flat_map(|node| &node.outputs).copied();
    let kept = made.filter(|value| on[value.index()] == On::Others && taken(value));
    let variable = |(number, value): (usize, ValueId)| {
        let (dtype, shape) = (graph.value(value).dtype, graph.shape(value).clone());
        // No layer has such a name.
        (value, vars.get_or_add(Variable::zeros(format!("memory[{number}]"), dtype, shape, VarKind::Kept)))
    };
    kept.enumerate().map(variable).collect()
}

/// Leaves out the nodes that nothing of `wanted` is made from, and that keep nothing which `keeps` says is to be kept.
fn without_dead(graph: &mut Graph, wanted: impl IntoIterator<Item = ValueId>, keeps: impl Fn(&Node) -> bool) {
    let mut needed = vec![false; graph.values.len()];
    wanted.into_iter().for_each(|value| needed[value.index()] = true);
    let mut left = Vec::with_capacity(graph.nodes.len());
    for node in std::mem::take(&mut graph.nodes).into_iter().rev() {
        if keeps(&node) || node.outputs.iter().any(|value| needed[value.index()]) {
            node.inputs.iter().for_each(|value| needed[value.index()] = true);
            left.push(node);
        }
    }
    left.reverse();
    graph.nodes = left;
}

/// The part that does not depend on `second`, with a copy of all that the other part takes of it.
///
/// # Errors
/// None, unless there is a bug.
pub fn first(mut graph: Graph, vars: &mut Variables, second: &[Input]) -> Result<Graph, ShapeError> {
    let on = dependence(&graph, second);
    let kept = kept(&graph, &on, vars);
    without_dead(&mut graph, kept.iter().map(|(value, _)| *value), |_| false);
    // The first program only fills variables: it has no output.
    for value in graph.values.iter_mut().filter(|value| value.role == Role::Output) {
        value.role = Role::Temporary;
    }
    graph.set_origin("");
    let copies: Vec<ValueId> = kept.iter().flat_map(|(value, var)| [*value, graph.variable(vars, *var)]).collect();
    if !copies.is_empty() {
        graph.add(KeepState { once: false }, &copies)?;
    }
    Ok(graph)
}

/// The part that depends on `second` and makes `output`: it takes the rest from where [`first`] has kept it.
pub fn second(mut graph: Graph, vars: &mut Variables, second: &[Input], output: ValueId) -> Graph {
    let on = dependence(&graph, second);
    for (value, var) in kept(&graph, &on, vars) {
        let copy = graph.variable(vars, var);
        for node in graph.nodes.iter_mut().filter(|node| node.outputs.iter().any(|made| on[made.index()] == On::Second))
        {
            node.inputs.iter_mut().filter(|input| **input == value).for_each(|input| *input = copy);
        }
    }
    // States and rows of caches are kept by nodes that make nothing.
    let keeps = |node: &Node| {
        let mutates = !node.op.rules().mutates(node.inputs.len()).is_empty();
        mutates && node.inputs.iter().any(|value| on.get(value.index()) == Some(&On::Second))
    };
    without_dead(&mut graph, [output], keeps);
    graph
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{Binary, BinaryKind};
    use crate::graph::{DType, Shape, verify};

    /// (a + a) + b, where b is the second.
    #[test]
    fn what_does_not_depend_on_the_second_is_computed_once() {
        let (mut graph, mut vars) = (Graph::new(), Variables::new());
        let [a, b] = [0, 1].map(|n| graph.input(Input::Field(n), DType::F32, Shape::from([2, 3])));
        let add = Binary { kind: BinaryKind::Add };
        let twice = graph.add1(add.clone(), &[a, a]).unwrap();
        let unused = graph.add1(add.clone(), &[a, twice]).unwrap();
        let sum = graph.add1(add, &[twice, b]).unwrap();
        graph.values[sum.index()].role = Role::Output;
        let one = first(graph.clone(), &mut vars, &[Input::Field(1)]).unwrap();
        let two = second(graph, &mut vars, &[Input::Field(1)], sum);
        let names = |graph: &Graph| graph.nodes.iter().map(|node| node.op.rules().name()).collect::<Vec<_>>();
        assert_eq!(names(&one).len(), 2, "{:?} without {unused:?}", names(&one));
        assert_eq!(names(&one)[1], "keep_state");
        assert_eq!((names(&two).len(), vars.len()), (1, 1));
        assert_eq!(vars.iter().next().unwrap().1.name, "memory[0]");
        for graph in [one, two] {
            verify(&graph).unwrap();
        }
    }
}
