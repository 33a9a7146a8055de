//! Consistency of a graph, checked after every pass.

use super::{DType, Graph, Role, Value};

/// Checks that every value is computed before it is used and at most once, that shapes are what the rules infer,
/// that only variables are updated in place, and that what is made in rounds is joined before others read it.
///
/// # Errors
/// The first inconsistency. It is a bug of the pass that ran last, not of the user's file.
pub fn verify(graph: &Graph) -> Result<(), String> {
    let mut known: Vec<bool> = graph.values.iter().map(|v| !matches!(v.role, Role::Temporary | Role::Output)).collect();
    for (at, node) in graph.nodes.iter().enumerate() {
        let here = || format!("node {at} (`{}` of `{}`)", node.op.rules().name(), graph.origin(node));
        for i in &node.inputs {
            if !known.get(i.index()).copied().unwrap_or(false) {
                return Err(format!("{} reads value {} before it is computed", here(), i.0));
            }
        }
        let infos: Vec<&Value> = node.inputs.iter().map(|i| graph.value(*i)).collect();
        let outputs = node.op.rules().infer(&infos).map_err(|e| format!("{}: {e}", here()))?;
        if outputs.len() != node.outputs.len() {
            return Err(format!("{} has {} outputs, not {}", here(), node.outputs.len(), outputs.len()));
        }
        for (o, (dtype, shape)) in node.outputs.iter().zip(outputs) {
            let value = graph.value(*o);
            if value.dtype != dtype || value.shape != shape {
                return Err(format!(
                    "{}: value {} is {} {}, not {dtype} {shape}",
                    here(),
                    o.0,
                    value.dtype,
                    value.shape
                ));
            }
            if std::mem::replace(&mut known[o.index()], true) {
                return Err(format!("{} computes value {} a second time", here(), o.0));
            }
        }
        for m in node.op.rules().mutates(node.inputs.len()) {
            if !matches!(graph.value(node.inputs[m]).role, Role::Parameter(_) | Role::State(_)) {
                return Err(format!("{} updates value {}, which is no variable", here(), node.inputs[m].0));
            }
        }
    }
    graph.check_rounds()?;
    check_narrow(graph)?;
    match graph.values.iter().zip(&known).position(|(v, k)| v.role == Role::Output && !k) {
        Some(i) => Err(format!("output {i} is never computed")),
        None => Ok(()),
    }
}

/// What is rounded in memory lives within a run of the program, and all names of its memory say so.
fn check_narrow(graph: &Graph) -> Result<(), String> {
    let is_temporary = |v: &Value| v.role == Role::Temporary && v.dtype == DType::F32;
    if let Some(i) = graph.values.iter().position(|v| v.narrow && !is_temporary(v)) {
        return Err(format!("value {i} is rounded in memory, but is no temporary float"));
    }
    let root = graph.roots();
    match root.iter().enumerate().find(|(i, r)| graph.values[*i].narrow != graph.value(**r).narrow) {
        Some((i, root)) => Err(format!("value {i} has the memory of value {}, but another type there", root.0)),
        None => Ok(()),
    }
}
