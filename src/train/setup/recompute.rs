//! Which layers are computed again for the backward pass.

use super::patterns::similar;
use crate::config::language::sections::Recompute as Asked;
use crate::config::{Diagnostic, Experiment};
use crate::graph::Graph;
use crate::passes::rematerialize::Recompute;
use crate::plan::Program;
use std::collections::BTreeSet;

/// What `train.recompute` asks for, as layers of `graph`, which is that of the forward pass.
///
/// # Errors
/// Patterns that fit no layer.
pub fn layers(experiment: &Experiment, graph: &Graph) -> Result<Recompute, Vec<Diagnostic>> {
    let patterns = match &experiment.train.recompute {
        Asked::Nothing => return Ok(Recompute::Nothing),
        Asked::Automatic => return Ok(Recompute::Automatic),
        Asked::Layers(patterns) => patterns,
    };
    let mut paths = BTreeSet::new();
    for origin in graph.nodes.iter().map(|node| graph.origin(node)).filter(|origin| !origin.is_empty()) {
        paths.extend(origin.match_indices('.').map(|(dot, _)| &origin[..dot]));
        paths.insert(origin);
    }
    let mut errors = Vec::new();
    let mut found = BTreeSet::new();
    for pattern in patterns {
        // A layer within one that fits is a part of that one.
        let fit: Vec<&str> = paths.iter().copied().filter(|path| pattern.matches(path)).collect();
        if fit.is_empty() {
            let error = Diagnostic::error(format!("`{}` in `recompute` fits no layer", pattern.text));
            let error = error.at(pattern.span, "fits nothing");
            errors.push(match similar(&pattern.text, paths.iter().copied()) {
                Some(path) => error.help(format!("did you mean `{path}`?")),
                None => error.help("`runner check` lists the layers; leave out `recompute` for that"),
            });
        }
        found.extend(fit.into_iter().map(str::to_owned));
    }
    if errors.is_empty() { Ok(Recompute::Layers(found.into_iter().collect())) } else { Err(errors) }
}

/// Floating-point operations of a program.
pub fn flops(program: &Program) -> u64 {
    let graph = &program.graph;
    let values = |list: &[crate::graph::ValueId]| list.iter().map(|v| graph.value(*v)).collect::<Vec<_>>();
    graph.nodes.iter().map(|node| node.op.rules().flops(&values(&node.inputs), &values(&node.outputs))).sum()
}
